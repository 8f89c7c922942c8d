r"""Text as lines: read in a stream, alone or in pairs, plain or compressed (.gz, .xz, .zst).

What a line is, here and everywhere: UTF-8 up to `\n`. U+2028, U+0085, form feed and a lone `\r` are
text; one `\r` directly before `\n` is dropped; a last line without `\n` counts. A byte order mark at
the start of a file is dropped. So two things are lost when written and read back: a `\r` at the end of a
line, and a U+FEFF at the start of a file.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from dpe.errors import UserError
from dpe.files import is_standard_stream, reading, whole_compressed_files
from dpe.text.words import checked_text

Strings = list[str] | tuple[str, ...] | Iterator[str]  # lines in memory; a single string is not one of them


class Pair(NamedTuple):
    """A target line and its source line; the source is None for a target-only model."""

    source: str | None
    target: str


def one_line(line: object) -> str:
    """Refuse anything but one line of text."""
    text = checked_text(line)
    if "\n" in text:
        raise UserError(f"{text[:60]!r} contains a line break; give one line at a time.")
    return text


def lines_of(text: str | Iterable[str], side: str) -> list[str]:
    """One line or many, given by a program, as a list; `side` names them in an error."""
    if isinstance(text, str):
        return [one_line(text)]
    if not isinstance(text, Iterable) or isinstance(text, bytes | Mapping | Set):
        raise UserError(f"The {side} must be a string or a list of strings, got {str(text)[:60]}.")
    return list(map(one_line, text))


def read_lines(path: Path | None) -> Iterator[str]:
    """The lines of a file in order, in constant memory; `None` or `-` is standard input.

    The file is opened when the first line is requested, so a missing file is reported then.
    """
    with reading(path) as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            if line:  # a file may consist of the byte order mark alone
                yield decode_line(line, path, number)


def write_lines(path: Path | None, lines: Iterable[str]) -> None:
    """Write lines as UTF-8, whatever the locale: to a file, compressed according to its suffix, or to
    standard output if `path` is `None` or `-`.
    """
    if path is None or is_standard_stream(path):
        sys.stdout.flush()
        for line in lines:
            sys.stdout.buffer.write(line_bytes(line))
        sys.stdout.buffer.flush()
        return
    with whole_compressed_files(path) as (file,):
        for line in lines:
            file.write(line_bytes(line))


def line_bytes(line: str) -> bytes:
    r"""The bytes of a line with its end; a line that contains `\n` would become two, so it is an error."""
    if "\n" in line:
        raise ValueError(f"a line to be written contains a newline: {line[:80]!r}")
    return line.encode() + b"\n"


def read_pairs(source: Path | None, target: Path | None) -> Iterator[Pair]:
    """Pairs from two files in order; `source=None` is target-only, `target=None` or `-` standard input.

    Unequal lengths are found at the end of the shorter file, after all of its pairs.
    """
    if source is None:
        yield from (Pair(None, line) for line in read_lines(target))
        return
    if is_standard_stream(source) and is_standard_stream(target):
        raise UserError("Standard input cannot be both source and target; give a file, or one TSV.")
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
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(
                f"{_name(path)}, line {number}: has {len(columns) - 1} tabs; "
                "a line must be source, one tab, and target."
            )
        yield Pair(*columns)


def decode_line(raw: bytes, path: Path | None, number: int) -> str:
    """The text of a line without its end."""
    if raw.endswith(b"\n"):
        raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{raw[error.start]:02X} is not valid UTF-8"
        raise UserError(f"{_name(path)}, line {number}: {wrong}; convert the text to UTF-8.") from error


def _name(path: Path | None) -> str:
    return "standard input" if is_standard_stream(path) else str(path)
