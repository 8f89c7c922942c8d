"""How the target of every line is cut in an epoch: by counts line by line, or by a segmenter all at once.

DPE on the fly re-cuts the whole target side whenever the source is re-cut: one pass of the segmenter an
epoch, whose cuts are kept (`kept_cuts.py`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from dpe.corpus_run.lines import CutSettings, EpochDraws, LineCutter
from dpe.corpus_run.run import CorpusRun, CorpusText
from dpe.errors import UserError
from dpe.files import Stamp
from dpe.model.checkpoint import read_settings
from dpe.model.device import choose_device
from dpe.progress import Progress
from dpe.segmenter.segmenter import BATCH_CHARACTERS, fingerprint
from dpe.store import key_of, make_once
from dpe.text.corpus import read_lines
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.segmenters import CountSegmenter
from dpe.text.text_file import ParallelText, TextFile
from dpe.text.words import MARKER
from dpe.training.processes import Processes
from dpe.training.trainer import at_once

_SECONDS_BETWEEN_LOOKS = 0.2

# The pieces of a line's target: (line number, text) -> pieces.
CutTarget = Callable[[int, str], list[str]]


class EpochTargets(Protocol):
    """Cuts of the target side, epoch by epoch."""

    def start(self, epoch: int) -> CutTarget:
        """Called once an epoch, before its first line; for a segmenter this is where the epoch is cut."""

    def report(self) -> dict[str, float]:
        """Numbers about the epoch under way, for the curve."""


@dataclass(frozen=True)
class CountTargets:
    """A count-based cut; a random one is drawn anew every epoch, apart from the source's draws."""

    segmenter: CountSegmenter
    seed: int

    def start(self, epoch: int) -> CutTarget:
        return lambda line, text: self.segmenter.cut(text, Draw(self.seed + TARGET_STREAM, epoch, line))

    def report(self) -> dict[str, float]:
        return {}


class SegmenterTargets:
    """A segmenter's cuts, one file per epoch; `work` holds this epoch's, unpacked.

    With many processes the first cuts and the others wait.
    """

    def __init__(self, cuts: KeptCuts, cutting: Cutting, *, work: Path, processes: Processes) -> None:
        self._cuts, self._cutting = cuts, cutting
        self._work, self._processes = work / f"cuts-{processes.rank}", processes
        self._text: tuple[Path, TextFile] | None = None
        self._report: dict[str, float] = {}
        self._started = time.monotonic()

    def start(self, epoch: int) -> CutTarget:
        begin = time.monotonic()
        path = self.path(epoch)
        with at_once():  # the training was saved at the end of the epoch before
            self._make(path, epoch)
            text = self._open(path)
        self._report = {"cutting_seconds": round(time.monotonic() - begin, 2)}
        if self._processes.first:
            self._report |= self._changes(epoch)
        self._started = time.monotonic()
        return lambda line, _: [piece for piece in text[line].split(" ") if piece]

    def report(self) -> dict[str, float]:
        """Seconds that the epoch was cut and trained, and how many lines and words changed their cut."""
        return self._report | {"training_seconds": round(time.monotonic() - self._started, 2)}

    def path(self, epoch: int) -> Path:
        """Where the cuts of an epoch are, or will be."""
        return self._cuts.path(self._cutting_of(epoch))

    def _cutting_of(self, epoch: int) -> Cutting:
        return replace(self._cutting, epoch=epoch) if self._cutting.is_random else Cutting()

    def _make(self, path: Path, epoch: int) -> None:
        if self._processes.first:
            self._cuts.make(self._cutting_of(epoch))
        while not path.exists():
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def _open(self, path: Path) -> TextFile:
        """The cuts by line; what was unpacked for another epoch goes."""
        if self._text is None or self._text[0] != path:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work.mkdir(parents=True)
            self._text = path, TextFile.open(path, cache=self._work)
        return self._text[1]

    def _changes(self, epoch: int) -> dict[str, float]:
        """Against the epoch before, if its cuts are there and are others."""
        before, after = self.path(epoch - 1), self.path(epoch)
        if epoch == 0 or before == after or not before.exists():
            return {}
        lines, words = changed_shares(before, after)
        return {"changed_lines": lines, "changed_words": words}


def changed_shares(before: Path, after: Path) -> tuple[float, float]:
    """Which share of the lines, and of the words, are cut differently in two files of pieces."""
    lines = words = changed_lines = changed_words = 0
    for one, other in zip(read_lines(before), read_lines(after), strict=True):
        lines += 1
        words += one.count(MARKER)
        if one != other:
            changed_lines += 1
            pairs = zip(one.split(f" {MARKER}"), other.split(f" {MARKER}"), strict=False)
            changed_words += sum(a != b for a, b in pairs)
    return changed_lines / max(lines, 1), changed_words / max(words, 1)


@dataclass(frozen=True, kw_only=True)
class Cutting:
    """What the cuts of a segmenter depend on, beside it and the text."""

    dropout: float = 0.0  # BPE dropout of the source; 0 is its plain cut
    temperature: float | None = None  # draw from the posterior at this temperature; None is the best cut
    seed: int = 1
    epoch: int = 0

    @property
    def is_random(self) -> bool:
        """Whether another epoch would give other cuts."""
        return self.dropout > 0 or self.temperature is not None


class CorpusCutter(Protocol):
    """A segmenter and the files that it is to cut; inference has one."""

    fingerprint: str  # of the segmenter
    vocabulary_fingerprint: str
    has_source: bool

    def cut(self, out: Path, cutting: Cutting) -> None:
        """Write the pieces of every target line; a killed one goes on where it stopped."""


@dataclass(frozen=True)
class KeptCuts:
    """The cuts of `text` by one segmenter in `directory`, which trainings share."""

    cutter: CorpusCutter
    text: ParallelText
    directory: Path
    progress: Progress

    def path(self, cutting: Cutting) -> Path:
        """Where these cuts are, or will be."""
        described = {"cutter": self.cutter.fingerprint, "text": self._about_text, **asdict(cutting)}
        return self.directory / f"{key_of(described)}.epoch-{cutting.epoch:03}.pieces.gz"

    def make(self, cutting: Cutting) -> Path:
        """Cut the text unless that was done; where it is being done, wait."""

        def make(path: Path) -> None:
            epoch = f" for epoch {cutting.epoch + 1}" if cutting.is_random else ""
            self.progress.say(f"cutting the target side{epoch}")
            self.cutter.cut(path, cutting)

        path = self.path(cutting)
        waiting = f"waiting for another process, which makes {path}"
        return make_once(path, make, waiting=lambda: self.progress.say(waiting))

    @cached_property
    def _about_text(self) -> dict[str, str | int | None]:
        about = self.text.describe()
        return about if self.cutter.has_source else about | {"source": None}


class SegmenterCutter:
    """Cuts the target side of two files given the source side, as `dpe segment` does.

    A segmenter without a source does not read it. On a CPU it runs in `workers` processes: unless given, in
    one per core, but in this one alone if the text is short.
    """

    def __init__(
        self,
        segmenter: Path,
        *,
        source: Path,
        target: Path,
        device: str = "cpu",
        workers: int | None = None,
        progress: Progress,
    ) -> None:
        settings = read_settings(segmenter, "segmenter")
        self.has_source: bool = settings["source"]
        self.vocabulary_fingerprint: str = settings["vocabulary"]
        self._segmenter, self._progress = segmenter, progress
        self._text = CorpusText(source if self.has_source else None, target, self.has_source)
        self._device, self._workers = choose_device(device), workers
        self.fingerprint = fingerprint(segmenter)
        files = (self._text.source, self._text.target)
        self._stamps = {path: Stamp.of(path) for path in files if path is not None}

    def cut(self, out: Path, cutting: Cutting) -> None:
        """Write the pieces of every target line to `out`; goes on with what a killed one left."""
        self._refuse_changed()
        settings = CutSettings(
            mode="best" if cutting.temperature is None else "sample",
            temperature=cutting.temperature or 1.0,
            draws=EpochDraws(dropout=cutting.dropout, seed=cutting.seed, epoch=cutting.epoch),
        )
        run = CorpusRun(
            partial(LineCutter, self._segmenter, settings),
            device=self._device,
            workers=self._workers,
            batch_characters=BATCH_CHARACTERS,
            progress=self._progress,
        )
        run.write(self._text, out, {"cutter": self.fingerprint, **asdict(cutting)}, force=False)
        try:
            self._refuse_changed()
        except UserError:
            out.unlink(missing_ok=True)
            raise

    def _refuse_changed(self) -> None:
        """Cuts are kept under the names of the segmenter and the text that were there at the start."""
        for path, stamp in self._stamps.items():
            if Stamp.of(path) != stamp:
                raise UserError(f"{path}: changed while it was in use; start again.")
        if fingerprint(self._segmenter) != self.fingerprint:
            raise UserError(f"{self._segmenter}: was trained on while it was in use; start again.")
