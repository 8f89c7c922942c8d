"""The targets of every line in an epoch: segmented by counts line by line, or by a segmenter all at once.

DPE on the fly segments the whole target side whenever the source is segmented anew: one pass of the segmenter
an epoch. Its result is a file whose name holds a key of everything that it depends on, so one that exists is
right, whether it was made by another training, by one that was killed, or by a stage of a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Protocol

from dpe.corpus_run.join import join
from dpe.corpus_run.lines import LineCutter
from dpe.corpus_run.output import record_file
from dpe.corpus_run.run import WHOLE, WINDOW, CorpusRun, Shard
from dpe.errors import UserError
from dpe.files import Stamp, whole_text_file
from dpe.machine import cores
from dpe.model.checkpoint import MODEL, read_settings
from dpe.model.device import choose_device
from dpe.model.settings import model_settings
from dpe.progress import QUIET, Progress
from dpe.segmenter.segmenter import BATCH_CHARACTERS, fingerprint
from dpe.segmenter.settings import SegmenterSettings, SegmentSettings
from dpe.settings import changed
from dpe.store import key_of, make_once
from dpe.text.corpus import read_lines
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.segmenters import CountSegmenter
from dpe.text.text_file import ParallelText, TextFile
from dpe.text.words import MARKER
from dpe.training.processes import Processes, Session
from dpe.training.trainer import at_once
from dpe.translator.settings import TranslatorSettings

_SECONDS_BETWEEN_LOOKS = 0.2
_COMPARED = 200_000  # lines; about a second

# The pieces of a line's target: (line number, text) -> pieces. It is sent to worker processes.
CutTarget = Callable[[int, str], list[str]]


class EpochTargets(Protocol):
    """Segmentations of the target side, epoch by epoch."""

    def start(self, epoch: int) -> CutTarget:
        """Called once an epoch, before its first line; a segmenter segments the whole text here."""

    def report(self) -> dict[str, float]:
        """Numbers about the current epoch, for the curve."""


@dataclass(frozen=True)
class CountTargets:
    """Count-based targets; random ones are drawn anew every epoch, apart from the source's draws."""

    segmenter: CountSegmenter
    seed: int

    def start(self, epoch: int) -> CutTarget:
        return partial(self._cut, epoch)

    def _cut(self, epoch: int, line: int, text: str) -> list[str]:
        return self.segmenter.cut(text, Draw(self.seed + TARGET_STREAM, epoch, line))

    def report(self) -> dict[str, float]:
        return {}


class KeptCuts:
    """A segmenter's targets for one text, kept in `directory` and made once, whichever training needs them.

    A segmenter without a source does not read it. On a CPU it runs in `session.workers` processes.
    """

    def __init__(self, segmenter: Path, text: ParallelText, directory: Path, session: Session) -> None:
        record = read_settings(segmenter, "segmenter")
        self.has_source = model_settings(record, SegmenterSettings, str(segmenter)).source
        self.fingerprint = fingerprint(segmenter)
        self._stamp = Stamp.of(segmenter / MODEL)
        self._segmenter, self._directory, self._session = segmenter, directory, session
        self._text = text if self.has_source else replace(text, source=None)
        self._about = {"cutter": self.fingerprint, "text": self._text.describe()}

    def path(self, settings: SegmentSettings) -> Path:
        """Where these targets are, or will be."""
        key = key_of(self._about | changed(settings))
        return self._directory / f"{key}.epoch-{settings.epoch:03}.pieces.gz"

    def make(self, settings: SegmentSettings, processes: Processes | None = None) -> Path:
        """Segment the text unless that was done; what another process makes is waited for.

        The `processes` of a training segment some lines each, and look for files: a collective has a limit.
        """
        processes = processes or Processes(device=choose_device(self._session.device))
        path, begin, say = self.path(settings), time.monotonic(), self._session.progress.say
        shards = _shards(len(self._text), processes.world)
        parts = [path.with_name(f"{path.stem}.{n}-of-{len(shards)}.gz") for n in range(len(shards))]

        def part(out: Path) -> None:
            if not path.exists():  # as it does if another training had the parts and joined them
                self._segment(out, settings, processes, shards[processes.rank])

        def whole(out: Path) -> None:
            if len(parts) == 1:
                self._segment(out, settings, processes)
            else:
                _look_for(parts)
                join(parts, out, progress=self._session.progress)
            with whole_text_file(_seconds_file(out)) as file:  # of this start; an earlier one was killed
                file.write(f"{time.monotonic() - begin:.1f}\n")

        own = parts[processes.rank] if 1 < len(parts) > processes.rank else None
        if own and not path.exists():
            make_once(own, part)
        if processes.first:
            waiting = f"waiting for another process, which makes {path}"
            make_once(path, whole, waiting=lambda: say(waiting))
        _look_for([path])
        if own:
            remove_cuts(own)
        return path

    def seconds(self, settings: SegmentSettings) -> float | None:
        """How long these targets took; None where an older version made them."""
        path = _seconds_file(self.path(settings))
        return float(path.read_text(encoding="utf-8")) if path.exists() else None

    def _segment(
        self, out: Path, settings: SegmentSettings, processes: Processes, lines: Shard = WHOLE
    ) -> None:
        """Write the pieces of target lines to `out`; resumes what a killed process left."""
        progress = self._session.progress if processes.first else Progress(QUIET)
        epoch = f" for epoch {settings.epoch + 1}" if settings.is_random else ""
        progress.say(f"segmenting the target side{epoch}")
        on_gpu = processes.device.type == "cuda"
        together = None if on_gpu or processes.world == 1 else max(cores() // processes.world, 1)
        run = CorpusRun(
            partial(LineCutter, self._segmenter, settings),
            device=processes.device,
            workers=self._session.workers or together,
            batch_characters=BATCH_CHARACTERS,
            progress=progress,
        )
        about = {"cutter": self.fingerprint, **changed(settings)}
        run.write(self._text, out, about, force=False, lines=lines)
        if Stamp.of(self._segmenter / MODEL) != self._stamp:  # the name of `out` holds the key of the first
            out.unlink(missing_ok=True)
            raise UserError(f"{self._segmenter} was trained further while it was in use; start again.")


def _shards(lines: int, most: int) -> list[Shard]:
    """The lines of a text in equal shards, one for each process where there are enough."""
    windows = -(-lines // WINDOW)
    count = min(max(windows, 1), most)
    bounds: list[int | None] = [windows * n // count * WINDOW for n in range(count)]
    return [Shard(begin or 0, end) for begin, end in pairwise([*bounds, None])]


def _look_for(files: list[Path]) -> None:
    """Wait until the files are there."""
    while not all(file.exists() for file in files):
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def remove_cuts(path: Path) -> None:
    """Remove targets, with what is kept about them."""
    for file in (path, record_file(path), _seconds_file(path)):
        file.unlink(missing_ok=True)


def _seconds_file(cuts: Path) -> Path:
    return cuts.with_name(f"{cuts.name}.seconds")


class SegmenterTargets:
    """A segmenter's targets, one file per epoch; `work` holds those of the current one, uncompressed.

    The files of the last `keep` epochs are kept; None: all.
    """

    def __init__(
        self,
        cuts: KeptCuts,
        settings: TranslatorSettings,
        *,
        work: Path,
        processes: Processes,
        keep: int | None = None,
    ) -> None:
        self._cuts, self._processes, self._work, self._keep = cuts, processes, work / "cuts", keep
        follows = settings.source_method if settings.target_method == "dpe" and cuts.has_source else None
        self._settings = SegmentSettings(
            source_dropout=settings.bpe_dropout if follows == "bpe-dropout" else 0.0,
            source_alpha=settings.unigram_alpha if follows == "unigram" else None,
            mode="best" if settings.target_sampling is None else "sample",
            temperature=settings.target_sampling or 1.0,
            seed=settings.cut_seed,
        )
        self._report: dict[str, float] = {}
        self._started = time.monotonic()

    def start(self, epoch: int) -> CutTarget:
        begin = time.monotonic()
        path = self.path(epoch)
        with at_once():  # the training was saved at the end of the epoch before
            self._cuts.make(self._settings_of(epoch), self._processes)
            text = self._open(path)
        before = self.path(epoch - 1)
        self._report = {"cutting_seconds": round(time.monotonic() - begin, 2)}
        if epoch == 0 or before != path:
            taken = self._cuts.seconds(self._settings_of(epoch))
            self._report |= {} if taken is None else {"targets_took_seconds": taken}
        if self._processes.first and epoch and before != path:
            if before.exists():
                lines, words = changed_shares(before, path)
                self._report |= {"changed_lines": lines, "changed_words": words}
            for old in range(epoch + 1 - self._keep if self._keep else 0):
                remove_cuts(self.path(old))
        self._started = time.monotonic()
        return partial(_pieces_of_line, text)

    def report(self) -> dict[str, float]:
        """Seconds of the epoch, and the share of lines and words that changed.

        It waited `cutting_seconds` for its targets, which took longer where somebody else had made them.
        """
        return self._report | {"training_seconds": round(time.monotonic() - self._started, 2)}

    def path(self, epoch: int) -> Path:
        """Where the targets of an epoch are, or will be."""
        return self._cuts.path(self._settings_of(epoch))

    def _settings_of(self, epoch: int) -> SegmentSettings:
        return replace(self._settings, epoch=epoch) if self._settings.is_random else SegmentSettings()

    def _open(self, path: Path) -> TextFile:
        """The targets by line; the uncompressed ones of other epochs, which all processes have left, go."""
        if self._processes.first:
            for other in self._work.glob("[!.]*.epoch-*"):
                if not other.name.startswith(path.name):
                    other.unlink(missing_ok=True)
        return TextFile.open(path, cache=self._work)


def _pieces_of_line(pieces: TextFile, line: int, text: str) -> list[str]:
    """What `CutTarget` wants, from the file of an epoch; its `text` is not needed."""
    return [piece for piece in pieces[line].split(" ") if piece]


def changed_shares(before: Path, after: Path, *, most: int = _COMPARED) -> tuple[float, float]:
    """Which share of the lines, and of the words, are segmented differently in two files of pieces.

    The first `most` lines are compared, because other processes may be waiting.
    """
    lines = words = changed_lines = changed_words = 0
    for one, other in islice(zip(read_lines(before), read_lines(after), strict=True), most):
        lines += 1
        words += one.count(MARKER)
        if one != other:
            changed_lines += 1
            between = f"{MARKER} " if one.endswith(MARKER) else f" {MARKER}"
            pairs = zip(one.split(between), other.split(between), strict=False)
            changed_words += sum(a != b for a, b in pairs)
    return changed_lines / max(lines, 1), changed_words / max(words, 1)
