"""Edge scores of a line of any length in bounded memory.

A line of up to 2,000 characters whose source has up to 2,000 pieces is read by the model as it is. A longer
one is read in windows: the scores of each window come from a decoder that begins to read 1,000 characters
before it (positions count from there; a decoder that reads words begins with a whole word), and from 2,000
pieces of the source, those that stand proportionally where the window does. The dynamic program then runs
over the whole words as always, so a segmentation is still exactly the best one under these scores, also for
one word of 50,000 characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dpe.model.batching import MixedBatch, MixedExample
    from dpe.model.mixed import MixedTransformer

LONGEST = 2_000  # characters, or source pieces, that the model reads at once
CONTEXT = 1_000  # characters that a window's decoder reads before it


class Window(NamedTuple):
    """Positions whose scores are computed together, and where their decoder begins to read."""

    context: int
    begin: int
    end: int


def is_long(example: MixedExample) -> bool:
    """Whether a line is read in windows; it then needs a batch of its own."""
    source, positions = example.size
    return source - 1 > LONGEST or positions - 1 > LONGEST


def windows(positions: int) -> Iterator[Window]:
    """Windows that cover positions 0..positions-1 once, none with its context above LONGEST + 1 positions."""
    begin, end = 0, min(LONGEST + 1, positions)
    while begin < positions:
        yield Window(max(0, begin - CONTEXT), begin, end)
        begin, end = end, min(end + LONGEST - CONTEXT, positions)


def long_line_scores(model: MixedTransformer, batch: MixedBatch) -> Tensor:
    """As `batch_edge_scores`, for a batch of one long line.  # [edge]"""
    positions, pieces = batch.lattice.edge_positions, batch.lattice.edge_pieces
    # Written in place: small tensors kept from window to window would keep the heap from being used again.
    scores = model.output_weight.new_empty(len(pieces))
    for window in windows(batch.characters.shape[1]):
        borders = torch.tensor([window.begin, window.end], device=positions.device)
        edges = slice(*torch.searchsorted(positions, borders).tolist())
        states = _window_states(model, batch, window)
        scores[edges] = model.edge_scores(states, positions[edges] - window.begin, pieces[edges])
    return scores


def _window_states(model: MixedTransformer, batch: MixedBatch, window: Window) -> Tensor:
    """States of a window's positions; the begin symbol stands before its context.  # [position, width]"""
    context = window.context
    if model.reads_words and context:  # begin with a whole word, unless that would lose half of the context
        ends = batch.word_ends[0, context : (context + window.begin) // 2 + 1].nonzero()[:, 0]
        context += int(ends[0]) if len(ends) else 0
    begin_symbol, read = batch.characters[:, :1], batch.characters[:, context + 1 : window.end]
    characters, word_ends = torch.cat([begin_symbol, read], dim=1), batch.word_ends[:, context : window.end]
    source, source_lengths = _source_slice(batch, window)
    part = replace(  # of which the lattice is not read
        batch, source=source, source_lengths=source_lengths, characters=characters, word_ends=word_ends
    )
    states = model.states(part)
    return states[window.begin - context :]


def _source_slice(batch: MixedBatch, window: Window) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The part of the source around the window's own place, with its end of sentence."""
    source = batch.source
    if source is None:
        return None, None
    size = source.shape[1] - 1  # without the end of sentence
    length = min(size, LONGEST)
    middle = size * (window.begin + window.end) // (2 * batch.characters.shape[1])
    begin = min(max(middle - length // 2, 0), size - length)
    part = torch.cat([source[:, begin : begin + length], source[:, -1:]], dim=1)  # [1, token]
    return part, torch.tensor([length + 1])
