"""Text as SentencePiece sees it: a line is checked to be text, and its marked form is split into words.

A marked line has the word marker U+2581 where a space was, so each word begins with it (or ends with it, in
some models). No piece crosses a word boundary: everything here is segmented word by word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Generic, TypeVar

from dpe.errors import UserError

MARKER = "\u2581"
SPECIAL_PIECES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
_CACHED_WORDS, _LONGEST_CACHED = 1 << 15, 64  # tens of megabytes

T = TypeVar("T")


def checked_text(line: object) -> str:
    """Refuse anything but a string, and strings that UTF-8 cannot encode, which crash SentencePiece."""
    if not isinstance(line, str):
        raise UserError(f"A line must be a string, not {type(line).__name__}: {str(line)[:60]}.")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        message = f"{line[:60]!r} contains half of a surrogate pair, which is not text; remove it."
        raise UserError(message) from error
    return line


def split_words(marked: str, *, at_ends: bool = False) -> list[str]:
    """The words of a marked line, each with its marker; joined they are the line.

    `▁two▁words` -> [`▁two`, `▁words`], and with markers `at_ends`: `two▁words▁` -> [`two▁`, `words▁`].
    """
    if not marked:
        return []
    if at_ends:
        *rest, tail = marked.split(MARKER)
        return [word + MARKER for word in rest] + [tail] * bool(tail)
    head, *rest = marked.split(MARKER)
    return [head] * bool(head) + [MARKER + word for word in rest]


def byte_piece(byte: int) -> str:
    """How a SentencePiece model with byte fallback writes a byte of a character that it has no piece for."""
    return f"<0x{byte:02X}>"


def surfaces(pieces: Iterable[str], byte_pieces: Collection[str]) -> list[str]:
    """The text that each piece stands for; of a character's bytes the last has it and the others nothing.

    `<0xE2> <0x98> <0x83> s` -> ["", "", "☃", "s"]. A byte that is part of no character is U+FFFD.
    """
    found: list[str] = []
    for is_byte, run in groupby(pieces, byte_pieces.__contains__):
        parts = list(run)
        found += _characters_of(bytes(int(part[3:5], 16) for part in parts)) if is_byte else parts
    return found


def _characters_of(content: bytes) -> Iterable[str]:
    """One string per byte: a character at its last byte, nothing at those before."""
    begin = 0
    while begin < len(content):
        for end in range(begin + 1, min(begin + 4, len(content)) + 1):
            try:
                character = content[begin:end].decode()
            except UnicodeDecodeError:
                continue
            yield from [""] * (end - begin - 1)
            yield character
            break
        else:
            end = begin + 1
            yield "\ufffd"
        begin = end


def piece_offsets(pieces: Iterable[str]) -> tuple[tuple[int, int], ...]:
    """Start and end of each piece in the joined pieces."""
    return tuple(pairwise(accumulate(map(len, pieces), initial=0)))


def pieces_by_word(
    words: Sequence[str], pieces: Sequence[str], byte_pieces: Collection[str] = ()
) -> list[list[str]]:
    """The pieces of each word; a run of unknown characters that reaches over words is split between them.

    Bytes are written as the character that they make.
    """
    shown = [surface for surface in surfaces(pieces, byte_pieces) if surface]
    text, offsets, first = "".join(words), piece_offsets(shown), 0
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


class WordCache(dict[str, T], Generic[T]):
    """The result of `make` for each word, remembered; bounded in size, and long words are not kept."""

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
