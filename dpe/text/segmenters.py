"""The count-based segmenters: BPE, BPE dropout, longest match, unigram and uniform sampling.

All segment the marked form of a line (see `vocabulary.py`) into pieces of one vocabulary, word by word:

    OwnCut(vocabulary).cut("two words")                       ->  ["▁two", "▁word", "s"]
    BpeDropout(vocabulary).cut("two words", Draw(line=7))     ->  ["▁t", "wo", "▁word", "s"]

The joined pieces are `vocabulary.normalize(line)`, whatever the characters; a character that is in no piece
stands by itself, and neighbouring ones are joined, as SentencePiece does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, get_args

from dpe.choices import CountMethod, VocabularyType
from dpe.errors import UserError, refuse
from dpe.text.bpe import DROPOUT, BpeDropout
from dpe.text.draws import Draw
from dpe.text.unigram import Unigram, uniform
from dpe.text.words import WordCache

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

METHODS = get_args(CountMethod)
SOURCE_ALPHA = 0.2  # of sources, where a unigram vocabulary has no merges to drop


class CountSegmenter(Protocol):
    """Segments a line into pieces as written; joined, they are the normalised line."""

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]: ...


class OwnCut:
    """The vocabulary's own segmentation, which is SentencePiece's: BPE, or the best of a unigram model."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        return self._vocabulary.encode(line)


class LongestMatch:
    """WordPiece's greedy segmentation: at every position the longest piece that matches."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._lengths = sorted({len(piece) for piece in vocabulary.ids}, reverse=True)
        self._words = WordCache(self._segment_word)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        marked = self._vocabulary.normalize(line)
        pieces = [piece for word in self._vocabulary.words(marked) for piece in self._words[word]]
        return self._vocabulary.write_unknown(marked, pieces)

    def _segment_word(self, word: str) -> tuple[str, ...]:
        pieces: list[str] = []
        for part, protected in self._vocabulary.word_parts(word):
            pieces += [part] if protected else self._longest_pieces(part)
        return tuple(pieces)

    def _longest_pieces(self, part: str) -> Iterator[str]:
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
    skew: float = 0.0,
) -> CountSegmenter:
    """The segmenter of that name, one of `METHODS`; options of the other methods are ignored."""
    match method:
        case "bpe":
            vocabulary.require("bpe", method)
            return OwnCut(vocabulary)
        case "bpe-dropout":
            return BpeDropout(vocabulary, dropout=dropout)
        case "longest-match":
            return LongestMatch(vocabulary)
        case "unigram":
            return Unigram(vocabulary, alpha=alpha, nbest=nbest)
        case "uniform":
            return uniform(vocabulary, skew=skew)
    raise UserError(f"Unknown method {method!r}; choose one of {', '.join(METHODS)}.")


def source_segmenter(
    vocabulary: Vocabulary, dropout: float = 0.0, alpha: float | None = None
) -> CountSegmenter:
    """How a source is segmented: by BPE dropout, sampled from a unigram, or by the vocabulary itself."""
    refuse(
        (
            alpha is not None and vocabulary.type != "unigram",
            f"source_alpha samples from a unigram vocabulary, but this one is {vocabulary.type}; "
            "leave it out, or choose source_dropout.",
        ),
        (
            dropout != 0 and vocabulary.type != "bpe",
            f"source_dropout needs a bpe vocabulary, but this one is {vocabulary.type}; "
            "leave it out, or choose source_alpha.",
        ),
    )
    if alpha is not None:
        return Unigram(vocabulary, alpha=alpha)
    return BpeDropout(vocabulary, dropout=dropout) if dropout else OwnCut(vocabulary)


def source_noise(type: VocabularyType, dropout: float, alpha: float | None) -> tuple[float, float | None]:
    """Dropout and alpha of sources that are drawn for a training, whatever the type of its vocabulary.

    A unigram vocabulary has no merges to drop: unless dropout is 0, its sources are sampled instead.
    """
    if type == "bpe":
        return dropout, alpha
    return 0.0, SOURCE_ALPHA if alpha is None and dropout else alpha
