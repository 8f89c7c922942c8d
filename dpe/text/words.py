"""A marked line and its words: each word begins with U+2581, which stands where a blank was.

No piece crosses the border of a word, so a line is cut word by word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

MARKER = "\u2581"


def split_words(marked: str) -> list[str]:
    """The words of a marked line, each with its marker; joined they are the line.

    No piece crosses their borders: `▁two▁words` -> [`▁two`, `▁words`].
    """
    if not marked:
        return []
    head, *rest = marked.split(MARKER)
    return [head] * bool(head) + [MARKER + word for word in rest]


def piece_offsets(pieces: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Begin and end of each piece in the pieces joined."""
    return tuple(pairwise(accumulate(map(len, pieces), initial=0)))


def pieces_by_word(words: Sequence[str], pieces: Sequence[str]) -> list[list[str]]:
    """The pieces of each word. A run of unknown characters may reach over words, and is parted there."""
    text, offsets, first = "".join(words), piece_offsets(pieces), 0
    result: list[list[str]] = []
    for begin, end in piece_offsets(words):
        parts = []
        while first < len(offsets) and offsets[first][0] < end:
            parts.append(text[max(offsets[first][0], begin) : min(offsets[first][1], end)])
            if offsets[first][1] > end:
                break
            first += 1
        result.append(parts)
    return result
