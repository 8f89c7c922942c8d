"""Exact draws among all segmentations, by forward-backward over words: unigram (Kudo 2018), or uniform."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from dpe.errors import UserError
from dpe.text.draws import Draw
from dpe.text.words import WordCache

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

_LARGEST_N_BEST = 512  # SentencePiece's limit
_LARGEST_ALPHA = 1e6  # already the best segmentation except in exact ties, and far from overflow


class _Choice(NamedTuple):
    """The pieces that may end at one position: where they start, and their weights summed up."""

    starts: Sequence[int]
    cumulative: Sequence[float]


class _Part(NamedTuple):
    """A part of a word and the choice at every end in it; no choices if it is protected."""

    text: str
    choices: Sequence[_Choice]


class Sampler:
    """Draws a segmentation with a probability proportional to exp(sum of its pieces' weights)."""

    def __init__(self, vocabulary: Vocabulary, weights: Mapping[str, float], *, unknown: float) -> None:
        """Weights of all pieces that match text; `unknown` is that of a character without a piece."""
        self._vocabulary, self._weights, self._unknown = vocabulary, weights, unknown
        self._words = WordCache(self._analyse)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        generator = draw.generator()
        marked = self._vocabulary.normalize(line)
        pieces: list[str] = []
        for word in self._vocabulary.words(marked):
            for part in self._words[word]:
                pieces += _sample_backward(part, generator)
        return self._vocabulary.write_unknown(marked, pieces)

    def _analyse(self, word: str) -> list[_Part]:
        parts = self._vocabulary.word_parts(word)
        return [_Part(text, [] if protected else self._forward(text)) for text, protected in parts]

    def _forward(self, text: str) -> list[_Choice]:
        """For every end the choice of the last piece, weighted by all segmentations of the text before it."""
        totals = [0.0]  # log of the summed weight of all segmentations up to here
        choices = []
        for end in range(1, len(text) + 1):
            starts, weights = zip(*self._edges_into(text, end, totals), strict=True)
            best = max(weights)
            cumulative = list(accumulate(math.exp(weight - best) for weight in weights))
            totals.append(best + math.log(cumulative[-1]))
            choices.append(_Choice(starts, cumulative))
        return choices

    def _edges_into(self, text: str, end: int, totals: list[float]) -> Iterator[tuple[int, float]]:
        """Start and log-weight of every piece that ends at `end`; a character without a piece is unknown."""
        for start in range(max(0, end - self._vocabulary.max_span), end):
            weight = self._weights.get(text[start:end])
            if weight is None and start == end - 1:
                weight = self._unknown
            if weight is not None:
                yield start, totals[start] + weight


def uniform(vocabulary: Vocabulary, *, skew: float = 0.0) -> Sampler:
    """Every segmentation is as probable as any other; with `skew` one of n pieces has weight exp(-skew * n).

    An unknown character counts as a piece, though neighbouring ones are written as one.
    """
    if not 0 <= skew <= _LARGEST_ALPHA:
        raise UserError(f"The skew must be from 0 (uniform) to {_LARGEST_ALPHA:g}, got {skew}.")
    return Sampler(vocabulary, dict.fromkeys(vocabulary.ids, -skew), unknown=-skew)


class Unigram:
    """The best segmentation of a unigram model, or with `alpha` a draw.

    The probability of a segmentation is proportional to exp(alpha * sum of its piece scores), among
    SentencePiece's `nbest` best ones of the line, or among all of them when `nbest` is not positive.
    """

    def __init__(self, vocabulary: Vocabulary, *, alpha: float | None = None, nbest: int = -1) -> None:
        vocabulary.require("unigram", "unigram")
        if alpha is not None and not 0 <= alpha <= _LARGEST_ALPHA:
            raise UserError(f"Alpha must be from 0 (uniform) to {_LARGEST_ALPHA:g}, got {alpha}.")
        if nbest > _LARGEST_N_BEST:
            raise UserError(f"nbest must be at most {_LARGEST_N_BEST}, or -1 for all, got {nbest}.")
        self._vocabulary, self._alpha, self._nbest = vocabulary, alpha, nbest
        self._unknown = vocabulary.unknown_score
        factor = alpha or 0.0  # without alpha nothing is drawn
        weights = {piece: factor * score for piece, score in vocabulary.scores.items()}
        self._sampler = Sampler(vocabulary, weights, unknown=factor * self._unknown)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        if self._alpha is None or self._nbest == 1:
            return self._vocabulary.encode(line)
        if self._nbest > 1:
            return self._draw_from_n_best(line, self._alpha, draw.generator())
        return self._sampler.cut(line, draw)

    def _draw_from_n_best(self, line: str, alpha: float, generator: random.Random) -> list[str]:
        known, unknown = self._vocabulary.scores, self._unknown
        candidates = self._vocabulary.n_best_encode(line, n=self._nbest)
        # What is written and not a piece is a run of unknown characters, or a byte of one.
        surfaces = self._vocabulary.surfaces
        scores = [
            alpha * sum(known.get(p, unknown * len(s)) for p, s in zip(pieces, surfaces(pieces), strict=True))
            for pieces in candidates
        ]
        best = max(scores)
        return generator.choices(candidates, [math.exp(score - best) for score in scores])[0]


def _sample_backward(part: _Part, generator: random.Random) -> list[str]:
    """Draw the pieces of a part, from the last to the first."""
    if not part.choices:
        return [part.text]
    pieces, end = [], len(part.text)
    while end:
        starts, cumulative = part.choices[end - 1]
        threshold = generator.random() * cumulative[-1]
        start = starts[bisect(cumulative, threshold, 0, len(cumulative) - 1)]
        pieces.append(part.text[start:end])
        end = start
    return pieces[::-1]
