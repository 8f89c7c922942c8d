"""Multi-head attention of a sequence to itself and to an encoder's output, and the caches of decoding.

The projections are fused as CTranslate2 expects them: query, key and value in self-attention, key and value
in cross-attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.model.fast_layers import Linear


def key_mask(lengths: Tensor, size: int, device: torch.device) -> Tensor | None:
    """True where a key may be attended to, or None if no sentence is padded. # [sentence, 1, 1, key]

    Attention without a mask runs a faster kernel. `lengths` may stay on the CPU, so that a GPU does not wait.
    Attention over no key at all would be NaN, so length 0 is an error.
    """
    shortest = int(lengths.min())
    if shortest < 1:
        raise ValueError("A source has length 0; append the end of sentence to every source.")
    if shortest >= size:
        return None
    mask = torch.arange(size, device=device) < lengths.to(device)[:, None]  # [sentence, key]
    return mask[:, None, None, :]


@dataclass
class LayerCache:
    """Keys and values of one decoder layer at the positions read. # [sentence, head, position, size]"""

    keys: Tensor | None = None
    values: Tensor | None = None
    memory_keys: Tensor | None = None
    memory_values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest position; returns the keys and values of all."""
        self.keys = keys if self.keys is None else torch.cat([self.keys, keys], dim=2)
        self.values = values if self.values is None else torch.cat([self.values, values], dim=2)
        return self.keys, self.values

    def select(self, rows: Tensor) -> None:
        """As `DecoderCache.select`."""
        for name, kept in vars(self).items():
            if kept is not None:
                setattr(self, name, kept.index_select(0, rows))


class DecoderCache:
    """Keys and values of every layer, so that a decoder can read one position at a time."""

    def __init__(self, layers: int) -> None:
        self.layers = [LayerCache() for _ in range(layers)]
        self.length = 0

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order, repeats allowed (beam search). # rows: [sentence]"""
        for layer in self.layers:
            layer.select(rows)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself, with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.query_key_value = Linear(width, 3 * width)
        self.output = Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        """With a cache, x is the next position. Causal attention needs no mask: padding is on the right."""
        query, key, value = split_heads(self.query_key_value(x), 3, self.heads)
        if cache is not None:
            key, value = cache.append(key, value)
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=None if self.causal else mask,
            is_causal=self.causal and cache is None,
        )
        return self.output(join_heads(attended))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Multi-head attention of the decoder to the encoder's output, the memory."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.key_value = Linear(width, 2 * width)
        self.output = Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        (query,) = split_heads(self.query(x), 1, self.heads)
        if cache is not None and cache.memory_keys is not None and cache.memory_values is not None:
            key, value = cache.memory_keys, cache.memory_values
        else:
            key, value = split_heads(self.key_value(memory), 2, self.heads)
        if cache is not None:  # the memory is projected once
            cache.memory_keys, cache.memory_values = key, value
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(join_heads(attended))  # type: ignore[no-any-return]


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Split [sentence, position, parts x heads x size] into views [sentence, head, position, size]."""
    split = x.view(x.shape[0], x.shape[1], parts, heads, -1)
    return tuple(part.transpose(1, 2) for part in split.unbind(2))


def join_heads(x: Tensor) -> Tensor:
    """From [sentence, head, position, size] to [sentence, position, width]."""
    return x.transpose(1, 2).flatten(2)
