"""The paper's table of one or more runs: rows are language pairs, columns are systems."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from dpe.evaluation.tables import Table
from dpe.pipeline.results import Metric, Results, SystemResult
from dpe.pipeline.run_labels import labels
from dpe.pipeline.verdicts import P_VALUES, SIGNIFICANT, verdict, verdict_on_means

_DROPOUT, _PLAIN = "bpe-dropout", "dpe-plain"
METRIC_NAMES: dict[Metric, str] = {"bleu": "BLEU", "chrf": "chrF2"}


def paper_tables(
    runs: Sequence[Results], *, metrics: Sequence[Metric] = ("bleu",), text: str = "test"
) -> list[Table]:
    """The scores, then, of the test text, the tests behind the stars; nothing without scores."""
    if not _columns(runs):
        return []
    tests = [_tests_table(runs)] if text == "test" else []
    scores = [_score_table(runs, metric, text) for metric in metrics]
    return [*scores, *(table for table in tests if table.rows)]


def _score_table(runs: Sequence[Results], metric: Metric, text: str) -> Table:
    columns = _columns(runs)
    rows = [_row(label, run, columns, metric, text) for label, run in zip(labels(runs), runs, strict=True)]
    if len({run.recipe.pair for run in runs}) == len(runs) > 1:
        rows += _average(runs, columns, metric, text)
    return Table(
        f"{METRIC_NAMES[metric]} on {text}: mean of seeds ± standard deviation",
        ["", *(cell for name, title in columns for cell in _headers(name, title, columns))],
        rows,
        frozenset({""}),
        _note(runs, columns, metric, text),
    )


def baseline_of(system: str, columns: Sequence[tuple[str, str]]) -> str | None:
    """BPE dropout as in the paper's Δ2; of itself, and of a system that drops nothing, the first system."""
    names = [name for name, _ in columns]
    if system == names[0]:
        return None
    return _DROPOUT if _DROPOUT in names and system not in (_DROPOUT, _PLAIN) else names[0]


def _columns(runs: Sequence[Results]) -> list[tuple[str, str]]:
    """Name and title, or titles, of every system of any run, in the order in which they come."""
    titles: dict[str, dict[str, None]] = {}
    for system in (system for run in runs for system in run.systems):
        titles.setdefault(system.name, {})[system.title] = None
    return [(name, " or ".join(of_name)) for name, of_name in titles.items()]


def _headers(name: str, title: str, columns: Sequence[tuple[str, str]]) -> list[str]:
    return [title] if baseline_of(name, columns) is None else [title, "Δ"]


def _row(
    label: str, run: Results, columns: Sequence[tuple[str, str]], metric: Metric, text: str
) -> list[str]:
    systems = {system.name: system for system in run.systems}
    cells = [label]
    for name, _ in columns:
        system = systems.get(name)
        cells.append(mean_score(system, metric, text) if system else "")
        if (baseline := baseline_of(name, columns)) is not None:
            other = systems.get(baseline)
            cells.append(_delta(run, system, other, metric, text) if system and other else "")
    return cells


def mean_score(system: SystemResult, metric: Metric, text: str) -> str:
    deviation = system.deviation(metric, text)
    return f"{system.mean(metric, text):.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _delta(run: Results, system: SystemResult, other: SystemResult, metric: Metric, text: str) -> str:
    """The difference of means, with a star where the very same seeds were tested and it is significant."""
    difference = system.mean(metric, text) - other.mean(metric, text)
    found = verdict_on_means(run, system, other, METRIC_NAMES[metric]) if text == "test" else None
    return f"{difference:+.2f}{found.star if found else ''}"


def _average(
    runs: Sequence[Results], columns: Sequence[tuple[str, str]], metric: Metric, text: str
) -> list[list[str]]:
    """The last row of the paper's table, over language pairs: of the systems that every run has."""
    means: dict[str, float] = {}
    for name, _ in columns:
        found = [system.mean(metric, text) for run in runs for system in run.systems if system.name == name]
        if len(found) == len(runs):
            means[name] = fmean(found)
    cells = ["average"]
    for name, _ in columns:
        cells.append(f"{means[name]:.2f}" if name in means else "")
        if (baseline := baseline_of(name, columns)) is not None:
            both = name in means and baseline in means
            cells.append(f"{means[name] - means[baseline]:+.2f}" if both else "")
    return [cells]


def _note(runs: Sequence[Results], columns: Sequence[tuple[str, str]], metric: Metric, text: str) -> str:
    titles = dict(columns)
    names = {baseline_of(name, columns) for name in titles} - {None}
    against = ", ".join(
        f"of {titles[name]} against {titles[baseline]}"
        for name in titles
        if (baseline := baseline_of(name, columns)) in titles and baseline is not None
    )
    seeds = sorted({len(system.seeds) for run in runs for system in run.systems})
    signatures = {
        seed.scores[text][f"{metric}_signature"]
        for run in runs
        for system in run.systems
        for seed in system.seeds
    }
    lines = [f"seeds: {' or '.join(map(str, seeds))}"]
    if names:
        star = f"; * p < {SIGNIFICANT} by paired bootstrap" if text == "test" else ""
        lines.append(f"Δ: {against}{star}")
    return "\n".join([*lines, *(f"{METRIC_NAMES[metric]}: {signature}" for signature in sorted(signatures))])


def _tests_table(runs: Sequence[Results]) -> Table:
    """Every system but the first against every baseline that it was tested with."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        titles = {system.name: system.title for system in run.systems}
        pairs = dict.fromkeys((test.system, test.baseline) for test in run.tests)
        rows += [
            [label, titles[system], titles[baseline], *_test_cells(run, system, baseline)]
            for system, baseline in pairs
            if system in titles and baseline in titles and system != run.recipe.systems[0].name
        ]
    columns = ["", "system", "baseline", "seeds", "BLEU", "p", "chrF2", "p "]
    note = f"Mean differences, in brackets 95 % intervals. {P_VALUES}"
    return Table("Paired bootstrap on test", columns, rows, frozenset(columns[:3]), note)


def _test_cells(run: Results, system: str, baseline: str) -> list[str]:
    cells: list[str] = []
    for metric in METRIC_NAMES.values():
        if (found := verdict(run, system, baseline, metric)) is not None:
            interval = f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]" if found.interval else ""
            cells = cells or [str(found.seeds)]
            cells += [f"{found.difference:+.2f}{interval}", f"{found.p_value:.4f}"]
    return cells
