"""The count-based segmenters: BPE, seeded BPE dropout, longest match, unigram sampling.

All cut the marked form of a line (see `vocabulary.py`) into pieces of one vocabulary, word by word:

    Bpe(vocabulary).cut("two words")                          ->  ["▁two", "▁word", "s"]
    BpeDropout(vocabulary).cut("two words", Draw(line=7))     ->  ["▁t", "wo", "▁word", "s"]

The pieces joined are `vocabulary.normalize(line)`, whatever the characters; a character that is in no piece
stands by itself, and neighbouring ones are joined, as SentencePiece does.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Generic, NamedTuple, Protocol, TypeVar

from dpe.errors import UserError
from dpe.text.merging import MergingWord, draw_survivals, merge
from dpe.text.vocabulary import Vocabulary, VocabularyType, split_words

DROPOUT = 0.05  # the paper's
METHODS = ("bpe", "bpe-dropout", "longest-match", "unigram")
# SentencePiece's unigram models rate an unknown character this far below their worst piece.
_UNKNOWN_PENALTY = 10.0
_LARGEST_N_BEST = 512  # SentencePiece's limit
_LARGEST_ALPHA = 1e6  # already the best cut in all but exact ties, and far from overflow
_CACHED_WORDS, _LONGEST_CACHED = 1 << 15, 64  # tens of megabytes

T = TypeVar("T")


class Draw(NamedTuple):
    """What a random cut depends on besides the text; nothing else does (order, batches, processes).

    Two sides of a corpus that share all three share their random numbers: give each side its own seed.
    """

    seed: int = 1
    epoch: int = 0
    line: int = 0

    def generator(self) -> random.Random:
        return random.Random(f"{self.seed} {self.epoch} {self.line}")


class CountSegmenter(Protocol):
    """Cuts a line into pieces as written; their concatenation is the normalised line."""

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]: ...


class OwnCut:
    """The vocabulary's own cut, which is SentencePiece's: BPE, or the best one of a unigram model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        return self._vocabulary.encode(line)


class Bpe(OwnCut):
    """The own cut of a vocabulary that has to be a BPE model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        _require("bpe", vocabulary, "bpe")
        super().__init__(vocabulary)


class BpeDropout:
    """BPE dropout (Provilkov et al. 2020): every step drops each possible merge with probability `dropout`.

    A step applies the best merge that is not dropped (lowest rank, then leftmost); a word is finished when
    a step has none. `merging.py` says how; a word that no drop meets has its plain cut, which is remembered.
    """

    def __init__(self, vocabulary: Vocabulary, *, dropout: float = DROPOUT) -> None:
        _require("bpe-dropout", vocabulary, "bpe")
        if not 0 <= dropout <= 1:
            raise UserError(f"The dropout is {dropout}; give a probability from 0 to 1.")
        self._vocabulary, self._dropout = vocabulary, dropout
        self._ranks = vocabulary.ranks
        self._words = _WordCache(self._analyse)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        marked = self._vocabulary.normalize(line)
        survivals = draw_survivals(self._dropout, draw.generator())
        pieces: list[str] = []
        until_drop = survivals()  # merges that survive before the next one that is dropped
        for text in split_words(marked):
            word = self._words[text]
            if word.merges <= until_drop:
                until_drop -= word.merges
                pieces += word.plain
            else:
                cut, until_drop = merge(word, self._ranks, until_drop=until_drop, survivals=survivals)
                pieces += cut
        return _join_unknown(self._vocabulary, marked, pieces)

    def _analyse(self, text: str) -> MergingWord:
        symbols: list[str] = []
        solid: list[int] = []
        for part, protected in _parts(self._vocabulary, text):
            solid += [len(symbols)] * protected
            symbols += [part] if protected else part
        return MergingWord.start(symbols, frozenset(solid), self._ranks)


class LongestMatch:
    """WordPiece's greedy cut: at every place the longest piece that matches."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lengths = sorted({len(piece) for piece in vocabulary.ids}, reverse=True)
        self._words = _WordCache(self._cut_word)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        marked = self._vocabulary.normalize(line)
        pieces = [piece for word in split_words(marked) for piece in self._words[word]]
        return _join_unknown(self._vocabulary, marked, pieces)

    def _cut_word(self, word: str) -> tuple[str, ...]:
        pieces: list[str] = []
        for part, protected in _parts(self._vocabulary, word):
            pieces += [part] if protected else self._cut_part(part)
        return tuple(pieces)

    def _cut_part(self, part: str) -> Iterator[str]:
        ids, start = self._vocabulary.ids, 0
        while start < len(part):
            matches = (part[start : start + length] for length in self._lengths)
            piece = next((match for match in matches if match in ids), part[start])
            yield piece
            start += len(piece)


class _Choice(NamedTuple):
    """The pieces that may end at one place: where they start, and their weights summed up."""

    starts: Sequence[int]
    cumulative: Sequence[float]


class _Part(NamedTuple):
    """A stretch of a word and the choice at every end in it, none if it is protected."""

    text: str
    choices: Sequence[_Choice]


class Unigram:
    """Subword regularisation (Kudo 2018): the best cut, or with `alpha` a draw.

    A cut's probability is proportional to exp(alpha * sum of its piece scores), among SentencePiece's
    `nbest` best cuts of the line, or among all cuts when `nbest` is not positive.
    """

    def __init__(self, vocabulary: Vocabulary, *, alpha: float | None = None, nbest: int = -1) -> None:
        _require("unigram", vocabulary, "unigram")
        if alpha is not None and not 0 <= alpha <= _LARGEST_ALPHA:
            raise UserError(
                f"Alpha is {alpha}; give a number from 0 (every cut alike) to {_LARGEST_ALPHA:g}."
            )
        if nbest > _LARGEST_N_BEST:
            raise UserError(
                f"SentencePiece lists {_LARGEST_N_BEST} best cuts at most; give that or -1 for all."
            )
        self._vocabulary, self._alpha, self._nbest = vocabulary, alpha, nbest
        self._unknown = min(vocabulary.scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._words = _WordCache(self._analyse)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        if self._alpha is None or self._nbest == 1:
            return self._vocabulary.encode(line)
        generator = draw.generator()
        if self._nbest > 1:
            return self._draw_from_n_best(line, self._alpha, generator)
        marked = self._vocabulary.normalize(line)
        pieces: list[str] = []
        for word in split_words(marked):
            for part in self._words[word]:
                pieces += _sample_backward(part, generator)
        return _join_unknown(self._vocabulary, marked, pieces)

    def _draw_from_n_best(self, line: str, alpha: float, generator: random.Random) -> list[str]:
        cuts = self._vocabulary.n_best_encode(line, n=self._nbest)
        scores = [alpha * sum(map(self._score, cut)) for cut in cuts]
        best = max(scores)
        return generator.choices(cuts, [math.exp(score - best) for score in scores])[0]

    def _score(self, piece: str) -> float:
        """Score of a piece as written; one that is no piece is a run of unknown characters."""
        score = self._vocabulary.scores.get(piece)
        return self._unknown * len(piece) if score is None else score

    def _analyse(self, word: str) -> list[_Part]:
        parts = _parts(self._vocabulary, word)
        return [_Part(text, [] if protected else self._forward(text)) for text, protected in parts]

    def _forward(self, text: str) -> list[_Choice]:
        """For every end the choice of the last piece, weighted by all cuts of what stands before it."""
        totals = [0.0]  # log of the summed weight of all cuts up to here
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
        scores, alpha = self._vocabulary.scores, self._alpha or 0.0
        for start in range(max(0, end - self._vocabulary.max_span), end):
            score = scores.get(text[start:end])
            if score is None and start == end - 1:
                score = self._unknown
            if score is not None:
                yield start, totals[start] + alpha * score


def _sample_backward(part: _Part, generator: random.Random) -> list[str]:
    """Draw a cut from its last piece to its first."""
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


def make_segmenter(
    method: str,
    vocabulary: Vocabulary,
    *,
    dropout: float = DROPOUT,
    alpha: float | None = None,
    nbest: int = -1,
) -> CountSegmenter:
    """The segmenter of that name, one of `METHODS`; options of the other methods are ignored."""
    match method:
        case "bpe":
            return Bpe(vocabulary)
        case "bpe-dropout":
            return BpeDropout(vocabulary, dropout=dropout)
        case "longest-match":
            return LongestMatch(vocabulary)
        case "unigram":
            return Unigram(vocabulary, alpha=alpha, nbest=nbest)
    raise UserError(f"There is no method {method!r}; choose one of {', '.join(METHODS)}.")


def _require(method: str, vocabulary: Vocabulary, needed: VocabularyType) -> None:
    if vocabulary.type != needed:
        raise UserError(
            f"The method {method} needs a {needed} vocabulary and this one is {vocabulary.type}; "
            f"learn one with --type {needed} or choose another method."
        )


def _parts(vocabulary: Vocabulary, word: str) -> Iterator[tuple[str, bool]]:
    """The word's protected strings (true) and what stands between them (false), from the left."""
    start = 0
    for begin, end in vocabulary.protected_spans(word):
        if start < begin:
            yield word[start:begin], False
        yield word[begin:end], True
        start = end
    if start < len(word):
        yield word[start:], False


def _join_unknown(vocabulary: Vocabulary, marked: str, pieces: list[str]) -> list[str]:
    """Neighbouring unknown characters as one, all over the line."""
    ids = vocabulary.ids
    if all(map(ids.__contains__, set(marked))):
        return pieces
    joined: list[str] = []
    for known, run in groupby(pieces, ids.__contains__):
        joined.extend(run if known else ["".join(run)])  # noqa: B031
    return joined


class _WordCache(dict[str, T], Generic[T]):
    """What `make` says of a word, remembered; bounded, and without the giant words."""

    def __init__(self, make: Callable[[str], T]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> T:
        value = self._make(word)
        if len(word) <= _LONGEST_CACHED:
            if len(self) >= _CACHED_WORDS:
                self.clear()
            self[word] = value
        return value
