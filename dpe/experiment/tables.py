"""The paper's table of one or more runs: rows are language pairs, columns are systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from dpe.errors import UserError
from dpe.evaluation.score_report import bins_table
from dpe.evaluation.scores import LengthBin
from dpe.evaluation.tables import Table
from dpe.experiment.recipe import Recipe
from dpe.experiment.results import (
    P_VALUES,
    SIGNIFICANT,
    Metric,
    Results,
    SystemResult,
    verdict,
    verdict_on_means,
)
from dpe.experiment.systems import SEGMENTER_TITLES
from dpe.experiment.writing import recipe_json
from dpe.settings import flatten

_NOT_TELLING = ("name", "about", "systems", "seeds", "cut", "examples")  # what is run and shown, not how


def labels(runs: Sequence[Results]) -> list[str]:
    """The pair; of runs of one pair also the recipe's name, the settings that differ, or else a number."""
    recipes = [run.recipe for run in runs]
    words = [[recipe.pair] for recipe in recipes]
    for describe in (_names, _settings, _numbers):
        for alike in _groups(words):
            described = describe([recipes[index] for index in alike])
            if len(set(described)) > 1:
                for index, more in zip(alike, described, strict=True):
                    words[index].append(more)
    return [_label(pair, [word for word in more if word]) for pair, *more in words]


def _label(pair: str, more: Sequence[str]) -> str:
    return f"{pair} ({', '.join(more)})" if more else pair


def _groups(words: Sequence[Sequence[str]]) -> list[list[int]]:
    """The indices of those that have the same words."""
    found: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(words):
        found.setdefault(tuple(one), []).append(index)
    return list(found.values())


def _names(recipes: Sequence[Recipe]) -> list[str]:
    return [recipe.name for recipe in recipes]


def _settings(recipes: Sequence[Recipe]) -> list[str]:
    """Those that are not the same in all, as `--set` takes them; what is left to the preset is not said."""
    tables = [_telling(recipe) for recipe in recipes]
    differ = [key for key in tables[0] if any(table.get(key) != tables[0][key] for table in tables)]
    return [
        ", ".join(f"{key}={table[key]}" for key in differ if table.get(key) is not None) for table in tables
    ]


def _telling(recipe: Recipe) -> dict[str, Any]:
    """The settings that may tell two runs apart, nested keys as `translator.steps`."""
    flat = flatten(recipe_json(recipe))
    return {key: value for key, value in flat.items() if key.rpartition(".")[2] not in _NOT_TELLING}


def _numbers(recipes: Sequence[Recipe]) -> list[str]:
    return [f"run {number}" for number in range(1, len(recipes) + 1)]


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


def training_table(runs: Sequence[Results]) -> Table:
    """A row for every segmenter and for the translators of every system, which differ in their seeds only."""
    rows = [[label, *row] for label, run in zip(labels(runs), runs, strict=True) for row in _rows(run)]
    columns = ["", "model", "network", "trained", "updates", "epochs", "on dev", "hours each"]
    return Table("Training", columns, rows, frozenset(columns[:3]), _note_training_table(runs))


def _rows(run: Results) -> list[list[str]]:
    titles = {f"translators/{system.name}": f"translator, {system.title}" for system in run.systems}
    titles |= {f"segmenters/{name}": f"segmenter, {title}" for name, title in SEGMENTER_TITLES.items()}
    trained = [(_model(name), stage) for name, stage in run.stages.items() if _model(name) in titles]
    return [
        [titles[name], *_cells([stage for _, stage in stages])]
        for name, stages in groupby(trained, key=lambda pair: pair[0])
    ]


def _model(stage: str) -> str:
    """`translators/dpe/seed-1` is one of `translators/dpe`."""
    return stage.partition("/seed-")[0]


def _cells(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    network, facts = stages[0]["settings"]["network"], [stage["facts"] for stage in stages]
    return [
        f"d {network['width']}, {network['encoder_layers']}+{network['decoder_layers']} layers",
        str(len(stages)),
        f"{_mean(facts, 'steps'):,.0f}",
        f"{_mean(facts, 'epochs'):.0f}" if _mean(facts, "epochs") >= 1 else "under 1",
        _on_dev(facts),
        f"{_mean(facts, 'training_seconds') / 3600:.2f}",
    ]


def _on_dev(facts: Sequence[Mapping[str, Any]]) -> str:
    if "dev_bits_per_character" in facts[0]:
        return f"{_mean(facts, 'dev_bits_per_character'):.3f} bits"
    return f"{_mean(facts, 'dev_bleu_greedy'):.2f} BLEU"


def _mean(facts: Sequence[Mapping[str, Any]], key: str) -> float:
    return fmean(float(one[key]) for one in facts)


def _is_cut_on_the_fly(run: Results) -> bool:
    """Whether a translator was trained on cuts that are made anew every epoch."""
    names = {system.name for system in run.recipe.systems if system.target == "dpe"}
    return any(system.name in names for system in run.systems)


def _note_training_table(runs: Sequence[Results]) -> str:
    trained = [(run, one) for run in runs for one in run.stages.values() if "network" in one["settings"]]
    used = [stage.get("machine") or run.machine for run, stage in trained]
    machines = dict.fromkeys(f"{one['cpu']}, {one['cores']} cores" for one in used)
    on_the_fly = any(_is_cut_on_the_fly(run) for run in runs)
    cutting = "Hours include cutting on the fly, which the first seed does for all. " if on_the_fly else ""
    return (
        "On dev: bits a character, or BLEU of greedy translations; of the best epoch. "
        f"{cutting}{'; '.join(machines)}."
    )
