"""Typing errors in a text, drawn by a seed: how well does a system translate what it was not trained on?

Each letter of a word is edited with the same probability: swapped with the next one, dropped, replaced, or
another one is inserted behind it. New letters are drawn from those of the line, so its errors depend on the
rate, the seed, its number and itself only. All that is not a letter stays, and so does the number of words. A
letter is a code point with the marks that follow it.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dpe.evaluation.segmented_text import word_spans
from dpe.text.draws import EDIT_STREAM, generator


def add_noise(lines: Iterable[str], *, rate: float, seed: int) -> Iterator[str]:
    """Edit every letter of these lines with probability `rate`."""
    return (
        _edited_line(line, rate, generator(EDIT_STREAM, seed, number)) for number, line in enumerate(lines)
    )


def _edited_line(line: str, rate: float, random: np.random.Generator) -> str:
    spans = list(word_spans(line))
    words = [_letters(line[start:end]) for start, end in spans]
    alphabet = sorted({letter for word in words for letter in word})
    parts, last = [], 0
    for (start, end), word in zip(spans, words, strict=True):
        parts += [line[last:start], *_edited_word(word, alphabet, rate, random)]
        last = end
    return "".join([*parts, line[last:]])


def _letters(word: str) -> list[str]:
    """Each with its marks."""
    found: list[str] = []
    for character in word:
        if found and unicodedata.category(character)[0] == "M":
            found[-1] += character
        else:
            found.append(character)
    return found


def _edited_word(
    word: Iterable[str], alphabet: Sequence[str], rate: float, random: np.random.Generator
) -> list[str]:
    edited: list[str] = []
    rest = deque(word)
    while rest:
        edited.append(rest.popleft())
        if random.random() < rate:
            _edit_last(edited, rest, alphabet, random)
    return edited


def _edit_last(
    edited: list[str], rest: deque[str], alphabet: Sequence[str], random: np.random.Generator
) -> None:
    """Edit the last letter of `edited`, in one of the ways that change the word and leave one."""
    letter = edited[-1]
    possible = {
        "insert": True,
        "replace": len(alphabet) > 1,
        "drop": len(edited) > 1 or bool(rest),
        "swap": bool(rest) and rest[0] != letter,
    }
    way = _one_of([way for way, is_possible in possible.items() if is_possible], random)
    if way == "insert":
        edited.append(_one_of(alphabet, random))
    elif way == "drop":
        edited.pop()
    elif way == "swap":
        edited.insert(-1, rest.popleft())
    else:
        while edited[-1] == letter:
            edited[-1] = _one_of(alphabet, random)


def _one_of(values: Sequence[str], random: np.random.Generator) -> str:
    return values[int(random.integers(len(values)))]
