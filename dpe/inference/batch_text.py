"""The text of a batch of sentences joined into one string, and the pieces of it as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpe.model.batching import MixedExample
from dpe.text.vocabulary import Vocabulary


class BatchText:
    """All sentences, one after the other; their words are numbered through."""

    def __init__(self, examples: Sequence[MixedExample], vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._joined = "".join(example.marked for example in examples)
        words = [len(word) for example in examples for word in example.words]
        self.word_begins = np.concatenate([[0], np.cumsum(words, dtype=np.int64)])  # and the end of the last
        self._sentence_ends = np.cumsum([len(example.marked) for example in examples], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._joined)

    def pieces(self, ends: NDArray[np.int64]) -> list[tuple[str, ...]]:
        """The pieces of every sentence, from where they end in the joined text, in any order.

        Neighbouring unknown characters are written as one piece.
        """
        ends = self._without_inner_ends(np.sort(ends))
        pieces = [self._joined[begin:end] for begin, end in pairwise([0, *ends.tolist()])]
        last = np.searchsorted(ends, self._sentence_ends, side="right").tolist()
        return [tuple(pieces[begin:end]) for begin, end in pairwise([0, *last])]

    def _without_inner_ends(self, ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """Without those between two unknown characters of a sentence, unless both would be in one piece."""
        if not self._unknown.any():
            return ends
        lengths = np.diff(ends, prepend=0)
        unknown = (lengths == 1) & self._unknown[ends - 1]
        inner = unknown[:-1] & unknown[1:] & ~np.isin(ends[:-1], self._sentence_ends)
        for first, last in _runs(inner):
            if self._joined[ends[first] - 1 : ends[last]] in self._vocabulary.ids:
                inner[first:last] = False  # or it would read as another cut
        kept: NDArray[np.int64] = ends[np.append(~inner, [True])]
        return kept

    @cached_property
    def _unknown(self) -> NDArray[np.bool_]:
        """Which characters are no piece by themselves."""
        known = self._vocabulary.ids
        strange = {character for character in set(self._joined) if character not in known}
        if not strange:
            return np.zeros(len(self._joined), dtype=np.bool_)
        return np.fromiter((c in strange for c in self._joined), dtype=np.bool_, count=len(self._joined))


def _runs(flags: NDArray[np.bool_]) -> list[list[int]]:
    """Where each run of true flags begins, and where it has ended."""
    padded = np.concatenate([[False], flags, [False]])
    turns: list[list[int]] = np.flatnonzero(padded[1:] != padded[:-1]).reshape(-1, 2).tolist()
    return turns
