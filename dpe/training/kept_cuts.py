"""A segmenter's cuts of one text, kept on disk and made once, whoever needs them.

Each way of cutting is a file whose name is a hash of everything that its cuts depend on, so a file that
exists is right, whoever made it: a training with another seed of the network, one that was killed, or the
stage of a run that shows how the text is cut.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from dpe.locks import lock_file, try_lock, wait_for_lock
from dpe.progress import Progress
from dpe.text.text_file import ParallelText


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
        key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        return self.directory / f"{key[:16]}.epoch-{cutting.epoch:03}.pieces.gz"

    def make(self, cutting: Cutting) -> Path:
        """Cut the text unless that was done; where it is being done, wait."""
        path = self.path(cutting)
        if not path.exists():
            with _alone_with(path, self.progress):
                if not path.exists():  # who was alone with it before may have made it
                    epoch = f" for epoch {cutting.epoch + 1}" if cutting.is_random else ""
                    self.progress.say(f"cutting the target side{epoch}")
                    self.cutter.cut(path, cutting)
        return path

    @cached_property
    def _about_text(self) -> dict[str, str | int | None]:
        about = self.text.describe()
        return about if self.cutter.has_source else about | {"source": None}


@contextmanager
def _alone_with(path: Path, progress: Progress) -> Iterator[None]:
    """Keep others from making the same cuts: they wait, and find the work done. Other cuts do not wait."""
    with lock_file(path.parent / ".locks" / f"{path.name}.lock", place=path.parent) as file:
        if not try_lock(file):
            progress.say(f"waiting for another process, which makes {path}")
            wait_for_lock(file)
        yield
