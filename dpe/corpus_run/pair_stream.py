"""A stream of pairs through a segmenter: both sides of every line segmented, in order, while it goes on.

The lines that have come are segmented together, and none of them waits for lines that have not: a program
that writes one line and waits for its answer gets it. Little is read ahead, 64 KB and what the worker
processes are busy with, so memory does not grow with the stream. A line is segmented by the draws of its
number, which counts from the start of the stream, so that an endless stream is never segmented twice alike.
"""

from __future__ import annotations

import codecs
import select
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

import torch

from dpe.choices import BadLines, PieceFormat
from dpe.data import PairCutter
from dpe.errors import UserError
from dpe.files import os_errors
from dpe.pool import in_order
from dpe.segmenter.segmenter import TrainingPair
from dpe.text.corpus import Pair, decode_line
from dpe.text.formats import format_pieces

LINES_AT_ONCE = 200
_CHUNK = 1 << 16
_INPUT = Path("standard input")


class StreamLine(NamedTuple):
    """A line, its number, and what it holds beside a pair: further fields, or, without a pair, the line."""

    number: int
    pair: Pair | None
    rest: bytes


class StreamCutter:
    """Lines of pairs as the bytes that are written about them: both sides as pieces, the rest as it was."""

    def __init__(self, cutter: PairCutter, *, epoch: int, format: PieceFormat) -> None:
        torch.set_num_threads(1)  # so that sums are those of `dpe segment`
        self._cutter, self._epoch, self._format = cutter, epoch, format

    def __call__(self, lines: Sequence[StreamLine]) -> bytes:
        rows = [(line.number, line.pair) for line in lines if line.pair]
        sources, targets = [pair.source or "" for _, pair in rows], [pair.target for _, pair in rows]
        numbers = [number for number, _ in rows]
        cut = iter(self._cutter.pairs(sources, targets, epoch=self._epoch, lines=numbers))
        return b"".join((self._written(next(cut)) if one.pair else b"") + one.rest + b"\n" for one in lines)

    def _written(self, pair: TrainingPair) -> bytes:
        target = self._cutter.vocabulary
        sides = ((pair.source, target.source), (pair.target, target))
        return "\t".join(format_pieces(pieces, self._format, side) for pieces, side in sides).encode()


class PairStream:
    """Lines of source, tab, target as they come; those that are no pair are reported."""

    def __init__(
        self, stream: BinaryIO, *, first_line: int, bad_lines: BadLines, report: Callable[[str], None]
    ) -> None:
        self.lines, self.bad = 0, 0  # read so far
        self._waiting = _WaitingLines(stream)
        self._first_line, self._bad_lines, self._report = first_line, bad_lines, report
        self._unanswered = 0  # tasks

    def cut(
        self, make: Callable[[], Callable[[Sequence[StreamLine]], bytes]], out: BinaryIO, *, workers: int
    ) -> None:
        """Write what `make()` answers about all lines until the stream ends, each answer at once."""
        with closing(in_order(make, self._tasks(), workers=workers)) as answers:
            for answer in answers:
                self._unanswered -= 1
                out.write(answer)
                out.flush()

    def _tasks(self) -> Iterator[list[StreamLine] | None]:
        """Lines that have come; None while none has and answers are awaited."""
        problem = None
        while problem is None:
            while self._unanswered and not self._waiting.is_any(wait=False):
                yield None
            if not self._waiting.is_any(wait=True):
                return
            lines, problem = self._read(self._waiting.take(LINES_AT_ONCE))
            if lines:
                self._unanswered += 1
                yield lines
        while self._unanswered:  # the lines before it are answered
            yield None
        raise problem

    def _read(self, raw_lines: list[bytes]) -> tuple[list[StreamLine], UserError | None]:
        """Lines to answer, and the error that ends the stream after them, if one does."""
        if not self.lines:
            raw_lines[0] = raw_lines[0].removeprefix(codecs.BOM_UTF8)
        lines: list[StreamLine] = []
        for raw in raw_lines:
            number = self._first_line + self.lines
            self.lines += 1
            try:
                lines.append(_pair_line(raw, number, place=self.lines))
            except UserError as error:
                self.bad += 1
                if self._bad_lines == "stop":
                    return lines, error
                self._report(f"{error} It is {_FATES[self._bad_lines]}.")
                if self._bad_lines == "pass":
                    lines.append(StreamLine(number, None, raw.removesuffix(b"\n")))
        return lines, None


_FATES = {"pass": "passed on as it is", "drop": "dropped"}


def _pair_line(raw: bytes, number: int, *, place: int) -> StreamLine:
    """The pair and the further fields of a line; `place` is where an error says that it is."""
    text = raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")
    columns = text.split(b"\t", 2)
    if len(columns) < 2:
        raise UserError(f"{_INPUT}, line {place}: has no tab; a pair is source, tab, target.")
    source, target = (decode_line(column, None, place) for column in columns[:2])
    return StreamLine(number, Pair(source, target), b"".join(b"\t" + column for column in columns[2:]))


class _WaitingLines:
    """The lines of a stream that have come, with their ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []  # parts of a line whose end has not come
        self._is_over = False

    def is_any(self, *, wait: bool) -> bool:
        """Whether a line is there. With `wait` it is false only when the stream is over."""
        while not self._lines and not self._is_over and (wait or _is_readable(self._stream)):
            with os_errors(_INPUT, "read"):
                chunk = self._stream.read1(_CHUNK)  # type: ignore[attr-defined]  # what is there, at once
            *ends, begun = chunk.split(b"\n")
            for end in ends:
                self._lines.append(b"".join([*self._begun, end, b"\n"]))
                self._begun = []
            self._begun.append(begun)
            if not chunk:
                self._is_over = True
                self._lines.extend(filter(None, [b"".join(self._begun)]))  # a last line without its end
        return bool(self._lines)

    def take(self, most: int) -> list[bytes]:
        return [self._lines.popleft() for _ in range(min(most, len(self._lines)))]


def _is_readable(stream: BinaryIO) -> bool:
    """Whether reading would give something at once; text in memory always does."""
    try:
        descriptor = stream.fileno()
    except OSError:
        return True
    return bool(select.select([descriptor], [], [], 0)[0])
