"""Segmented text as words with cuts, whoever segmented it.

Two formats are read. `pieces`: pieces separated by blanks, where U+2581 begins a word
(`▁cart s ▁of`). `subword-nmt`: a piece that ends in `@@` is continued by the next (`cart@@ s of`).
Text that is not segmented at all is the second format without a cut.

What is evaluated, here and in everything built on it: a *word* is a run of letters and marks, so
punctuation, digits and the word marker beside it are no part of it; a *cut* is a boundary between two
pieces strictly inside a word. So a word's two ends never count, nor does the cut after a lone marker
(`▁ cart`), nor one between a word and its punctuation (`▁cart .`). Case is kept.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, groupby, islice, pairwise, zip_longest
from pathlib import Path
from typing import NamedTuple

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.text.corpus import read_lines
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
        return "+".join(self.morphs)

    @property
    def morphs(self) -> tuple[str, ...]:
        """The word's parts: ("cart", "s")."""
        ends = (0, *sorted(self.cuts), len(self.word))
        return tuple(self.word[start:end] for start, end in pairwise(ends))


def detect_format(path: Path) -> SegmentedFormat:
    """`pieces` if at least half of the first lines that are not empty have a word marker, else `subword-nmt`.

    Not all need to: a model may leave the first word of a line without one. And one alone says nothing: a
    text may have U+2581 of its own. What `dpe segment` writes of several cuts, or as JSON, is refused.
    """
    lines = [line for line in islice(read_lines(path), LINES_TO_DETECT) if line.strip()]
    if _most(line.startswith(JSON_LINES) for line in lines):
        raise UserError(f"{path}: is in the format jsonl; give the same cuts as --format pieces.")
    if _most(f"\t{MARKER}" in line for line in lines):
        raise UserError(f"{path}: has several cuts of each line; give one (`dpe segment` without --mode).")
    return "pieces" if _most(MARKER in line for line in lines) else "subword-nmt"


def has_cuts(path: Path) -> bool:
    """Whether any of the first lines looks segmented."""
    return any(map(is_cut, islice(read_lines(path), LINES_TO_DETECT)))


def is_cut(line: str) -> bool:
    """Whether a line has a word marker or a joint, as segmented text has."""
    return MARKER in line or "@@ " in line


def _most(answers: Iterable[bool]) -> bool:
    """Whether at least half are true, and there are any."""
    known = list(answers)
    return 2 * sum(known) >= len(known) > 0


def read_pieces(path: Path, format: SegmentedFormat | None = None) -> Iterator[list[str]]:
    """The pieces of each line, each word's first begun by the marker, in either format."""
    return (_split(line) for line in _marked_lines(path, format))


def read_cut_words(path: Path) -> Iterator[list[CutWord]]:
    """The words of each line with their cuts, in whichever format it is."""
    return (list(words_with_cuts(pieces)) for pieces in read_pieces(path))


def read_cut_tokens(path: Path, format: SegmentedFormat | None = None) -> Iterator[list[CutWord]]:
    """As `read_cut_words`, for what stands between blanks: words with the punctuation beside them.

    The cuts are the same, those inside words: `▁( un do )` gives ((undo), {3}).
    """
    return ([_cut_token(group) for group in _tokens(pieces)] for pieces in read_pieces(path, format))


def words_with_cuts(pieces: Sequence[str]) -> Iterator[CutWord]:
    """The words of one line: `▁talo issa kin .` gives (taloissakin, {4, 8})."""
    return (word for group in _tokens(pieces) for word in _cut_words(group))


def count_words(path: Path) -> Counter[str]:
    """How often each word occurs: from lines `word TAB count`, or from text, segmented or not.

    The first line that is not empty tells which. A word of a list is taken as it stands.
    """
    first = next((line for line in read_lines(path) if line), "")
    if first.count("\t") != 1 or not first.split("\t")[1].isdecimal():
        return Counter(word for words in read_cut_words(path) for word, _ in words)
    counts: Counter[str] = Counter()
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.partition("\t")
        if line and not count.isdecimal():
            raise UserError(f"{path}, line {number}: is not a word, a tab and a count; mend or remove it.")
        counts[word] += int(count or 0)
    return counts


def count_marked_words(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs in lines that are not segmented and have markers for blanks."""
    marked = ([MARKER + word for word in line.split(MARKER) if word] for line in lines)
    return Counter(word for pieces in marked for word, _ in words_with_cuts(pieces))


class LinePair(NamedTuple):
    """One line segmented twice: words of one side and the other, in the same order, equal but for cuts."""

    a: list[CutWord]
    b: list[CutWord]


def read_two_segmentations(a: Path, b: Path, format: SegmentedFormat | None = None) -> Iterator[LinePair]:
    """Two segmentations of one text, line by line; the first line on which the texts differ is an error."""
    rows = zip_longest(_marked_lines(a, format), _marked_lines(b, format))
    for number, (left, right) in enumerate(rows, start=1):
        if left is None or right is None:
            short, long = (a, b) if left is None else (b, a)
            raise UserError(
                f"{short} ends after {number - 1} lines but {long} goes on; "
                "give two segmentations of the same text."
            )
        if _text(left) != _text(right):
            raise UserError(
                f"Line {number} of {a} and of {b} is not the same text ({_first_difference(left, right)}); "
                "give two segmentations of the same text."
            )
        yield LinePair(*(list(words_with_cuts(_split(line))) for line in (left, right)))


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


def _marked_lines(path: Path, format: SegmentedFormat | None) -> Iterator[str]:
    """Lines in the `pieces` format."""
    found = format or detect_format(path)
    mark = _begun if found == "pieces" else _marked
    return (mark(line) for line in read_lines(path))


def _begun(line: str) -> str:
    """A line whose first piece begins a word, which not every SentencePiece model marks."""
    return MARKER + line if line and not line.startswith(MARKER) else line


def _marked(line: str) -> str:
    """`cart@@ s of` as `▁cart s ▁of`. Like `sed 's/@@ //g'`, a last `@@` continues nothing."""
    words = _split(line.removesuffix("@@").replace("@@ ", "\n"))  # which no line contains
    return " ".join(MARKER + word.replace("\n", " ") for word in words)


def _split(line: str) -> list[str]:
    """At blanks only: other white space is text."""
    return [part for part in line.split(" ") if part]


def _tokens(pieces: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The pieces of a line, token by token: each begins where a piece begins with the marker."""
    starts = [at for at, piece in enumerate(pieces) if at == 0 or piece.startswith(MARKER)]
    return (tuple(pieces[start:end]) for start, end in pairwise([*starts, len(pieces)]))


@lru_cache(maxsize=1 << 18)  # the same words come again and again, mostly cut alike
def _cut_words(pieces: tuple[str, ...]) -> tuple[CutWord, ...]:
    """As `words_with_cuts`, for pieces of which only the first may start at a blank."""
    boundaries = set(accumulate(len(piece) for piece in pieces))
    text = "".join(pieces)
    return tuple(
        CutWord(text[start:end], frozenset(at - start for at in range(start + 1, end) if at in boundaries))
        for start, end in word_spans(text)
    )


@lru_cache(maxsize=1 << 18)
def _cut_token(pieces: tuple[str, ...]) -> CutWord:
    text = "".join(pieces).removeprefix(MARKER)
    cuts = [
        start + cut
        for (start, _), word in zip(word_spans(text), _cut_words(pieces), strict=True)
        for cut in word.cuts
    ]
    return CutWord(text, frozenset(cuts))


def _text(marked_line: str) -> list[str]:
    """The words between blanks, whatever the cuts and however many blanks."""
    return _split(marked_line.replace(" ", "").replace(MARKER, " "))


def _first_difference(left: str, right: str) -> str:
    pairs = zip_longest(_text(left), _text(right), fillvalue="")
    return next(f"'{one}' against '{other}'" for one, other in pairs if one != other)
