"""One start of a training: when it ends, what it computes on, whom it tells."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpe.progress import QUIET, Progress
from dpe.training.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When training ends: at the first of these."""

    epochs: int | None = None
    steps: int | None = None  # updates
    patience: int | None = None  # epochs without a better score
    average: int = 1  # epochs whose weights are averaged at the end

    def goes_on_from(self, earlier: Stopping) -> bool:
        """Whether a training that stopped by `earlier` can be continued to this.

        Never with an average: the one made then would be lost.
        """
        pairs = (
            (self.epochs, earlier.epochs),
            (self.steps, earlier.steps),
            (self.patience, earlier.patience),
        )
        longer = all(now is None or (before is not None and now >= before) for now, before in pairs)
        return longer and self.average == earlier.average == 1


def _silence() -> Progress:
    return Progress(QUIET)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What may differ between two starts of one training.

    Another number of processes changes the size of an update.
    """

    stopping: Stopping
    processes: Processes = field(default_factory=Processes)
    progress: Progress = field(default_factory=_silence)
    save_seconds: float = 300.0  # the longest time that a kill can cost
