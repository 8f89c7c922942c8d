"""Segmented text as words with cuts, whichever tool segmented it.

Two formats are read. `pieces`: pieces separated by spaces, where U+2581 begins a word
(`▁cart s ▁of`). `subword-nmt`: a piece that ends in `@@` is continued by the next (`cart@@ s of`).
Unsegmented text is the second format without a cut.

What is evaluated, here and in everything built on it: a *word* is a run of letters and marks, so
punctuation, digits and the word marker beside it are not part of it; a *cut* is a boundary between two
pieces strictly inside a word. So a word's two ends never count, nor does the boundary after a lone marker
(`▁ cart`), nor one between a word and its punctuation (`▁cart .`). Case is kept.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, groupby, islice, pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.text.corpus import read_lines, read_pairs
from dpe.text.formats import JSON_LINES
from dpe.text.words import MARKER

LINES_TO_DETECT = 1000

Cuts = frozenset[int]
"""Offsets inside a word, 1 to length - 1, at which it is cut."""


class CutWord(NamedTuple):
    """A word and its cuts: ("carts", {4})."""

    word: str
    cuts: Cuts

    def __str__(self) -> str:
        """`cart+s`."""
        ends = (0, *sorted(self.cuts), len(self.word))
        return "+".join(self.word[start:end] for start, end in pairwise(ends))


def detect_format(path: Path) -> SegmentedFormat:
    """`pieces` if at least half of the first lines that are not empty have a word marker, else `subword-nmt`.

    Not all need one: a model may leave the first word of a line without it. And one alone proves nothing:
    a text may contain U+2581 itself. Output of `dpe segment` with several segmentations a line, or as JSON,
    is refused.
    """
    lines = [line for line in islice(read_lines(path), LINES_TO_DETECT) if line.strip()]

    def most(answers: Iterable[bool]) -> bool:
        return 2 * sum(answers) >= len(lines) > 0

    if most(line.startswith(JSON_LINES) for line in lines):
        raise UserError(f"{path}: The format is jsonl; write the segmentation with --format pieces.")
    if most(f"\t{MARKER}" in line for line in lines):
        raise UserError(
            f"{path}: Each line has several segmentations; give one a line (`dpe segment` without --mode)."
        )
    return "pieces" if most(MARKER in line for line in lines) else "subword-nmt"


def is_cut(line: str) -> bool:
    """Whether a line has a word marker or a joint, as segmented text has."""
    return MARKER in line or "@@ " in line


def read_pieces(path: Path, format: SegmentedFormat | None = None) -> Iterator[list[str]]:
    """The pieces of each line in either format; the first of each word begins with the marker."""
    return map(_reader(path, format), read_lines(path))


def read_cut_tokens(path: Path, format: SegmentedFormat | None = None) -> Iterator[list[CutWord]]:
    """The tokens of each line between spaces: words with the punctuation beside them.

    The cuts are those inside words all the same: `▁( un do )` gives ((undo), {3}).
    """
    return ([_cut_token(token) for token in _tokens(pieces)] for pieces in read_pieces(path, format))


def words_with_cuts(pieces: Sequence[str]) -> Iterator[CutWord]:
    """The words of one line: `▁talo issa kin .` gives (taloissakin, {4, 8})."""
    return (word for token in _tokens(pieces) for word in _cut_words(token))


def count_words(path: Path) -> Counter[str]:
    """How often each word occurs: from lines `word TAB count`, or from text, segmented or not."""
    if (listed := listed_counts(path)) is not None:
        return listed
    return Counter(word for pieces in read_pieces(path) for word, _ in words_with_cuts(pieces))


def listed_counts(path: Path) -> Counter[str] | None:
    """The words of a list `word TAB count` as they are; None for a text.

    The first line that is not empty decides which it is.
    """
    first = next((line for line in read_lines(path) if line), "")
    if first.count("\t") != 1 or not first.split("\t")[1].isdecimal():
        return None
    counts: Counter[str] = Counter()
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.partition("\t")
        if line and not count.isdecimal():
            raise UserError(f"{path}, line {number}: Expected a word, a tab and a count; correct the line.")
        counts[word] += int(count or 0)
    return counts


def count_marked_words(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs in unsegmented lines that have markers instead of spaces."""
    marked = ([MARKER + word for word in line.split(MARKER) if word] for line in lines)
    return Counter(word for pieces in marked for word, _ in words_with_cuts(pieces))


def read_two_segmentations(
    a: Path, b: Path, format: SegmentedFormat | None = None
) -> Iterator[tuple[list[CutWord], list[CutWord]]]:
    """The words of each line of one text segmented twice, equal except for their cuts.

    The first line on which the texts differ is an error.
    """
    read_a, read_b = _reader(a, format), _reader(b, format)
    for number, pair in enumerate(read_pairs(a, b), start=1):
        left, right = read_a(pair.source or ""), read_b(pair.target)
        if (one := _text(left)) != (other := _text(right)):
            words = zip_longest(one, other, fillvalue="")
            first, second = next(pair for pair in words if pair[0] != pair[1])
            raise UserError(
                f"Line {number} of {a} and of {b} is not the same text ('{first}' against '{second}'); "
                "give two segmentations of the same text."
            )
        yield list(words_with_cuts(left)), list(words_with_cuts(right))


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each run of letters and marks."""
    start = 0
    for is_word, characters in groupby(text, key=_is_letter_or_mark):
        end = start + len(list(characters))
        if is_word:
            yield start, end
        start = end


@cache
def _is_letter_or_mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM"


def _reader(path: Path, format: SegmentedFormat | None) -> Callable[[str], list[str]]:
    """What gives the pieces of a line of this file."""
    return _read_marked if (format or detect_format(path)) == "pieces" else _read_joined


def _read_marked(line: str) -> list[str]:
    """The first piece begins a word, which not every SentencePiece model marks; some mark ends of words."""
    if line.endswith(MARKER) and not line.startswith(MARKER):
        return _marked_at_starts(_split(line))
    return _split(MARKER + line if line and not line.startswith(MARKER) else line)


def _marked_at_starts(pieces: Iterable[str]) -> list[str]:
    """`cart s▁ of▁` as `▁cart s ▁of`."""
    found, begins = [], True
    for piece in pieces:
        if text := piece.removesuffix(MARKER):
            found.append(MARKER * begins + text)
        begins = text != piece
    return found


def _read_joined(line: str) -> list[str]:
    """`cart@@ s of` as `▁cart s ▁of`. Like `sed 's/@@ //g'`, a last `@@` continues nothing."""
    words = _split(line.removesuffix("@@").replace("@@ ", "\n"))  # which no line contains
    return _split(" ".join(MARKER + word.replace("\n", " ") for word in words))


def _split(line: str) -> list[str]:
    """At spaces only: other white space is text."""
    return [part for part in line.split(" ") if part]


def _tokens(pieces: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The pieces of a line, token by token: each begins where a piece begins with the marker."""
    starts = [at for at, piece in enumerate(pieces) if at == 0 or piece.startswith(MARKER)]
    return (tuple(pieces[start:end]) for start, end in pairwise([*starts, len(pieces)]))


@lru_cache(maxsize=1 << 18)  # the same words occur again and again, mostly with the same cuts
def _cut_words(pieces: tuple[str, ...]) -> tuple[CutWord, ...]:
    """As `words_with_cuts`, for the pieces of one token."""
    boundaries = set(accumulate(len(piece) for piece in pieces))
    text = "".join(pieces)
    return tuple(
        CutWord(text[start:end], frozenset(at - start for at in range(start + 1, end) if at in boundaries))
        for start, end in word_spans(text)
    )


@lru_cache(maxsize=1 << 18)
def _cut_token(pieces: tuple[str, ...]) -> CutWord:
    text = "".join(pieces).removeprefix(MARKER)
    words = zip(word_spans(text), _cut_words(pieces), strict=True)
    return CutWord(text, frozenset(start + cut for (start, _), word in words for cut in word.cuts))


def _text(pieces: Sequence[str]) -> list[str]:
    """The words between spaces, whatever the cuts and however many spaces."""
    return _split("".join(pieces).replace(MARKER, " "))
