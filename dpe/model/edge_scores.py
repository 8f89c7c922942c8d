"""Log-probabilities of lattice edges without ever holding a [position, vocabulary] tensor.

A position has one softmax over all pieces, but only the few pieces that match the text there are needed.
The forward pass computes the softmax for a chunk of positions at a time and keeps none of it. The backward
pass computes it again, and only for the positions that matter: when the log-partition of the lattices is
differentiated, the gradient that arrives here is the posterior probability of each edge (times a constant),
so its sum over the edges that leave a position is the probability that a piece starts there, and for most
positions of a trained model that is almost 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dpe.model.chunked_softmax import DEFAULT_CHUNK, ChunkedSoftmax, product_type

DEFAULT_THRESHOLD = 1e-4


def edge_scores(
    states: Tensor,
    output_weight: Tensor,
    edge_positions: Tensor,
    edge_pieces: Tensor,
    *,
    excluded: Sequence[int] = (),
    threshold: float = DEFAULT_THRESHOLD,
    chunk: int = DEFAULT_CHUNK,
) -> Tensor:
    """The log-probability of each edge's piece at the position that it leaves. # [edge]

    By definition (`edge_scores_reference`), with -inf in the columns of the `excluded` pieces:

        logits = states @ output_weight.T            # [position, piece]
        log_probabilities = logits.log_softmax(1)    # [position, piece]
        return log_probabilities[edge_positions, edge_pieces]

    states [position, width], output_weight [piece, width], edge_positions [edge] in ascending order,
    edge_pieces [edge]. A position may have many edges or none.

    The trap: with a threshold above 0 the gradient is approximate. A position gets no gradient at all if its
    edges together receive less than `threshold` times what the position with the most receives.
    """
    options = _Options(tuple(excluded), threshold, chunk, product_type(states))
    scores: Tensor = _EdgeScores.apply(  # type: ignore[no-untyped-call]
        states, output_weight, edge_positions, edge_pieces, options
    )
    return scores


def edge_scores_reference(
    states: Tensor,
    output_weight: Tensor,
    edge_positions: Tensor,
    edge_pieces: Tensor,
    *,
    excluded: Sequence[int] = (),
) -> Tensor:
    """The definition of `edge_scores`, which holds [position, piece] and lets autograd differentiate it."""
    allowed = torch.ones(len(output_weight), dtype=torch.bool, device=states.device)
    allowed[list(excluded)] = False
    logits = (states @ output_weight.T).masked_fill(~allowed, float("-inf"))
    return logits.log_softmax(1)[edge_positions, edge_pieces]


@dataclass(frozen=True)
class _Options:
    excluded: tuple[int, ...]
    threshold: float
    chunk: int
    product_type: torch.dtype


class _EdgeScores(torch.autograd.Function):
    """Saves nothing but its inputs: the backward pass computes the softmax of each chunk again."""

    @staticmethod
    def forward(  # noqa: PLR0917 (autograd passes by position)
        ctx: Any,
        states: Tensor,
        output_weight: Tensor,
        edge_positions: Tensor,
        edge_pieces: Tensor,
        options: _Options,
    ) -> Tensor:
        ctx.save_for_backward(states, output_weight, edge_positions, edge_pieces)
        ctx.options = options
        positions, edge_rows = torch.unique_consecutive(edge_positions, return_inverse=True)
        softmax = _softmax(output_weight, options, rows=len(positions))
        scores = softmax.output.new_empty(len(edge_pieces))
        for rows, edges in _chunks(len(positions), edge_rows, options.chunk):
            log_probabilities = softmax.log_probabilities(states[positions[rows]])  # [row, piece]
            scores[edges] = log_probabilities[edge_rows[edges] - rows.start, edge_pieces[edges]]
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """At each position the logits receive the edges' gradients, less their sum times the softmax."""
        states, output_weight, edge_positions, edge_pieces = ctx.saved_tensors
        matters = edges_that_matter(gradient, edge_positions, len(states), ctx.options.threshold)
        kept_edges = matters.nonzero()[:, 0]  # once: a GPU is waited for
        edge_pieces, gradient = edge_pieces[kept_edges], gradient[kept_edges]
        positions, edge_rows = torch.unique_consecutive(edge_positions[kept_edges], return_inverse=True)
        row_sums = gradient.new_zeros(len(positions)).index_add_(0, edge_rows, gradient)
        softmax = _softmax(output_weight, ctx.options, rows=len(positions))
        states_gradient, weight_gradient = torch.zeros_like(states), torch.zeros_like(output_weight)
        for rows, edges in _chunks(len(positions), edge_rows, ctx.options.chunk):
            chunk = states[positions[rows]]  # [row, width]
            logits_gradient = softmax.probabilities(chunk).mul_(-row_sums[rows, None])  # [row, piece]
            where = (edge_rows[edges] - rows.start, edge_pieces[edges])
            logits_gradient.index_put_(where, gradient[edges], accumulate=True)
            logits_gradient[:, softmax.excluded] = 0.0
            states_gradient[positions[rows]] = softmax.add_gradients(logits_gradient, chunk, weight_gradient)
        return states_gradient, weight_gradient, None, None, None


def _softmax(output_weight: Tensor, options: _Options, *, rows: int) -> ChunkedSoftmax:
    return ChunkedSoftmax(
        output_weight,
        rows=min(rows, options.chunk),
        excluded=options.excluded,
        product_type=options.product_type,
    )


def edges_that_matter(
    gradient: Tensor, edge_positions: Tensor, position_count: int, threshold: float
) -> Tensor:
    """The edges that leave a position which receives enough gradient. # bool [edge]

    Absolute values, so that edges of opposite sign do not cancel. A position that receives exactly 0 never
    matters; one that receives NaN does, so that a broken loss stays visible.
    """
    if len(edge_positions) == 0:
        return torch.ones_like(edge_positions, dtype=torch.bool)
    received = gradient.new_zeros(position_count).index_add_(0, edge_positions, gradient.abs())
    return ~(received <= threshold * received.max())[edge_positions]


def _chunks(row_count: int, edge_rows: Tensor, chunk: int) -> Iterator[tuple[slice, slice]]:
    """Consecutive rows, `chunk` at a time, with the slice of the edges that leave them."""
    row_starts = range(0, row_count, chunk)
    bounds = torch.tensor([*row_starts, row_count], device=edge_rows.device)
    edge_starts = torch.searchsorted(edge_rows, bounds).tolist()
    for index, start in enumerate(row_starts):
        yield slice(start, min(start + chunk, row_count)), slice(edge_starts[index], edge_starts[index + 1])
