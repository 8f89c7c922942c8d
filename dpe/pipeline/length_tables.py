"""Whether the translations of runs are too short or too long, and BLEU by length of the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dpe.errors import UserError
from dpe.evaluation.plots import draw_lines
from dpe.evaluation.scores import length_label
from dpe.evaluation.tables import Table
from dpe.pipeline.results import Results, SystemResult

_WORDS = "words in the reference"


def length_tables(runs: Sequence[Results], *, text: str = "test") -> list[Table]:
    """How long the outputs of all systems are, then BLEU by length for each run; nothing without scores."""
    scored = [run for run in runs if run.systems]
    if not scored:
        return []
    return [_outputs_table(scored, text), *(by_length_table(run, text=text) for run in scored)]


def by_length_table(run: Results, *, text: str = "test") -> Table:
    """BLEU over the lines of similar length, mean of the seeds: the paper's last figure as a table."""
    means = _by_length(run, text)
    rows = [
        [length_label(part["shortest"], part["longest"]), f"{part['lines']:,}", *_cells(means, number)]
        for number, part in enumerate(_bins(run.systems[0], 0, text))
    ]
    title = f"{run.pair}: BLEU on {text} by length"
    return Table(title, [_WORDS, "lines", *means], rows, frozenset({_WORDS}))


def draw_by_length(run: Results, out: Path, *, text: str = "test") -> list[Path]:
    """The same as a figure."""
    labels = [
        f"{length_label(part['shortest'], part['longest'])}\n{part['lines']:,}"
        for part in _bins(run.systems[0], 0, text)
    ]
    xlabel = f"{_WORDS}, and number of lines"
    return draw_lines(labels, _by_length(run, text), out, xlabel=xlabel, ylabel="BLEU")


def _outputs_table(runs: Sequence[Results], text: str) -> Table:
    rows = [
        [run.pair, run.titles[system.name], *_output_cells(system, text)]
        for run in runs
        for system in run.systems
    ]
    columns = ["", "system", "seeds", "BLEU", "length", "brevity penalty", "BLEU without it"]
    note = (
        "Means of seeds. Length: tokens of the output for each of the reference. "
        "BLEU has the brevity penalty as a factor; the last column is divided by it."
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


def _by_length(run: Results, text: str) -> dict[str, list[float]]:
    """BLEU in each bin by title of the system, mean of the seeds; the lines in a bin are the same for all."""
    return {
        run.titles[system.name]: [
            fmean(part["bleu"] for part in parts)
            for parts in zip(
                *(_bins(system, number, text) for number in range(len(system.seeds))), strict=True
            )
        ]
        for system in run.systems
    }


def _bins(system: SystemResult, number: int, text: str) -> list[dict[str, Any]]:
    bins: list[dict[str, Any]] = _lengths_of(system.seeds[number].scores[text])["by_length"]
    return bins


def _lengths_of(scores: Mapping[str, Any]) -> Mapping[str, Any]:
    if "by_length" not in scores:
        raise UserError(
            "The scores were made by an earlier dpe, without lengths; 'dpe run' makes them again."
        )
    return scores


def _cells(means: Mapping[str, Sequence[float]], number: int) -> list[str]:
    return [f"{values[number]:.2f}" for values in means.values()]
