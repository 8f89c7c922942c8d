"""Pruning a vocabulary: of many pieces those are kept whose removal would cost the counts of a text most.

As in Kudo's (2018) unigram learner: the loss of a piece is its count times the log-probability that is lost
when every occurrence is replaced by the best segmentation of the piece into others. The counts may come from
anywhere, as from the posterior of a segmenter. Pieces go in rounds. What was counted for a piece that goes is
counted for its replacement from then on, so a piece that many others need gains what they had.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpe.errors import refuse
from dpe.text.best_pieces import UNKNOWN_PENALTY, best_pieces

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

UNSEEN = 0.01  # count of a piece that never occurs: its score is low and finite
_SHARE_OF_A_ROUND = 4  # one in four of the pieces that may go, at most


class PieceModel:
    """Counts of pieces as a unigram model: what a piece would be replaced by, and at what loss."""

    def __init__(self, counts: Mapping[str, float]) -> None:
        self._counts = counts
        self._total = math.fsum(counts.values())
        self.scores = {piece: math.log(count / self._total) for piece, count in counts.items()}
        self._unknown = min(self.scores.values()) - UNKNOWN_PENALTY

    def replacement(self, piece: str) -> list[str]:
        """The best segmentation of a piece into others; a character that is no piece stands for itself."""
        return best_pieces(piece, self.scores, self._unknown, longest=len(piece) - 1)[1]

    def loss(self, piece: str) -> float:
        """By how much the log-probability of what was counted falls when the piece is replaced."""
        count, parts = self._counts[piece], self.replacement(piece)
        total = self._total + count * (len(parts) - 1)
        instead = 0.0
        for part, times in Counter(parts).items():
            if part in self._counts:
                instead += times * math.log((self._counts[part] + times * count) / total)
            else:
                instead += times * self._unknown
        return count * (self.scores[piece] - instead)


def prune(
    vocabulary: Vocabulary,
    counts: NDArray[np.float64],
    size: int,
    *,
    report: Callable[[str], None] = lambda _: None,
) -> Vocabulary:
    """A unigram model of `size` pieces, from the counts [piece] of a larger vocabulary of either type.

    Single characters, special pieces, protected strings and bytes stay. The result is never BPE: a piece can
    only be merged from two others, which may be gone.
    """
    refuse_size(vocabulary, size)
    protected = set(vocabulary.protected)
    kept = {p: float(counts[i]) + UNSEEN for p, i in vocabulary.ids.items() if p not in protected}
    many, gone = len(vocabulary), set[str]()
    while excess := many - len(gone) - size:
        model = PieceModel(kept)
        losses = {piece: model.loss(piece) for piece in kept if len(piece) > 1}
        going = sorted(losses, key=lambda piece: (losses[piece], piece))
        going = going[: min(excess, math.ceil(len(going) / _SHARE_OF_A_ROUND))]
        freed = {piece: kept.pop(piece) for piece in going}
        rest = PieceModel(kept)
        for piece, count in freed.items():
            for part in rest.replacement(piece):
                if part in kept:
                    kept[part] += count
        gone |= freed.keys()
        report(f"pruning: {many - len(gone):,} pieces left")
    return vocabulary.as_unigram(PieceModel(kept).scores, without=gone)


def refuse_size(vocabulary: Vocabulary, size: int) -> None:
    """Refuse a size that pruning cannot reach."""
    many, protected = len(vocabulary), set(vocabulary.protected)
    least = many - sum(len(piece) > 1 and piece not in protected for piece in vocabulary.ids)
    refuse(
        (size >= many, f"The vocabulary has only {many:,} pieces; choose a smaller size than that."),
        (
            size < least,
            f"{size:,} pieces are too few: {least:,} characters, special pieces and protected strings stay.",
        ),
    )
