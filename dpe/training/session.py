"""One start of a training: when it ends, what it computes on, whom it tells; the next start may differ."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpe.progress import QUIET, Progress
from dpe.training.processes import Processes
from dpe.training.settings import Stopping


def _silence() -> Progress:
    return Progress(QUIET)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What the settings of a training do not say. Other processes make updates of another size."""

    stopping: Stopping
    processes: Processes = field(default_factory=Processes)
    progress: Progress = field(default_factory=_silence)
    save_seconds: float = 300.0  # the longest time that a kill can cost
