"""One question about every line of a corpus: N lines in, N lines out, in order, resumable, by many workers.

The text is read in windows of a few thousand lines, so memory does not grow with it. The lines of a window go
into batches of similar length; which lines share a batch depends on the text and the budget alone, never on
the process that computes it. A window is written when it is complete.
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from dpe.corpus_run.output import Record, ResumableOutput, StreamOutput
from dpe.errors import UserError
from dpe.files import is_standard_stream
from dpe.machine import cores
from dpe.model.batch_order import batches_by_length
from dpe.pool import in_order
from dpe.progress import Clock, Progress
from dpe.text.corpus import Pair, read_lines, read_pairs, read_tsv

WINDOW = 2_000  # lines
_SHORT_TEXT = 1_000  # lines; starting a worker takes as long as segmenting so many
_WINDOW_CHARACTERS = 4_000_000  # a window of very long lines ends here


class NumberedPairs(NamedTuple):
    """Some lines of a corpus, with their numbers in it."""

    numbers: Sequence[int]
    pairs: Sequence[Pair]


class Answers(NamedTuple):
    """What is written about these lines, in their order, and sums over them."""

    lines: list[str]
    totals: dict[str, float]


Answerer = Callable[[NumberedPairs], Answers]


class Text(Protocol):
    """Pairs in order, with or without their source."""

    def __iter__(self) -> Iterator[Pair]: ...

    def count(self) -> int | None:
        """The number of pairs; None when they can be read only once."""


@dataclass(frozen=True)
class CorpusText:
    """A text in files, or on standard input where no target is given."""

    source: Path | None
    target: Path | None
    has_source: bool

    def __iter__(self) -> Iterator[Pair]:
        if self.source is None and self.target is None and self.has_source:
            return read_tsv(None)
        pairs = read_pairs(self.source, self.target)
        return pairs if self.has_source or not is_standard_stream(self.target) else _without_tabs(pairs)

    def count(self) -> int | None:
        """The number of lines, all of which are checked; None when they can be read only once."""
        files = [path for path in (self.source, self.target) if path is not None and path.is_file()]
        counts = {path: sum(1 for _ in read_lines(path)) for path in files}
        if len(set(counts.values())) > 1:
            raise UserError(
                " but ".join(f"{path} has {count} lines" for path, count in counts.items())
                + "; a parallel text needs equally many lines."
            )
        is_complete = len(files) == (2 if self.has_source else 1)
        return counts[files[0]] if is_complete else None


def _without_tabs(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Pairs of a target alone on standard input, where a tab would separate it from a source."""
    for number, pair in enumerate(pairs, start=1):
        if "\t" in pair.target:
            raise UserError(
                f"standard input, line {number}: has a tab, but the segmenter was trained without a source; "
                "give the target alone, as a file if tabs are part of it."
            )
        yield pair


@dataclass
class _Window:
    """Consecutive lines, and what is known about them so far."""

    first: int  # number of the first line
    pairs: list[Pair]
    digest: str  # of the text up to its end
    answers: list[str]
    missing: int
    totals: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CorpusRun:
    """How a corpus is worked through; of all this only `batch_characters` can change a byte of the result."""

    answerer: Callable[..., Answerer]  # such as `LineCutter`, lacking only `device` and `batch_characters`
    device: torch.device
    workers: int | None  # None: one per core, but this process alone on a GPU and for a short text
    batch_characters: int
    progress: Progress

    def write(self, text: Text, out: Path | None, configuration: Mapping[str, Any], *, force: bool) -> Record:
        """Answer for every line of a text into a file, or resume that; returns what the file holds."""
        total = text.count()
        with _threads_restored(), closing(_open_output(out, configuration, force=force)) as output:
            reader = _Reader(iter(text))
            reader.skip(output.record, out)
            if output.record.finished:
                self.progress.say(f"{out} is already finished")
            else:
                self._answer_all(reader, output, total)
            output.publish()
            return output.record

    def _answer_all(self, reader: _Reader, output: ResumableOutput | StreamOutput, total: int | None) -> None:
        """Write the windows in order; the next ones are started before one is complete."""
        if reader.line:
            self.progress.say(f"resuming after {reader.line:,} lines")
        make = partial(self.answerer, device=str(self.device), batch_characters=self.batch_characters)
        workers = self.workers or (1 if self.device.type == "cuda" or reader.is_short() else cores())
        under_way: deque[tuple[_Window, list[int]]] = deque()

        def tasks() -> Iterator[NumberedPairs]:
            for window in reader.windows():
                for places in self._batches(window.pairs):
                    under_way.append((window, places))
                    yield NumberedPairs([window.first + p for p in places], [window.pairs[p] for p in places])

        answered, totals = reader.line, dict(output.record.totals)
        clock = Clock(total, done=answered)
        with self.progress.live(), closing(in_order(make, tasks(), workers=workers)) as results:
            for answers in results:
                window, places = under_way.popleft()
                for place, line in zip(places, answers.lines, strict=True):
                    window.answers[place] = line
                _add(window.totals, answers.totals)
                window.missing -= len(places)
                answered += len(places)
                self.progress.update(clock.state(answered))
                if window.missing == 0:
                    _add(totals, window.totals)
                    output.append(window.answers, count=answered, digest=window.digest, totals=totals)
        output.finish()
        self.progress.say(f"{output.record.lines:,} lines in all")

    def _batches(self, pairs: Sequence[Pair]) -> list[list[int]]:
        """Places of a window that are answered for together, the longest lines first.

        By the length of the plain text, which is all that is known here; the worker makes two batches of one
        that turns out too large.
        """

        def size(place: int) -> tuple[int, int]:
            source, target = pairs[place]
            return len(source or "") // 2, len(target) + 2

        budget = (self.batch_characters, self.batch_characters)
        return list(batches_by_length(range(len(pairs)), size, budget=budget))[::-1]


def _add(totals: dict[str, float], more: Mapping[str, float]) -> None:
    for key, value in more.items():
        totals[key] = totals.get(key, 0) + value


class _Reader:
    """Pairs in windows, with a fingerprint of everything read so far."""

    def __init__(self, pairs: Iterator[Pair]) -> None:
        self.line = 0
        self._pairs = pairs
        self._digest = hashlib.sha256()

    def skip(self, record: Record, out: Path | None) -> None:
        """Skip the lines that a record already answers for; they must be the same."""
        while self.line < record.lines and self._next(min(WINDOW, record.lines - self.line)):
            pass
        is_same = self.line == record.lines and (not self.line or self._digest.hexdigest() == record.text)
        if record.finished and is_same:
            is_same = next(self._pairs, None) is None
        if not is_same:
            raise UserError(
                f"{out} was made from another text; give that text, choose another --out, "
                "or --force to start over."
            )

    def is_short(self) -> bool:
        """Whether so few lines are left that this process alone has them sooner."""
        ahead = list(islice(self._pairs, _SHORT_TEXT + 1))
        self._pairs = chain(ahead, self._pairs)
        return len(ahead) <= _SHORT_TEXT

    def windows(self) -> Iterator[_Window]:
        while pairs := self._next(WINDOW):
            first = self.line - len(pairs)
            yield _Window(first, pairs, self._digest.hexdigest(), [""] * len(pairs), len(pairs))

    def _next(self, count: int) -> list[Pair]:
        pairs, characters = [], 0
        for pair in islice(self._pairs, count):
            text = "".join(f"{side}\n" for side in pair if side is not None)
            self._digest.update(text.encode())
            pairs.append(pair)
            characters += len(text)
            if characters > _WINDOW_CHARACTERS:
                break
        self.line += len(pairs)
        return pairs


def _open_output(
    out: Path | None, configuration: Mapping[str, Any], *, force: bool
) -> ResumableOutput | StreamOutput:
    if out is None or is_standard_stream(out):
        sys.stdout.flush()
        return StreamOutput(sys.stdout.buffer, configuration)
    if out.exists() and not out.is_file() and not out.is_dir():  # /dev/null, a named pipe
        return StreamOutput(out.open("wb"), configuration)
    return ResumableOutput(out, configuration, force=force)


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Answerers in this process compute with one thread; afterwards there are as many as before."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
