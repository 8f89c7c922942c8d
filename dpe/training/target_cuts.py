"""How the target of every line is cut in an epoch: by counts line by line, or by a segmenter all at once.

DPE on the fly re-cuts the whole target side whenever the source is re-cut: one pass of the segmenter an
epoch, whose cuts are kept (`kept_cuts.py`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dpe.text.corpus import read_lines
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.marked_words import MARKER
from dpe.text.segmenters import CountSegmenter
from dpe.text.text_file import TextFile
from dpe.training.interrupts import at_once
from dpe.training.kept_cuts import Cutting, KeptCuts
from dpe.training.processes import Processes

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
