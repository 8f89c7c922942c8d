"""The tables of one or more runs: scores as in the paper, tests, lengths of the outputs, training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from dpe.errors import UserError
from dpe.evaluation.scores import LengthBin
from dpe.evaluation.tables import Table
from dpe.evaluation.translations import bins_table
from dpe.experiment.recipe import Recipe, recipe_json
from dpe.experiment.results import (
    P_VALUES,
    SIGNIFICANT,
    Metric,
    Results,
    SystemResult,
    verdict,
    verdict_on_means,
)
from dpe.experiment.systems import DRAWN_SYSTEMS, SEGMENTER_TITLES
from dpe.model.settings import model_settings
from dpe.segmenter.settings import SegmenterSettings
from dpe.settings import flatten
from dpe.translator.settings import TranslatorSettings

METRIC_NAMES: dict[Metric, str] = {"bleu": "BLEU", "chrf": "chrF2"}
_NOT_TELLING = ("name", "about", "systems", "seeds", "cut", "examples")  # what is run and shown, not how
_PLAIN = "dpe-plain"
_Columns = Mapping[str, str]  # the systems of a table: title, or titles, by name


def labels(runs: Sequence[Results]) -> list[str]:
    """The pair; for runs of one pair also the recipe's name, the settings that differ, or else a number."""
    recipes = [run.recipe for run in runs]
    words = [[recipe.pair] for recipe in recipes]
    descriptions: tuple[Callable[[Sequence[Recipe]], list[str]], ...] = (
        lambda group: [recipe.name for recipe in group],
        _differing_settings,
        lambda group: [f"run {number}" for number, _ in enumerate(group, start=1)],
    )
    for describe in descriptions:
        groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)  # runs with the same words
        for index, known in enumerate(words):
            groups[tuple(known)].append(index)
        for group in groups.values():
            described = describe([recipes[index] for index in group])
            if len(set(described)) > 1:
                for index, more in zip(group, described, strict=True):
                    words[index].append(more)
    said = [(pair, ", ".join(filter(None, more))) for pair, *more in words]
    return [f"{pair} ({more})" if more else pair for pair, more in said]


def _differing_settings(recipes: Sequence[Recipe]) -> list[str]:
    """The settings that are not the same in all, as `--set` takes them; defaults are left out."""
    flat = [flatten(recipe_json(recipe)) for recipe in recipes]
    keys = dict.fromkeys(key for one in flat for key in one if key.rpartition(".")[2] not in _NOT_TELLING)
    differ = [key for key in keys if any(one.get(key) != flat[0].get(key) for one in flat)]
    return [", ".join(f"{key}={one[key]}" for key in differ if key in one) for one in flat]


def paper_tables(
    runs: Sequence[Results], *, metrics: Sequence[Metric] = ("bleu",), text: str = "test"
) -> list[Table]:
    """The scores, then, for the test text, the tests behind the stars; nothing without scores."""
    if not any(run.systems for run in runs):
        return []
    tests = _tests_table(runs) if text == "test" else None
    scores = [_score_table(runs, metric, text) for metric in metrics]
    return [*scores, tests] if tests and tests.rows else scores


def _score_table(runs: Sequence[Results], metric: Metric, text: str) -> Table:
    """The paper's table: a row for each run, a column for each system, and one for its Δ."""
    titles: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for system in (system for run in runs for system in run.systems):
        titles[system.name][system.title] = None
    columns = {name: " or ".join(of_name) for name, of_name in titles.items()}
    baselines = _baselines(columns, runs)
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        systems = {system.name: system for system in run.systems}
        score = {name: _mean_score(system, metric, text) for name, system in systems.items()}
        delta = {
            name: _difference(run, system, systems[baseline], metric, text)[0]
            for name, system in systems.items()
            if (baseline := baselines[name]) in systems
        }
        rows.append(_row(label, columns, score, delta))
    if len({run.recipe.pair for run in runs}) == len(runs) > 1:
        rows.append(_average_row(runs, columns, baselines, metric, text))
    against = ", ".join(
        f"of {title} against {columns[baseline]}"
        for name, title in columns.items()
        if (baseline := baselines[name])
    )
    star = f"; * p < {SIGNIFICANT} by paired bootstrap" if text == "test" else ""
    seeds = sorted({len(system.seeds) for run in runs for system in run.systems})
    note = [
        f"seeds: {' or '.join(map(str, seeds))}",
        *([f"Δ: {against}{star}"] if against else []),
        *_signatures(runs, metric, text),
    ]
    title = f"{METRIC_NAMES[metric]} on {text}: mean of seeds ± standard deviation"
    headings = _row("", columns, columns, dict.fromkeys(columns, "Δ"))
    return Table(title, headings, rows, frozenset({""}), "\n".join(note))


def _row(label: str, columns: _Columns, score: Mapping[str, str], delta: Mapping[str, str]) -> list[str]:
    """The cells of every system: its score, and its Δ, which the first does not have."""
    first, *others = columns
    return [label, score.get(first, ""), *(one.get(name, "") for name in others for one in (score, delta))]


def _average_row(
    runs: Sequence[Results], columns: _Columns, baselines: Mapping[str, str], metric: Metric, text: str
) -> list[str]:
    """The last row of the paper's table, over language pairs: of the systems that every run has."""
    means: dict[str, float] = {}
    for name in columns:
        found = [system.mean(metric, text) for run in runs for system in run.systems if system.name == name]
        if len(found) == len(runs):
            means[name] = fmean(found)
    delta = {
        name: f"{mean - means[baseline]:+.2f}"
        for name, mean in means.items()
        if (baseline := baselines[name]) in means
    }
    return _row("average", columns, {name: f"{mean:.2f}" for name, mean in means.items()}, delta)


def _baselines(columns: _Columns, runs: Sequence[Results]) -> dict[str, str]:
    """What each system is compared with: BPE dropout, as in the paper's Δ2, or unigram sampling; BPE dropout
    itself and what is not drawn with the first system, and that one with none.
    """
    first = next(iter(columns))
    types = {run.recipe.vocabulary.type for run in runs}
    drawn = DRAWN_SYSTEMS["unigram" if types == {"unigram"} else "bpe"]
    usual = drawn if drawn in columns else first
    return {name: first if name in (drawn, _PLAIN) else usual for name in columns} | {first: ""}


def _mean_score(system: SystemResult, metric: Metric, text: str) -> str:
    deviation = system.deviation(metric, text)
    return f"{system.mean(metric, text):.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _difference(
    run: Results, system: SystemResult, other: SystemResult, metric: Metric, text: str
) -> tuple[str, str]:
    """The difference of means, starred if it is significant, and p, if the very same seeds were tested."""
    difference = f"{system.mean(metric, text) - other.mean(metric, text):+.2f}"
    found = verdict_on_means(run, system, other, METRIC_NAMES[metric]) if text == "test" else None
    return (f"{difference}{found.star}", f"{found.p_value:.4f}") if found else (difference, "")


def _signatures(runs: Sequence[Results], metric: Metric, text: str) -> list[str]:
    seeds = (seed for run in runs for system in run.systems for seed in system.seeds)
    found = {seed.scores[text][f"{metric}_signature"] for seed in seeds}
    return [f"{METRIC_NAMES[metric]}: {signature}" for signature in sorted(found)]


def system_tables(run: Results) -> list[Table]:
    """One run for a narrow page: for each metric a row for each system; then the tests, and every seed."""
    scores = [_system_table(run, metric) for metric in METRIC_NAMES]
    return [*scores, *paper_tables([run])[1:], _seed_table(run)]


def _system_table(run: Results, metric: Metric) -> Table:
    """The paper's table turned."""
    systems = {system.name: system for system in run.systems}
    columns = {name: system.title for name, system in systems.items()}
    baselines = _baselines(columns, [run])
    rows = []
    for name, system in systems.items():
        against = ["", "", ""]
        if baseline := baselines[name]:
            against = [*_difference(run, system, systems[baseline], metric, "test"), columns[baseline]]
        scores = [_mean_score(system, metric, text) for text in ("dev", "test")]
        rows.append([system.title, str(len(system.seeds)), *scores, *against])
    note = [
        "Mean of the seeds ± standard deviation; Δ on test is the difference of the means.",
        f"{P_VALUES} * p < {SIGNIFICANT}.",
        *_signatures([run], metric, "test"),
    ]
    headings = ["system", "seeds", "dev", "test", "Δ", "p", "against"]
    return Table(METRIC_NAMES[metric], headings, rows, frozenset({"system", "against"}), "\n".join(note))


def _seed_table(run: Results) -> Table:
    rows = [
        [
            system.title,
            str(seed.seed),
            *(f"{seed.scores[text][metric]:.2f}" for metric in METRIC_NAMES for text in ("dev", "test")),
            seed.signature,
        ]
        for system in run.systems
        for seed in system.seeds
    ]
    columns = ["system", "seed", "BLEU dev", "BLEU test", "chrF2 dev", "chrF2 test", "signature"]
    note = "The signature is a hash of all settings and inputs that a score depends on."
    return Table("Every seed", columns, rows, frozenset({"system", "signature"}), note)


def _tests_table(runs: Sequence[Results]) -> Table:
    """Every system but the first against every baseline that it was tested with."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        titles = {system.name: system.title for system in run.systems}
        for system, baseline in dict.fromkeys((test.system, test.baseline) for test in run.tests):
            if system in titles and baseline in titles and system != run.recipe.systems[0].name:
                rows.append([label, titles[system], titles[baseline], *_test_cells(run, system, baseline)])
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
    named = list(zip(labels(scored), scored, strict=True))
    columns = ["", "system", "seeds", "BLEU", "length", "brevity penalty", "BLEU without it"]
    outputs = Table(
        f"Lengths of the translations of {text}",
        columns,
        [
            [label, run.titles[system.name], *_output_cells(system, text)]
            for label, run in named
            for system in run.systems
        ],
        frozenset(columns[:2]),
        "Means of seeds. Length: tokens of the output for each of the reference. "
        "BLEU has the brevity penalty as a factor; the last column is divided by it, "
        "which favours short outputs.",
    )
    bins = [bins_table(mean_bins(run, text), f"{label}: BLEU on {text} by length") for label, run in named]
    return [outputs, *bins]


def mean_bins(run: Results, text: str = "test") -> list[LengthBin]:
    """BLEU over the lines of similar length, by title of the system, mean of the seeds."""
    bins = {
        run.titles[system.name]: [one["by_length"] for one in _with_lengths(system, text)]
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


def _output_cells(system: SystemResult, text: str) -> list[str]:
    scores = _with_lengths(system, text)
    return [
        str(len(scores)),
        f"{_mean(scores, 'bleu'):.2f}",
        f"{_mean(scores, 'length_ratio'):.3f}",
        f"{_mean(scores, 'brevity_penalty'):.3f}",
        f"{fmean(one['bleu'] / (one['brevity_penalty'] or 1) for one in scores):.2f}",
    ]


def _with_lengths(system: SystemResult, text: str) -> list[dict[str, Any]]:
    """The scores of every seed."""
    scores = [seed.scores[text] for seed in system.seeds]
    if not all("by_length" in one for one in scores):
        raise UserError(
            "The scores were made by an earlier dpe, without lengths; 'dpe run' makes them again."
        )
    return scores


def training_table(runs: Sequence[Results]) -> Table:
    """A row for every segmenter and for the translators of every system, which differ in their seeds only."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        titles = {f"translators/{system.name}": f"translator, {system.title}" for system in run.systems}
        titles |= {f"segmenters/{name}": f"segmenter, {title}" for name, title in SEGMENTER_TITLES.items()}
        # `translators/dpe/seed-1` is one of `translators/dpe`
        stages = [(name.partition("/seed-")[0], stage) for name, stage in run.stages.items()]
        trained = (pair for pair in stages if pair[0] in titles)
        for name, group in groupby(trained, key=lambda pair: pair[0]):
            rows.append([label, titles[name], *_training_cells([stage for _, stage in group])])
    columns = ["", "model", "network", "trained", "updates", "epochs", "on dev", "hours each"]
    return Table("Training", columns, rows, frozenset(columns[:3]), _training_note(runs))


def _training_cells(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    facts = [stage["facts"] for stage in stages]
    is_segmenter = "dev_bits_per_character" in facts[0]
    kind = SegmenterSettings if is_segmenter else TranslatorSettings
    network = model_settings(stages[0]["settings"], kind, "results.json")
    return [
        f"d {network.width}, {network.encoder_layers}+{network.decoder_layers} layers",
        str(len(stages)),
        f"{_mean(facts, 'steps'):,.0f}",
        f"{_mean(facts, 'epochs'):.0f}" if _mean(facts, "epochs") >= 1 else "under 1",
        f"{_mean(facts, 'dev_bits_per_character'):.3f} bits"
        if is_segmenter
        else f"{_mean(facts, 'dev_bleu_greedy'):.2f} BLEU",
        f"{_mean(facts, 'training_seconds') / 3600:.2f}",
    ]


def _mean(facts: Sequence[Mapping[str, Any]], key: str) -> float:
    return fmean(float(one[key]) for one in facts)


def _training_note(runs: Sequence[Results]) -> str:
    models = ("segmenters/", "translators/")
    trained = [(run, one) for run in runs for name, one in run.stages.items() if name.startswith(models)]
    used = [stage.get("machine") or run.machine for run, stage in trained]
    machines = dict.fromkeys(f"{one['cpu']}, {one['cores']} cores" for one in used)
    on_the_fly = any(
        {system.name for system in run.recipe.systems if system.target == "dpe"}
        & {system.name for system in run.systems}
        for run in runs
    )
    cutting = "Hours include cutting on the fly, which the first seed does for all. " if on_the_fly else ""
    return (
        "On dev: bits a character, or BLEU of greedy translations; of the best epoch. "
        f"{cutting}{'; '.join(machines)}."
    )
