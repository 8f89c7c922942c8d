"""The command `report`: a run as one page to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpe.commands.options import named_file
from dpe.errors import UserError
from dpe.progress import Progress


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command("report")(report)


def report(
    context: typer.Context,
    *,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, finished or not.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=named_file, help="Where to write. [default: RUN/report.html]"),
    ] = None,
) -> None:
    """Write a run as one HTML file that needs nothing else: scores, curves, figures, cuts, a lattice.

    A part that the run has not made yet is named as such. The last section says how to repeat the run.

    Example: `dpe report runs/demo`
    """
    from dpe.pipeline.run_report import REPORT, RunReport

    progress: Progress = context.obj
    path = out or run / REPORT
    _refuse_file_of_run(path, run)
    RunReport(run).write(path)
    progress.say(f"{path}: the report")


def _refuse_file_of_run(out: Path, run: Path) -> None:
    """Refuse to replace what the run made; an earlier page may go."""
    is_page = out.suffix in (".html", ".htm")
    if out.is_file() and not is_page and out.resolve().is_relative_to(run.resolve()):
        raise UserError(f"{out}: is a file of the run; give the report another name.")
