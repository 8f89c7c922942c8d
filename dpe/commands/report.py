"""The command `report`: a run as one page to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpe.progress import Progress


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command("report")(report)


def report(
    context: typer.Context,
    *,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write. [default: RUN/report.html]")
    ] = None,
) -> None:
    """Write a run as one HTML file that needs nothing else: scores, curves, figures, cuts, a lattice.

    A part that the run has not made yet is named as such. The last section says how to repeat the run.

    Example: `dpe report runs/demo`
    """
    from dpe.pipeline.reporting import REPORT, RunReport

    progress: Progress = context.obj
    path = out or run / REPORT
    RunReport(run).write(path)
    progress.say(f"{path}: the report")
