"""The count-based segmenters: BPE, seeded BPE dropout, longest match, unigram sampling.

All cut the marked form of a line (see `vocabulary.py`) into pieces of one vocabulary, word by word:

    Bpe(vocabulary).cut("two words")                          ->  ["▁two", "▁word", "s"]
    BpeDropout(vocabulary).cut("two words", Draw(line=7))     ->  ["▁t", "wo", "▁word", "s"]

The pieces joined are `vocabulary.normalize(line)`, whatever the characters; a character that is in no piece
stands by itself, and neighbouring ones are joined, as SentencePiece does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, get_args

from dpe.choices import CountMethod
from dpe.errors import UserError
from dpe.text.bpe import MergingWord, draw_survivals, merge
from dpe.text.draws import Draw
from dpe.text.unigram import Unigram
from dpe.text.vocabulary import Vocabulary
from dpe.text.word_cuts import WordCache, join_unknown, require_type, word_parts
from dpe.text.words import split_words

DROPOUT = 0.05  # the paper's
METHODS = get_args(CountMethod)


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
        require_type("bpe", vocabulary, "bpe")
        super().__init__(vocabulary)


class BpeDropout:
    """BPE dropout (Provilkov et al. 2020): every step drops each possible merge with probability `dropout`.

    A step applies the best merge that is not dropped (lowest rank, then leftmost); a word is finished when
    a step has none. `merging.py` says how; a word that no drop meets has its plain cut, which is remembered.
    """

    def __init__(self, vocabulary: Vocabulary, *, dropout: float = DROPOUT) -> None:
        require_type("bpe-dropout", vocabulary, "bpe")
        _refuse_no_probability(dropout)
        self._vocabulary, self._dropout = vocabulary, dropout
        self._ranks = vocabulary.ranks
        self._words = WordCache(self._analyse)

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
        return join_unknown(self._vocabulary, marked, pieces)

    def _analyse(self, text: str) -> MergingWord:
        symbols: list[str] = []
        solid: list[int] = []
        for part, protected in word_parts(self._vocabulary, text):
            solid += [len(symbols)] * protected
            symbols += [part] if protected else part
        return MergingWord.start(symbols, frozenset(solid), self._ranks)


class LongestMatch:
    """WordPiece's greedy cut: at every place the longest piece that matches."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lengths = sorted({len(piece) for piece in vocabulary.ids}, reverse=True)
        self._words = WordCache(self._cut_word)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        marked = self._vocabulary.normalize(line)
        pieces = [piece for word in split_words(marked) for piece in self._words[word]]
        return join_unknown(self._vocabulary, marked, pieces)

    def _cut_word(self, word: str) -> tuple[str, ...]:
        pieces: list[str] = []
        for part, protected in word_parts(self._vocabulary, word):
            pieces += [part] if protected else self._cut_part(part)
        return tuple(pieces)

    def _cut_part(self, part: str) -> Iterator[str]:
        ids, start = self._vocabulary.ids, 0
        while start < len(part):
            matches = (part[start : start + length] for length in self._lengths)
            piece = next((match for match in matches if match in ids), part[start])
            yield piece
            start += len(piece)


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


def source_segmenter(vocabulary: Vocabulary, dropout: float) -> CountSegmenter:
    """How a source is cut: BPE dropout, or the vocabulary's own cut when there is none."""
    _refuse_no_probability(dropout)
    if dropout > 0 and vocabulary.type != "bpe":
        raise UserError(
            f"A {vocabulary.type} vocabulary has no merges to drop; cut the source without dropout "
            "(--source-dropout 0, in a recipe segmenter.source_dropout = 0)."
        )
    return BpeDropout(vocabulary, dropout=dropout) if dropout > 0 else OwnCut(vocabulary)


def _refuse_no_probability(dropout: float) -> None:
    if not 0 <= dropout <= 1:
        raise UserError(f"The dropout is {dropout}; give a probability from 0 to 1.")
