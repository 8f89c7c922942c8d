r"""Text as lines: read in a stream, alone or in pairs, plain or packed (.gz, .xz).

What a line is, here and everywhere: UTF-8 up to `\n`. U+2028, U+0085, form feed and a lone `\r` are
text; one `\r` directly before `\n` is dropped; a last line without `\n` counts. A byte order mark at
the start of a file is dropped. So two things do not survive being written and read back: a `\r` that
ends a line, and a U+FEFF that begins a file.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from dpe.errors import UserError
from dpe.files import (
    is_standard_stream,
    reading,
    whole_packed_files,
)

Strings = list[str] | tuple[str, ...] | Iterator[str]  # lines in memory; a string itself is not one of them


class Pair(NamedTuple):
    """A target line and the source line beside it; no source for a target-only model."""

    source: str | None
    target: str


def checked_text(line: object) -> str:
    """Refuse what is no text, and what Python takes for a string and SentencePiece does not."""
    if not isinstance(line, str):
        raise UserError(f"A line is text (str), not {type(line).__name__}: {str(line)[:60]}.")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{line[:60]!r} has half of a surrogate pair, which is no text; mend it.") from error
    return line


def one_line(line: object) -> str:
    """Refuse several lines as well; in a file there could be no such line."""
    text = checked_text(line)
    if "\n" in text:
        raise UserError(f"A line break is in {text[:60]!r}; give one line at a time.")
    return text


def lines_of(text: str | Iterable[str], side: str) -> list[str]:
    """What a program hands over, one line or many, as a list; `side` is what a complaint calls it."""
    if isinstance(text, str):
        return [one_line(text)]
    if not isinstance(text, Iterable) or isinstance(text, bytes | Mapping | Set):
        raise UserError(f"The {side} is {str(text)[:60]}; give a string, or a list of strings.")
    return list(map(one_line, text))


def read_lines(path: Path | None) -> Iterator[str]:
    """The lines of a file in order, in constant memory; `None` or `-` is standard input.

    Nothing is opened before the first line is asked for, so a missing file is reported then.
    """
    with reading(path) as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            if line:  # nothing is left of a file that is only a mark
                yield decode_line(line, path, number)


def write_lines(path: Path | None, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, whatever the locale: to a whole file packed by its suffix, or, with `None`
    or `-`, to standard output.
    """
    if path is None or is_standard_stream(path):
        sys.stdout.flush()
        for line in lines:
            sys.stdout.buffer.write(line_bytes(line))
        sys.stdout.buffer.flush()
        return
    with whole_packed_files(path) as (file,):
        for line in lines:
            file.write(line_bytes(line))


def line_bytes(line: str) -> bytes:
    r"""A line as it is written; one that contains `\n` would become two, so it is refused."""
    if "\n" in line:
        raise ValueError(f"a line to be written contains a newline: {line[:80]!r}")
    return line.encode() + b"\n"


def read_pairs(source: Path | None, target: Path | None) -> Iterator[Pair]:
    """Pairs from two files in order; `source=None` is no source, `target=None` or `-` standard input.

    So `read_pairs(None, None)` reads a target-only stream of one column. Unequal lengths are found at
    the end of the shorter file, after its pairs were given.
    """
    if source is None:
        yield from (Pair(None, line) for line in read_lines(target))
        return
    if is_standard_stream(source) and is_standard_stream(target):
        raise UserError("standard input cannot be both source and target; give a file, or one TSV.")
    rows = zip_longest(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(rows, start=1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            raise UserError(
                f"{_name(long)}, line {number}: has no counterpart, because {_name(short)} ends after "
                f"{number - 1} lines; a parallel text needs equally many lines."
            )
        yield Pair(left, right)


def read_tsv(path: Path | None) -> Iterator[Pair]:
    """Pairs from lines `source TAB target` in order; `None` or `-` is standard input."""
    for number, line in enumerate(read_lines(path), start=1):
        yield _split_columns(line, path, number)


def decode_line(raw: bytes, path: Path | None, number: int) -> str:
    """The text of a line, its ending dropped."""
    if raw.endswith(b"\n"):
        raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{raw[error.start]:02X} is not valid UTF-8"
        raise UserError(f"{_name(path)}, line {number}: {wrong}; convert the text to UTF-8.") from error


def _split_columns(line: str, path: Path | None, number: int) -> Pair:
    columns = line.split("\t")
    if len(columns) != 2:
        raise UserError(
            f"{_name(path)}, line {number}: has {len(columns) - 1} tabs; "
            "a line must be source, one tab, and target."
        )
    return Pair(*columns)


def _name(path: Path | None) -> str:
    return "standard input" if is_standard_stream(path) else str(path)
