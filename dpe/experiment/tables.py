"""The tables of one or more runs: scores as in the paper, tests, more texts, lengths, frequency of words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from dpe.errors import UserError
from dpe.evaluation.scores import LengthBin
from dpe.evaluation.tables import Table
from dpe.evaluation.translations import BANDS_NOTE, FREQUENCY, bins_table
from dpe.evaluation.word_frequency import LABELS, metric_name
from dpe.experiment.recipe import Recipe, recipe_json
from dpe.experiment.results import (
    P_OVER_SEEDS,
    P_VALUES,
    SIGNIFICANT,
    Results,
    SystemResult,
    verdict,
    verdict_on_means,
)
from dpe.experiment.systems import DRAWN_SYSTEMS
from dpe.settings import flatten, nearest

METRIC_NAMES = {"bleu": "BLEU", "chrf": "chrF2"}
LOWERCASE = "lowercase_bleu"
_NAMES = METRIC_NAMES | {LOWERCASE: "lowercased BLEU"}  # of what `scores.json` has by these keys
_DEV = "dev"
_LACKING = {"by_length": "lengths", "by_frequency": "frequencies of words"}
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
    runs: Sequence[Results], *, metrics: Sequence[str] = ("bleu",), text: str = "test"
) -> list[Table]:
    """The scores on one text, then the tests behind the stars; nothing without scores."""
    scored = [run for run in runs if run.systems]
    for run in scored:
        if text not in (known := texts_of([run])):
            raise UserError(f"{run.recipe.name} has no scores on {text!r}; {nearest(text, known)}")
    if not scored:
        return []
    tests = _tests_table(runs, text)
    scores = [_score_table(runs, metric, [text]) for metric in metrics]
    return [*scores, *([tests] if tests.rows else [])]


def all_texts_tables(runs: Sequence[Results]) -> list[Table]:
    """The scores on every text but dev, also in lowercased BLEU; nothing where an earlier dpe scored them."""
    seeds = (seed for run in runs for system in run.systems for seed in system.seeds)
    if not all(LOWERCASE in seed.scores["test"] for seed in seeds):
        return []
    texts = [text for text in texts_of(runs) if text != _DEV]
    return [_score_table(runs, metric, texts) for metric in ("bleu", LOWERCASE, "chrf") if texts]


def texts_of(runs: Sequence[Results]) -> list[str]:
    """The texts that some run was scored on, in the order of its recipe."""
    scored = [(run, seed) for run in runs for system in run.systems for seed in system.seeds]
    return list(
        dict.fromkeys(text for run, seed in scored for text in run.recipe.evaluated if text in seed.scores)
    )


def _score_table(runs: Sequence[Results], metric: str, texts: Sequence[str]) -> Table:
    """The paper's table: a row for each run and text, a column for each system, and one for its Δ."""
    columns, several = _columns(runs), len(texts) > 1
    baselines = _baselines(columns, runs)
    rows = [
        [label, *[text] * several, *_cells(run, columns, baselines, metric, text)]
        for label, run in zip(labels(runs), runs, strict=True)
        for text in texts
        if text in texts_of([run]) or not several
    ]
    if len({run.recipe.pair for run in runs}) == len(runs) > 1 and not several:
        rows.append(["average", *_average_cells(runs, columns, baselines, metric, texts[0])])
    seeds = sorted({len(system.seeds) for run in runs for system in run.systems})
    is_tested = metric in METRIC_NAMES and texts != [_DEV]
    note = [
        f"seeds: {' or '.join(map(str, seeds))}",
        *_against(columns, baselines, f"; * p < {SIGNIFICANT} by paired bootstrap" if is_tested else ""),
        *_signatures(runs, metric, texts[0]),
    ]
    where = "all texts" if several else texts[0]
    headings = ["", *["text"] * several, *_row(columns, columns, dict.fromkeys(columns, "Δ"))]
    title = f"{_NAMES[metric]} on {where}: mean of seeds ± standard deviation"
    return Table(title, headings, rows, frozenset({"", "text"}), "\n".join(note))


def _columns(runs: Sequence[Results]) -> _Columns:
    titles: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for system in (system for run in runs for system in run.systems):
        titles[system.name][system.title] = None
    return {name: " or ".join(of_name) for name, of_name in titles.items()}


def _against(columns: _Columns, baselines: Mapping[str, str], star: str) -> list[str]:
    """What Δ means, if there is one."""
    pairs = ((title, baselines[name]) for name, title in columns.items())
    said = ", ".join(f"of {title} against {columns[other]}" for title, other in pairs if other)
    return [f"Δ: {said}{star}"] if said else []


def _cells(
    run: Results, columns: _Columns, baselines: Mapping[str, str], metric: str, text: str
) -> list[str]:
    systems = {system.name: system for system in run.systems}
    score = {name: _mean_score(system, metric, text) for name, system in systems.items()}
    delta = {
        name: _difference(run, system, systems[baseline], metric, text)[0]
        for name, system in systems.items()
        if (baseline := baselines[name]) in systems
    }
    return _row(columns, score, delta)


def _row(columns: _Columns, score: Mapping[str, str], delta: Mapping[str, str]) -> list[str]:
    """The cells of every system: its score, and its Δ, which the first does not have."""
    first, *others = columns
    return [score.get(first, ""), *(one.get(name, "") for name in others for one in (score, delta))]


def _average_cells(
    runs: Sequence[Results], columns: _Columns, baselines: Mapping[str, str], metric: str, text: str
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
    return _row(columns, {name: f"{mean:.2f}" for name, mean in means.items()}, delta)


def _baselines(columns: _Columns, runs: Sequence[Results]) -> dict[str, str]:
    """What each system is compared with: BPE dropout, as in the paper's Δ2, or unigram sampling; BPE dropout
    itself and what is not drawn with the first system, and that one with none.
    """
    first = next(iter(columns))
    types = {run.recipe.vocabulary.type for run in runs}
    drawn = DRAWN_SYSTEMS["unigram" if types == {"unigram"} else "bpe"]
    usual = drawn if drawn in columns else first
    return {name: first if name in (drawn, _PLAIN) else usual for name in columns} | {first: ""}


def _mean_score(system: SystemResult, metric: str, text: str) -> str:
    deviation = system.deviation(metric, text)
    return f"{system.mean(metric, text):.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _difference(
    run: Results, system: SystemResult, other: SystemResult, metric: str, text: str
) -> tuple[str, str]:
    """The difference of means, starred if it is significant, and p, if the very same seeds were tested."""
    difference = f"{system.mean(metric, text) - other.mean(metric, text):+.2f}"
    found = verdict_on_means(run, system, other, _NAMES.get(metric, metric), text)
    return (f"{difference}{found.star}", f"{found.p_value:.4f}") if found else (difference, "")


def _signatures(runs: Sequence[Results], metric: str, text: str) -> list[str]:
    seeds = (seed for run in runs for system in run.systems for seed in system.seeds)
    key = f"{metric.removesuffix('_bleu')}_signature"
    return [f"{_NAMES[metric]}: {one}" for one in sorted({seed.scores[text][key] for seed in seeds})]


def system_tables(run: Results) -> list[Table]:
    """One run for a narrow page: for each metric a row for each system; tests, all texts, every seed."""
    scores = [_system_table(run, metric) for metric in METRIC_NAMES]
    return [*scores, *paper_tables([run])[1:], *all_texts_tables([run]), _seed_table(run)]


def _system_table(run: Results, metric: str) -> Table:
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


def _tests_table(runs: Sequence[Results], text: str) -> Table:
    """Every system but the first against every baseline that it was tested with."""
    metrics, over_seeds = list(METRIC_NAMES.values()), _have_p_over_seeds(runs)
    rows = [
        [label, *pair, *cells]
        for label, run in zip(labels(runs), runs, strict=True)
        for pair, cells in _test_rows(run, metrics, text, over_seeds=over_seeds)
    ]
    columns = ["", "system", "baseline", "seeds"]
    for blank, metric in zip(("", " "), metrics, strict=True):  # equal headings must not be the same
        columns += [metric, "p" + blank, *["p over seeds" + blank] * over_seeds]
    note = _tests_note(over_seeds=over_seeds)
    return Table(f"Paired bootstrap on {text}", columns, rows, frozenset(columns[:3]), note)


def _have_p_over_seeds(runs: Sequence[Results]) -> bool:
    return any(test.p_over_seeds is not None for run in runs for test in run.mean_tests)


def _tests_note(*, over_seeds: bool) -> str:
    return f"Mean differences, in brackets 95 % intervals. {P_VALUES}" + f" {P_OVER_SEEDS}" * over_seeds


def _test_rows(
    run: Results, metrics: Sequence[str], text: str, *, over_seeds: bool
) -> Iterator[tuple[list[str], list[str]]]:
    """Titles and cells of the systems that were tested, without the first, if they have been scored."""
    scored, first = {system.name for system in run.systems}, run.recipe.systems[0].name
    tests = (test for test in (*run.tests, *run.mean_tests) if test.text == text and test.system != first)
    for pair in dict.fromkeys((test.system, test.baseline) for test in tests):
        if scored.issuperset(pair) and (
            cells := _test_cells(run, pair, metrics, text, over_seeds=over_seeds)
        ):
            yield [run.titles[name] for name in pair], cells


def _test_cells(
    run: Results, pair: tuple[str, str], metrics: Sequence[str], text: str, *, over_seeds: bool
) -> list[str]:
    cells: list[str] = []
    for metric in metrics:
        if (found := verdict(run, *pair, metric, text)) is not None:
            interval = f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]" if found.interval else ""
            of_seeds = "" if found.p_over_seeds is None else f"{found.p_over_seeds:.4f}"
            cells = cells or [str(found.seeds)]
            cells += [f"{found.difference:+.2f}{interval}", f"{found.p_value:.4f}", *[of_seeds] * over_seeds]
    return cells


def frequency_tables(runs: Sequence[Results], *, text: str = "test") -> list[Table]:
    """F1 of words by their frequency in the training target for each run, then the tests of all runs."""
    named = [(label, run) for label, run in zip(labels(runs), runs, strict=True) if run.systems]
    over_seeds, rows = _have_p_over_seeds(runs), []
    for (label, run), band in product(named, LABELS):
        for pair, cells in _test_rows(run, [metric_name(band)], text, over_seeds=over_seeds):
            rows.append([label, band, *pair, *cells])
    columns = ["", FREQUENCY, "system", "baseline", "seeds", "F1", "p", *["p over seeds"] * over_seeds]
    note = _tests_note(over_seeds=over_seeds)
    tests = Table(f"Paired bootstrap of F1 on {text}", columns, rows, frozenset(columns[:4]), note)
    return [*(_frequency_table(label, run, text) for label, run in named), *([tests] if rows else [])]


def _frequency_table(label: str, run: Results, text: str) -> Table:
    columns = _columns([run])
    baselines = _baselines(columns, [run])
    (bands, *_), *_ = (_scores_with("by_frequency", system, text) for system in run.systems)
    rows = [
        [
            band["label"],
            f"{band['words']:,}",
            *_cells(run, columns, baselines, metric_name(band["label"]), text),
        ]
        for band in bands["by_frequency"]  # which words a band has is the same for all systems
    ]
    headings = [FREQUENCY, "words", *_row(columns, columns, dict.fromkeys(columns, "Δ"))]
    note = [BANDS_NOTE, *_against(columns, baselines, f"; * p < {SIGNIFICANT} by paired bootstrap")]
    title = f"{label}: F1 of words by frequency on {text}, mean of seeds ± standard deviation"
    return Table(title, headings, rows, frozenset({FREQUENCY}), "\n".join(note))


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
        run.titles[system.name]: [one["by_length"] for one in _scores_with("by_length", system, text)]
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
    scores = _scores_with("by_length", system, text)
    return [
        str(len(scores)),
        f"{mean_of(scores, 'bleu'):.2f}",
        f"{mean_of(scores, 'length_ratio'):.3f}",
        f"{mean_of(scores, 'brevity_penalty'):.3f}",
        f"{fmean(one['bleu'] / (one['brevity_penalty'] or 1) for one in scores):.2f}",
    ]


def _scores_with(key: str, system: SystemResult, text: str) -> list[dict[str, Any]]:
    """The scores of every seed, which must have that key."""
    scores = [seed.scores[text] for seed in system.seeds]
    if not all(key in one for one in scores):
        raise UserError(
            f"The scores were made by an earlier dpe, without {_LACKING[key]}; 'dpe run' makes them again."
        )
    return scores


def mean_of(facts: Sequence[Mapping[str, Any]], key: str) -> float:
    return fmean(float(one[key]) for one in facts)
