"""The best segmentation (Alg. 2) without the softmax of every position, and still exactly the best.

A probability is at most 1, so an edge that leaves a position whose softmax is not computed scores at most 0.
The best segmentation of a word under these bounds may be too good to be true: then the positions that it
passes are computed, and the word is segmented again. When the best one passes only computed positions, its
score is true and no other can reach it. A trained model computes about a third of the positions.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dpe.lattice import dynamic_program
from dpe.lattice.dynamic_program import Cuts

if TYPE_CHECKING:
    from dpe.lattice.lattice import Bucket, LatticeBatch
    from dpe.model.batching import MixedBatch
    from dpe.model.mixed import MixedTransformer

_ROUNDS = 5  # then all positions of the remaining words are computed
_LONGEST_WORD = 64  # a longer one, with its many segmentations, would take many rounds


class PositionScores:
    """Edge scores that are computed for the positions asked for, and are 0 elsewhere."""

    def __init__(self, model: MixedTransformer, batch: MixedBatch) -> None:
        self._model, self._states, self._lattice = model, model.lazy_states(batch), batch.lattice
        # Sums over a sentence lose digits in float32.
        self.scores = batch.characters.new_zeros(len(self._lattice.edge_positions), dtype=torch.float64)
        self.known = batch.characters.new_zeros(batch.characters.numel(), dtype=torch.bool)  # [position]
        self.is_complete = False

    def look_at(self, positions: Tensor) -> None:
        wanted = torch.zeros_like(self.known).index_fill_(0, positions, True)
        self._compute(wanted[self._lattice.edge_positions].nonzero()[:, 0])
        self.known |= wanted

    def look_at_all(self) -> None:
        self._compute(slice(None))
        self.known.fill_(True)
        self.is_complete = True

    def _compute(self, edges: Tensor | slice) -> None:
        positions, rows = torch.unique_consecutive(self._lattice.edge_positions[edges], return_inverse=True)
        found = self._model.edge_scores(self._states(positions), rows, self._lattice.edge_pieces[edges])
        self.scores[edges] = found.to(self.scores.dtype)


def lazy_best(scores: PositionScores, lattice: LatticeBatch) -> list[Cuts]:
    """The best segmentations of the words of each bucket.

    The ends of sentences are looked at too, so that their scores can be read from `scores`.
    """
    searches = [_Search(bucket, lattice.word_positions) for bucket in lattice.buckets]
    ends = lattice.edge_positions[lattice.end_edges]
    long = [search.positions_of_long_words() for search in searches]
    new = torch.cat([lattice.word_positions, ends, *long])  # [position]
    for number in count():
        scores.look_at(new)
        found = [search.cut_again(scores, thorough=number == _ROUNDS) for search in searches]
        new = torch.cat([*found, ends[:0]])
        if not len(new):
            return [search.cuts for search in searches]
    raise AssertionError


class _Search:
    """The words of a bucket, and those among them whose best segmentation is not certain yet."""

    def __init__(self, bucket: Bucket, word_positions: Tensor) -> None:
        words, longest, _ = bucket.shape
        self._bucket = bucket
        self._begins = word_positions[bucket.words]  # [word]
        self._open = torch.arange(words, device=bucket.words.device)  # [open word], rows of the bucket
        self.cuts = Cuts(
            torch.zeros(words, dtype=torch.float64, device=bucket.words.device),
            torch.zeros(words, longest + 1, dtype=torch.bool, device=bucket.words.device),
        )

    def positions_of_long_words(self) -> Tensor:
        return self._open_positions() if self._bucket.shape[1] > _LONGEST_WORD else self._begins[:0]

    def cut_again(self, scores: PositionScores, *, thorough: bool) -> Tensor:
        """Cut the open words; gives positions to look at, all of those words if `thorough`. # [position]"""
        if not len(self._open):
            return self._open
        lengths = self._bucket.lengths[self._open]
        found = dynamic_program.best(self._bucket.scatter(scores.scores)[self._open], lengths)
        self.cuts.scores[self._open] = found.scores.to(self.cuts.scores.dtype)
        self.cuts.boundaries[self._open] = found.boundaries
        rows, places = found.boundaries.nonzero(as_tuple=True)  # [boundary]: open word, character in it
        positions = self._begins[self._open[rows]] + places  # [boundary]
        # Is it a position that is not computed yet? The end of a word begins no piece of it.
        new = (places < lengths[rows]) & ~scores.known[positions]  # [boundary]
        self._open = self._open[torch.unique(rows[new])]
        return self._open_positions() if thorough else positions[new]

    def _open_positions(self) -> Tensor:
        """Every position of the open words. # [position]"""
        places = torch.arange(self._bucket.shape[1], device=self._open.device)
        inside = places < self._bucket.lengths[self._open, None]  # [word, start]
        return (self._begins[self._open, None] + places)[inside]
