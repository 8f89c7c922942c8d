"""What segmenters that cut word by word share: protected parts, unknown characters, remembered words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Generic, TypeVar

from dpe.choices import VocabularyType
from dpe.errors import UserError
from dpe.text.vocabulary import Vocabulary

_CACHED_WORDS, _LONGEST_CACHED = 1 << 15, 64  # tens of megabytes

T = TypeVar("T")


def require_type(method: str, vocabulary: Vocabulary, needed: VocabularyType) -> None:
    """Refuse a vocabulary that a method cannot cut with."""
    if vocabulary.type != needed:
        raise UserError(
            f"The method {method} needs a {needed} vocabulary and this one is {vocabulary.type}; "
            f"learn one with --type {needed} or choose another method."
        )


def word_parts(vocabulary: Vocabulary, word: str) -> Iterator[tuple[str, bool]]:
    """The word's protected strings (true) and what stands between them (false), from the left."""
    start = 0
    for begin, end in vocabulary.protected_spans(word):
        if start < begin:
            yield word[start:begin], False
        yield word[begin:end], True
        start = end
    if start < len(word):
        yield word[start:], False


def join_unknown(vocabulary: Vocabulary, marked: str, pieces: list[str]) -> list[str]:
    """Neighbouring unknown characters as one, all over the line, unless together they would be a piece."""
    ids = vocabulary.ids
    if all(map(ids.__contains__, set(marked))):
        return pieces
    joined: list[str] = []
    for known, run in groupby(pieces, ids.__contains__):
        parts = list(run)
        surface = "".join(parts)
        joined.extend(parts if known or surface in ids else [surface])
    return joined


class WordCache(dict[str, T], Generic[T]):
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
