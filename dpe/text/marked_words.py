"""A marked line and its words: each word begins with U+2581, which stands where a blank was.

No piece crosses the border of a word, so a line is cut word by word.
"""

from __future__ import annotations

MARKER = "\u2581"


def split_words(marked: str) -> list[str]:
    """The words of a marked line, each with its marker; joined they are the line.

    No piece crosses their borders: `▁two▁words` -> [`▁two`, `▁words`].
    """
    if not marked:
        return []
    head, *rest = marked.split(MARKER)
    return [head] * bool(head) + [MARKER + word for word in rest]
