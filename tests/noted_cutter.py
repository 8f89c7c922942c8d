"""A segmenter that notes every batch that it begins, and may be killed in the middle of one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dpe.corpus_run.cluster import Cluster
from dpe.corpus_run.lines import LineCutter
from dpe.corpus_run.run import Answers, CorpusRun, CorpusText, NumberedPairs
from dpe.model.checkpoint import MODEL
from dpe.progress import QUIET, Progress
from dpe.segmenter.segmenter import fingerprint, refuse_another
from dpe.segmenter.settings import SegmentSettings

BATCH = 700  # characters


class NotedCutter:
    """Segments; notes the lines of every batch that it begins, and may be killed in the middle of one."""

    def __init__(
        self,
        directory: Path,
        notes: Path,
        victim: int | None = None,
        replacement: Path | None = None,
        *,
        device: str,
        batch_characters: int,
    ) -> None:
        settings = SegmentSettings()
        self._cut = LineCutter(directory, settings, device=device, batch_characters=batch_characters)
        self._directory, self._notes, self._victim = directory, notes, victim
        self._replacement = replacement

    def __call__(self, lines: NumberedPairs) -> Answers:
        with self._notes.open("a") as file:
            file.write(json.dumps(list(lines.numbers)) + "\n")
        found = self._cut(lines)
        killed = self._notes.with_suffix(".killed")
        if self._victim in lines.numbers and not killed.exists():
            killed.touch()
            if self._replacement is not None:
                shutil.copy(self._replacement / MODEL, self._directory / MODEL)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)
        return found


class Said(Progress):
    def __init__(self) -> None:
        super().__init__(QUIET)
        self.states: list[str] = []

    def update(self, text: str) -> None:
        self.states.append(text)


def corpus(directory: Path, cluster: Cluster | None, *noted: Any) -> tuple[CorpusRun, CorpusText, Said]:
    """A run of the segmenter over the text of the directory."""
    said = Said()
    run = CorpusRun(
        partial(NotedCutter, directory / "segmenter", *noted),
        device=torch.device("cpu"),
        workers=2 if cluster else 1,
        batch_characters=BATCH,
        progress=said,
        check=partial(refuse_another, directory / "segmenter", fingerprint(directory / "segmenter")),
        cluster=cluster,
    )
    return run, CorpusText(directory / "x.en", directory / "x.fi", has_source=True), said


def batches(notes: Path) -> Counter[tuple[int, ...]]:
    """How often each batch was begun."""
    return Counter(tuple(json.loads(line)) for line in notes.read_text().splitlines())
