"""What the commands that train a model have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dpe.progress import QUIET, Progress

if TYPE_CHECKING:
    from dpe.training.settings import Session, Stopping


@contextmanager
def training_session(
    context: typer.Context,
    out: Path,
    stopping: Stopping,
    *,
    device: str,
    threads: int | None,
    save_minutes: float,
) -> Iterator[Session]:
    """Join the other processes, of which the first talks; leave them with a picture of the curve."""
    from dpe.evaluation.plots import draw_training_curve
    from dpe.model.checkpoint import CURVE, PICTURE
    from dpe.model.device import use_threads
    from dpe.training.log import read_curve
    from dpe.training.processes import join_processes, leave_processes
    from dpe.training.settings import Session

    use_threads(threads)
    processes = join_processes(device)
    yield Session(
        stopping=stopping,
        processes=processes,
        progress=context.obj if processes.first else Progress(QUIET),
        save_seconds=60 * save_minutes,
    )
    if processes.first:
        draw_training_curve(read_curve(out / CURVE), out / PICTURE)
    leave_processes(processes)
