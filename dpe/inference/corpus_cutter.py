"""A segmenter that cuts one training text again and again, for a translator that learns from its cuts."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from dpe.errors import UserError
from dpe.inference.corpus_run import CorpusRun, CorpusText
from dpe.inference.line_answers import CutSettings, EpochDraws, LineCutter
from dpe.inference.segmenter import BATCH_CHARACTERS, fingerprint
from dpe.progress import Progress
from dpe.text.files import Stamp
from dpe.training.checkpoint import read_settings
from dpe.training.kept_cuts import Cutting
from dpe.training.processes import choose_device


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
        run = CorpusRun.of(
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
