"""A small transformer: attention, layers, encoder, decoder. Both models of this package are built from it.

Everything here works on embedded input, [sentence, position, width], and knows neither pieces nor characters.
The parameters are laid out as CTranslate2 wants them: one fused query-key-value projection in self-attention,
one fused key-value projection in cross-attention, ReLU between two linear maps, and a last layer norm if and
only if the norms come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.errors import UserError
from dpe.model.fast_layers import Linear, add_dropped


@dataclass(frozen=True)
class TransformerSettings:
    """The shape of a transformer. `encoder_layers` is not used by a model without a source."""

    width: int
    heads: int
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"  # transformer base is "post"; "pre" trains without a careful warm-up

    def __post_init__(self) -> None:
        if self.width % self.heads or self.width % 2:
            raise UserError(
                f"width {self.width} must be even and a multiple of heads {self.heads}: change one."
            )
        if self.norm not in ("pre", "post"):
            raise UserError(f"norm is {self.norm!r}: write 'pre' or 'post'.")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout is {self.dropout}: it must be at least 0 and less than 1.")


class Positions(nn.Module):
    """Sinusoidal position vectors: sines in the first half of the width, cosines in the second.

    The table grows when a longer sentence comes, and is computed, never learned, so it is not saved.
    """

    table: Tensor

    def __init__(self, width: int, *, length: int = 512) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(length, width).float(), persistent=False)

    def forward(self, start: int, end: int) -> Tensor:
        """The vectors of positions start..end-1. # [position, width]"""
        if end > self.table.shape[0]:
            # Not an inference tensor even when a segmenter grows it: training may use it next.
            with torch.inference_mode(False):
                self.table = sinusoids(2 * end, self.table.shape[1]).to(self.table)
        return self.table[start:end]


def sinusoids(length: int, width: int) -> Tensor:
    """The position table in float64. # [position, width]"""
    rates = torch.exp(torch.arange(width // 2, dtype=torch.float64) * (-math.log(10000.0) / (width // 2)))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def key_mask(lengths: Tensor, size: int, device: torch.device) -> Tensor | None:
    """True where a key may be attended to, or None when no sentence is padded. # [sentence, 1, 1, key]

    Attention without a mask runs a faster kernel. `lengths` may stay on the CPU, which saves a GPU a wait.
    A sentence without any key has no attention at all, so length 0 is refused.
    """
    shortest = int(lengths.min())
    if shortest < 1:
        raise ValueError("a source of length 0: append the end of sentence to every source")
    if shortest >= size:
        return None
    mask = torch.arange(size, device=device) < lengths.to(device)[:, None]  # [sentence, key]
    return mask[:, None, None, :]


@dataclass
class LayerCache:
    """What one decoder layer remembers of what it has read. # [sentence, head, position, size]"""

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
        """Keep these sentences, in this order, repeats allowed."""
        for name in ("keys", "values", "memory_keys", "memory_values"):
            kept = getattr(self, name)
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

    def __init__(self, settings: TransformerSettings, *, causal: bool) -> None:
        super().__init__()
        self.heads = settings.heads
        self.causal = causal
        self.query_key_value = Linear(settings.width, 3 * settings.width)
        self.output = Linear(settings.width, settings.width)

    def forward(self, x: Tensor, mask: Tensor | None = None, cache: LayerCache | None = None) -> Tensor:
        """A cache takes one position at a time. Causal attention needs no mask: padding is on the right."""
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

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.query = Linear(settings.width, settings.width)
        self.key_value = Linear(settings.width, 2 * settings.width)
        self.output = Linear(settings.width, settings.width)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None, cache: LayerCache | None) -> Tensor:
        (query,) = split_heads(self.query(x), 1, self.heads)
        key, value = self.project_memory(memory, cache)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(join_heads(attended))  # type: ignore[no-any-return]

    def project_memory(self, memory: Tensor, cache: LayerCache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, computed once where there is a cache."""
        if cache is not None and cache.memory_keys is not None and cache.memory_values is not None:
            return cache.memory_keys, cache.memory_values
        key, value = split_heads(self.key_value(memory), 2, self.heads)
        if cache is not None:
            cache.memory_keys, cache.memory_values = key, value
        return key, value


def split_heads(x: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Cut [sentence, position, parts x heads x size] into `parts` views [sentence, head, position, size]."""
    split = x.view(x.shape[0], x.shape[1], parts, heads, -1)
    return tuple(part.transpose(1, 2) for part in split.unbind(2))


def join_heads(x: Tensor) -> Tensor:
    """From [sentence, head, position, size] to [sentence, position, width]."""
    return x.transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.inner = Linear(settings.width, settings.feed_forward)
        self.outer = Linear(settings.feed_forward, settings.width)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)  # [row, width]: what Linear makes of rows is no view, so it may be overwritten
        return self.outer(F.relu(self.inner(rows), inplace=True)).view_as(x)  # type: ignore[no-any-return]


class Residual(nn.Module):
    """x + dropout(sublayer(x)), with the layer norm before the sublayer ("pre") or after the sum ("post")."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.norm_first = settings.norm == "pre"
        self.dropout = settings.dropout

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if self.norm_first:
            return add_dropped(x, sublayer(self.norm(x)), dropout)
        return self.norm(add_dropped(x, sublayer(x), dropout))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings, causal=False)
        self.self_attention_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, mask))
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention where there is a source, then feed-forward."""

    def __init__(self, settings: TransformerSettings, *, cross_attention: bool) -> None:
        super().__init__()
        self.self_attention = SelfAttention(settings, causal=True)
        self.self_attention_residual = Residual(settings)
        if cross_attention:
            self.cross_attention = CrossAttention(settings)
            self.cross_attention_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def forward(
        self, x: Tensor, memory: Tensor | None, memory_mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, cache=cache))
        if memory is not None:
            x = self.cross_attention_residual(
                x, lambda y: self.cross_attention(y, memory, memory_mask, cache)
            )
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class Stack(nn.Module):
    """What encoder and decoder share: scaled input with positions, and the last layer norm."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.scale = math.sqrt(settings.width)
        self.dropout = settings.dropout
        self.positions = Positions(settings.width)
        self.final_norm = nn.LayerNorm(settings.width) if settings.norm == "pre" else nn.Identity()

    def with_positions(self, embedded: Tensor, start: int) -> Tensor:
        """Embeddings times sqrt(width), plus positions from `start` on, with dropout."""
        positions = self.positions(start, start + embedded.shape[1])
        x = torch.add(positions, embedded, alpha=self.scale)
        return add_dropped(x.new_zeros(()), x, self.dropout if self.training else 0.0)


class Encoder(Stack):
    """[sentence, token, width] embeddings in, as many contextual vectors out."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__(settings)
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        initialise(self)

    def forward(self, embedded: Tensor, mask: Tensor | None) -> Tensor:
        """`mask` is `key_mask` of the lengths; vectors at padding are finite and mean nothing."""
        x = self.with_positions(embedded, 0)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)  # type: ignore[no-any-return]


class Decoder(Stack):
    """[sentence, position, width] embeddings in; the vector at a position depends on none after it.

    Padding must be on the right: then no real position sees it, and causal attention needs no mask.
    """

    def __init__(self, settings: TransformerSettings, *, cross_attention: bool) -> None:
        super().__init__(settings)
        self.layers = nn.ModuleList(
            DecoderLayer(settings, cross_attention=cross_attention) for _ in range(settings.decoder_layers)
        )
        initialise(self)

    def forward(
        self,
        embedded: Tensor,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """All positions at once, or with a cache the next one. `memory` is the encoder's output."""
        x = self.with_positions(embedded, cache.length if cache else 0)
        for index, layer in enumerate(self.layers):
            x = layer(x, memory, memory_mask, cache.layers[index] if cache else None)
        if cache:
            cache.length += embedded.shape[1]
        return self.final_norm(x)  # type: ignore[no-any-return]


def initialise(module: nn.Module) -> None:
    """Xavier-uniform matrices and zero biases."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            nn.init.zeros_(part.bias)


def embedding(count: int, width: int, *, pad_id: int) -> nn.Embedding:
    """An embedding of standard deviation 1/sqrt(width): variance 1 once scaled. The padding is zero."""
    table = nn.Embedding(count, width, padding_idx=pad_id)
    nn.init.normal_(table.weight, std=width**-0.5)
    nn.init.zeros_(table.weight[pad_id])
    return table
