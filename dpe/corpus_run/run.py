"""One question about every line of a corpus: N lines in, N lines out, in order, resumable, by many workers.

The text is read in windows of a few thousand lines, so memory does not grow with it. The lines of a window go
into batches of similar length; which lines share a batch depends on the text and the budget alone, never on
the process that computes it. A window is written when it is complete.
"""

from __future__ import annotations

import hashlib
import math
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

from dpe.corpus_run.cluster import Cluster, connected
from dpe.corpus_run.output import Record, ResumableOutput, StreamOutput
from dpe.errors import UserError
from dpe.files import is_standard_stream
from dpe.machine import cores
from dpe.model.batch_order import batches_by_length
from dpe.model.device import choose_device
from dpe.pool import Start, in_order, processes
from dpe.progress import Clock, Progress
from dpe.segmenter.segmenter import fingerprint, refuse_another
from dpe.text.corpus import Pair, read_lines, read_pairs, read_tsv
from dpe.training.processes import Session

WINDOW = 2_000  # lines
_SHORT_TEXT = 1_000  # lines; starting a worker takes as long as segmenting so many
_WINDOW_CHARACTERS = 4_000_000  # a window of very long lines ends here
_TOTAL_STEPS = 2**24


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


class Shard(NamedTuple):
    """Lines `first` to `end` of a text, numbered from 0; without an end, to that of the text.

    It begins and ends where windows do, so its batches, and with them its bytes, are those of the whole run.
    """

    first: int = 0
    end: int | None = None

    @classmethod
    def parse(cls, given: str) -> Shard:
        """`2000:4000`, `4000:`"""
        first, colon, end = given.partition(":")
        if not colon or not all(one.isdecimal() or not one for one in (first, end)):
            raise UserError(f"--lines {given}: must be FIRST:END, as in --lines 2000:4000 or --lines 4000:.")
        shard = cls(int(first or 0), int(end) if end else None)
        if any(bound % WINDOW for bound in (shard.first, shard.end or 0)):
            raise UserError(
                f"--lines {given}: the bounds must be multiples of {WINDOW:,}, because lines that share a "
                "batch are found among that many."
            )
        if shard.end is not None and shard.end <= shard.first:
            raise UserError(f"--lines {given}: has no lines; the end must come after the first line.")
        return shard

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.end is None else self.end}"


WHOLE = Shard()


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
    check: Callable[[], None] | None = None  # that every worker makes when it has begun
    cluster: Cluster | None = None  # whose actors are the workers, instead of processes of this machine

    def write(
        self,
        text: Text,
        out: Path | None,
        configuration: Mapping[str, Any],
        *,
        force: bool,
        lines: Shard = WHOLE,
    ) -> Record:
        """Answer for every line of a text into a file, or resume that; returns what the file holds."""
        total = text.count() if lines.end is None else lines.end
        if lines != WHOLE:
            configuration = {**configuration, "lines": str(lines)}
        with _threads_restored(), closing(_open_output(out, configuration, force=force)) as output:
            reader = _Reader(iter(text), lines.end)
            reader.skip(output.record, out)
            if reader.line < lines.first:
                output.begin(*reader.pass_over(lines.first))
            if output.record.finished:
                self.progress.say(f"{out} is already finished")
            else:
                self._answer_all(reader, output, total)
            output.publish()
            return output.record

    def _answer_all(self, reader: _Reader, output: ResumableOutput | StreamOutput, total: int | None) -> None:
        """Write the windows in order; the next ones are started before one is complete."""
        first = output.record.first
        if reader.line > first:
            self.progress.say(f"resuming after {reader.line - first:,} lines")
        answerer = partial(self.answerer, device=str(self.device), batch_characters=self.batch_characters)
        make = partial(_checked, answerer, self.check)
        start, workers = self._start(reader)
        under_way: deque[tuple[_Window, list[int]]] = deque()

        def tasks() -> Iterator[NumberedPairs]:
            for window in reader.windows():
                for places in self._batches(window.pairs):
                    under_way.append((window, places))
                    yield NumberedPairs([window.first + p for p in places], [window.pairs[p] for p in places])

        answered, totals = reader.line, dict(output.record.totals)
        clock = Clock(total and total - first, done=answered - first)
        with self.progress.live(), closing(in_order(make, tasks(), workers=workers, start=start)) as results:
            for answers in results:
                window, places = under_way.popleft()
                for place, line in zip(places, answers.lines, strict=True):
                    window.answers[place] = line
                add_totals(window.totals, answers.totals)
                window.missing -= len(places)
                answered += len(places)
                state = f", {self.cluster.state}" if self.cluster else ""
                self.progress.update(clock.state(answered - first) + state)
                if window.missing == 0:
                    add_totals(totals, window.totals)
                    output.append(window.answers, count=answered, digest=window.digest, totals=totals)
        output.finish(goes_on=reader.goes_on())
        self.progress.say(f"{output.record.lines - first:,} lines in all")

    def _start(self, reader: _Reader) -> tuple[Start[NumberedPairs, Answers], int]:
        """What the workers are, and how many."""
        on_gpu = self.device.type == "cuda"
        if self.cluster is not None:
            size = self.cluster.gpus if on_gpu else self.cluster.cpus
            return partial(self.cluster.actors, on_gpu=on_gpu), self.workers or size
        return processes, self.workers or (1 if on_gpu or reader.is_short() else cores())

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


def add_totals(totals: dict[str, float], more: Mapping[str, float]) -> None:
    """Add to sums, in steps of 2^-24: such sums are exact up to 2^29, whatever is added to what first."""
    for key, value in more.items():
        exact = round(value * _TOTAL_STEPS) / _TOTAL_STEPS if math.isfinite(value) else value
        totals[key] = totals.get(key, 0) + exact


class _Reader:
    """Pairs in windows, up to the end of a shard, with a fingerprint of everything read so far."""

    def __init__(self, pairs: Iterator[Pair], end: int | None = None) -> None:
        self.line = 0
        self._pairs, self._end = pairs, end
        self._digest = hashlib.sha256()

    def skip(self, record: Record, out: Path | None) -> None:
        """Skip the lines that a record already answers for; they must be the same."""
        is_same = self._pass_over(record.lines) and (not self.line or self._digest.hexdigest() == record.text)
        if record.finished and is_same:
            is_same = self.goes_on() == record.goes_on
        if not is_same:
            raise UserError(
                f"{out} was made from another text; give that text, choose another --out, "
                "or --force to start over."
            )

    def pass_over(self, first: int) -> tuple[int, str]:
        """Skip the lines before a shard; gives its first line and the fingerprint of those before it."""
        if not self._pass_over(first) or not self.goes_on():
            raise UserError(f"The text has {self.line:,} lines, so there is no line {first:,} to begin at.")
        return self.line, self._digest.hexdigest()

    def goes_on(self) -> bool:
        """Whether the text has more lines."""
        ahead = list(islice(self._pairs, 1))
        self._pairs = chain(ahead, self._pairs)
        return bool(ahead)

    def is_short(self) -> bool:
        """Whether so few lines are left that this process alone has them sooner."""
        ahead = list(islice(self._pairs, _SHORT_TEXT + 1))
        self._pairs = chain(ahead, self._pairs)
        return len(ahead) <= _SHORT_TEXT

    def windows(self) -> Iterator[_Window]:
        """Each ends at a multiple of their size, whatever came before."""
        while self.line != self._end and (pairs := self._next(WINDOW - self.line % WINDOW)):
            first = self.line - len(pairs)
            yield _Window(first, pairs, self._digest.hexdigest(), [""] * len(pairs), len(pairs))

    def _pass_over(self, line: int) -> bool:
        """Read on to a line; False where the text ends before it."""
        while self.line < line and self._next(min(WINDOW, line - self.line)):
            pass
        return self.line == line

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


def _checked(make: Callable[[], Answerer], check: Callable[[], None] | None) -> Answerer:
    answerer = make()
    if check is not None:
        check()
    return answerer


@contextmanager
def segmenter_run(
    answerer: Callable[..., Answerer],
    segmenter: Path,
    session: Session,
    batch_characters: int,
    *,
    bf16: bool = False,
) -> Iterator[tuple[CorpusRun, dict[str, Any]]]:
    """A run that asks a segmenter, on this machine or on a cluster, and what its outputs depend on."""
    with connected(session.ray, cpus=session.workers, progress=session.progress) as cluster:
        asked = session.device
        device = torch.device(cluster.device(asked)) if cluster else choose_device(asked, bf16=bf16)
        identity = fingerprint(segmenter)
        run = CorpusRun(
            answerer,
            device=device,
            workers=session.workers,
            batch_characters=batch_characters,
            progress=session.progress,
            check=partial(refuse_another, segmenter.absolute(), identity),
            cluster=cluster,
        )
        about = {"segmenter": identity, "batch_characters": batch_characters, "device": device.type}
        yield run, about


@contextmanager
def _threads_restored() -> Iterator[None]:
    """Answerers in this process compute with one thread; afterwards there are as many as before."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
