"""Training steps as one would first write them, kept for comparison: the paper's, and a translator's loss.

The softmax over the vocabulary is held for every character position, and Alg. 1 is a loop over the
characters of the sentences that autograd records. It is batched over sentences and its edges are gathered in
one operation, so it is a fair opponent. `benchmarks.training_step` records how far its value is from ours.

It is measured with torch's own linear maps and dropout, as one would write it, and with our layers, which
shows what the marginal alone costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.model import transformer
from dpe.model.batching import MixedBatch, TranslationBatch
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer


@dataclass(frozen=True)
class Table:
    """Which piece covers which span of each whole sentence; -1 where none does."""

    pieces: Tensor  # [sentence, start, span]
    lengths: Tensor  # [sentence], in characters
    end_piece: int


def table(batch: MixedBatch) -> Table:
    """The edges of a batch as the recursion over whole sentences wants them."""
    lattice = batch.lattice
    sentences, positions = batch.characters.shape
    longest = max(bucket.shape[2] for bucket in lattice.buckets)
    pieces = torch.full((sentences * positions, longest), -1)
    spans = torch.empty_like(lattice.edge_pieces)
    for bucket in lattice.buckets:
        spans[bucket.edges] = bucket.cells % bucket.shape[2]
    in_word = torch.ones_like(spans, dtype=torch.bool)
    in_word[lattice.end_edges] = False
    pieces[lattice.edge_positions[in_word], spans[in_word]] = lattice.edge_pieces[in_word]
    pieces = pieces.view(sentences, positions, longest)
    lengths = lattice.edge_positions[lattice.end_edges] % positions
    end_piece = int(lattice.edge_pieces[lattice.end_edges[0]])
    # Behind the end of a sentence any possible piece will do: no alpha there is used, but -inf makes NaN.
    behind = torch.arange(positions) >= lengths[:, None]
    pieces[..., 0][behind] = end_piece
    return Table(pieces, lengths, end_piece)


def textbook_log_likelihood(model: MixedTransformer, batch: MixedBatch, edges: Table) -> Tensor:
    """log p(y | x) of every sentence, holding [sentence, position, piece]. # [sentence]"""
    states = model.states(batch).unflatten(0, batch.characters.shape)  # [sentence, position, width]
    logits = states @ model.output_weight.T
    logits[..., list(model.excluded_pieces)] = float("-inf")
    log_probabilities = logits.log_softmax(-1)  # [sentence, position, piece]
    del logits
    scores = log_probabilities.gather(2, edges.pieces.clamp_min(0))  # [sentence, start, span]
    scores = scores.masked_fill(edges.pieces < 0, float("-inf"))
    alphas = _alphas(scores)  # [sentence, position]
    sentences = torch.arange(len(edges.lengths))
    ends = log_probabilities[sentences, edges.lengths, edges.end_piece]
    return alphas[sentences, edges.lengths] + ends


@contextmanager
def torch_layers() -> Iterator[None]:
    """Inside, a transformer computes with torch's linear maps and dropout instead of ours."""

    def add_dropped(x: Tensor, update: Tensor, dropout: float) -> Tensor:
        return x + F.dropout(update, dropout)

    with (
        patch.object(transformer.Linear, "forward", nn.Linear.forward),
        patch.object(transformer, "add_dropped", add_dropped),
    ):
        yield


def _alphas(scores: Tensor) -> Tensor:
    """Alg. 1: log-weight of every prefix, one character after the other. # [sentence, position]"""
    positions, longest = scores.shape[1:]
    by_end = _by_end(scores).unbind(1)
    alphas = [scores.new_zeros(len(scores))]
    for end in range(1, positions):
        reach = min(longest, end)
        before = torch.stack(alphas[end - reach :], 1)  # [sentence, start]
        alphas.append(torch.logsumexp(before + by_end[end][:, longest - reach :], 1))
    return torch.stack(alphas, 1)


def _by_end(scores: Tensor) -> Tensor:
    """The same scores under the end of their span, the longest span first. # [sentence, end, back]"""
    positions, longest = scores.shape[1:]
    spans = torch.arange(longest - 1, -1, -1)
    starts = torch.arange(positions)[:, None] - 1 - spans  # [end, back]
    return scores[:, starts.clamp_min(0), spans]


def full_cross_entropy(model: TranslationTransformer, batch: TranslationBatch, *, smoothing: float) -> Tensor:
    """The loss of a standard translation transformer, holding [sentence, position, piece]; summed."""
    logits = model.logits(batch.source, batch.source_lengths, batch.target_in)
    return F.cross_entropy(
        logits.flatten(0, 1),
        batch.target_out.flatten(),
        ignore_index=model.pad_id,
        label_smoothing=smoothing,
        reduction="sum",
    )
