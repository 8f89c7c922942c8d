"""Whether the translations of runs are too short or too long, and BLEU by length of the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from dpe.errors import UserError
from dpe.evaluation.score_report import bins_table
from dpe.evaluation.scores import LengthBin
from dpe.evaluation.tables import Table
from dpe.pipeline.results import Results, SystemResult
from dpe.pipeline.run_labels import labels


def length_tables(runs: Sequence[Results], *, text: str = "test") -> list[Table]:
    """How long the outputs of all systems are, then BLEU by length for each run; nothing without scores."""
    scored = [run for run in runs if run.systems]
    if not scored:
        return []
    by_length = [
        bins_table(mean_bins(run, text), f"{label}: BLEU on {text} by length")
        for label, run in zip(labels(scored), scored, strict=True)
    ]
    return [_outputs_table(scored, text), *by_length]


def mean_bins(run: Results, text: str = "test") -> list[LengthBin]:
    """BLEU over the lines of similar length, by title of the system, mean of the seeds."""
    bins = {
        run.titles[system.name]: [_lengths_of(seed.scores[text])["by_length"] for seed in system.seeds]
        for system in run.systems
    }
    first = next(iter(bins.values()))[0]  # which lines are in a bin is the same for all
    return [
        LengthBin(
            part["shortest"],
            part["longest"],
            part["lines"],
            {title: fmean(seed[number]["bleu"] for seed in seeds) for title, seeds in bins.items()},
        )
        for number, part in enumerate(first)
    ]


def _outputs_table(runs: Sequence[Results], text: str) -> Table:
    rows = [
        [label, run.titles[system.name], *_output_cells(system, text)]
        for label, run in zip(labels(runs), runs, strict=True)
        for system in run.systems
    ]
    columns = ["", "system", "seeds", "BLEU", "length", "brevity penalty", "BLEU without it"]
    note = (
        "Means of seeds. Length: tokens of the output for each of the reference. "
        "BLEU has the brevity penalty as a factor; the last column is divided by it, "
        "which favours short outputs."
    )
    return Table(f"Lengths of the translations of {text}", columns, rows, frozenset(columns[:2]), note)


def _output_cells(system: SystemResult, text: str) -> list[str]:
    scores = [_lengths_of(seed.scores[text]) for seed in system.seeds]
    return [
        str(len(scores)),
        f"{fmean(one['bleu'] for one in scores):.2f}",
        f"{fmean(one['length_ratio'] for one in scores):.3f}",
        f"{fmean(one['brevity_penalty'] for one in scores):.3f}",
        f"{fmean(one['bleu'] / (one['brevity_penalty'] or 1) for one in scores):.2f}",
    ]


def _lengths_of(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    if "by_length" not in scores:
        raise UserError(
            "The scores were made by an earlier dpe, without lengths; 'dpe run' makes them again."
        )
    return scores
