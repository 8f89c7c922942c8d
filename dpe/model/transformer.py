"""A small transformer: layers, encoder, decoder. Both models of this package are built from it.

Everything here works on embedded input, [sentence, position, width], and knows neither pieces nor characters.
The parameters are laid out as CTranslate2 expects them: ReLU between two linear maps, and a final layer norm
if and only if the norms come first; for attention see attention.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.model.attention import CrossAttention, DecoderCache, LayerCache, SelfAttention
from dpe.model.fast_layers import Linear, add_dropped

if TYPE_CHECKING:
    from dpe.model.settings import TransformerSettings


class Positions(nn.Module):
    """Sinusoidal position vectors: sines in the first half of the width, cosines in the second.

    The table is computed, not learned, so it is not saved; it grows when a longer sentence arrives.
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


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them."""

    def __init__(self, settings: TransformerSettings) -> None:
        super().__init__()
        self.inner = Linear(settings.width, settings.feed_forward)
        self.outer = Linear(settings.feed_forward, settings.width)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)  # [row, width]: of rows Linear's output is no view and may be overwritten
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
        self.self_attention = SelfAttention(settings.width, settings.heads, causal=False)
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
        self.self_attention = SelfAttention(settings.width, settings.heads, causal=True)
        self.self_attention_residual = Residual(settings)
        if cross_attention:
            self.cross_attention = CrossAttention(settings.width, settings.heads)
            self.cross_attention_residual = Residual(settings)
        self.feed_forward = FeedForward(settings)
        self.feed_forward_residual = Residual(settings)

    def attended(
        self, x: Tensor, memory: Tensor | None, memory_mask: Tensor | None, cache: LayerCache | None
    ) -> Tensor:
        """All of the layer but `fed_forward`, which looks at one position at a time."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, cache=cache))
        if memory is not None:
            x = self.cross_attention_residual(
                x, lambda y: self.cross_attention(y, memory, memory_mask, cache)
            )
        return x

    def fed_forward(self, x: Tensor) -> Tensor:
        return self.feed_forward_residual(x, self.feed_forward)  # type: ignore[no-any-return]


class Stack(nn.Module):
    """The common part of encoder and decoder: scaled input with positions, and the final layer norm."""

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
        """`mask` is `key_mask` of the lengths; vectors at padding are finite and have no meaning."""
        x = self.with_positions(embedded, 0)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)  # type: ignore[no-any-return]


class Decoder(Stack):
    """[sentence, position, width] embeddings in; the vector at a position does not depend on later ones.

    Padding must be on the right: then no real position sees it, and causal attention needs no mask.
    """

    layers: Sequence[DecoderLayer]

    def __init__(self, settings: TransformerSettings, *, cross_attention: bool) -> None:
        super().__init__(settings)
        self.layers = nn.ModuleList(  # type: ignore[assignment]
            DecoderLayer(settings, cross_attention=cross_attention) for _ in range(settings.decoder_layers)
        )
        initialise(self)

    def forward(
        self,
        embedded: Tensor,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
        *,
        finish: bool = True,
    ) -> Tensor:
        """All positions at once, or, with a cache, the next one. `memory` is the encoder's output.

        The end, `finished`, looks at one position at a time, so it may be left for those that are wanted.
        """
        x = self.with_positions(embedded, cache.length if cache else 0)
        for index, layer in enumerate(self.layers):
            x = self.layers[index - 1].fed_forward(x) if index else x
            x = layer.attended(x, memory, memory_mask, cache.layers[index] if cache else None)
        if cache:
            cache.length += embedded.shape[1]
        return self.finished(x) if finish else x

    def finished(self, x: Tensor) -> Tensor:
        """The last feed-forward and norm, of all positions or some. # [..., width]"""
        return self.final_norm(self.layers[-1].fed_forward(x))  # type: ignore[no-any-return]


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
