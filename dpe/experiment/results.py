"""The results of a run, from its artifacts alone: one JSON file that says what was measured and how."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import permutations, starmap
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dpe import __version__
from dpe.errors import UserError
from dpe.evaluation.word_frequency import metric_name
from dpe.experiment.artifacts import RECORD, read_record, write_json
from dpe.experiment.recipe import Recipe, recipe_from_json, recipe_json
from dpe.machine import machine, versions

RECIPE, PLAN, RESULTS = "recipe.json", "plan.json", "results.json"
_PACKAGES = ("torch", "ctranslate2", "sentencepiece", "sacrebleu")


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """One translator: its scores by text (`dev`, `test`), as `scores.json` has them, and its training."""

    seed: int
    signature: str  # of the scores artifact
    scores: dict[str, dict[str, Any]]
    training: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SystemResult:
    """One system over its seeds."""

    name: str
    title: str
    seeds: list[SeedResult]

    def values(self, metric: str, text: str) -> list[float]:
        """By seed; a metric is a key of the scores, or F1 of the words of a band, as tests name it."""
        return [_score_of(seed.scores[text], metric) for seed in self.seeds]

    def mean(self, metric: str, text: str) -> float:
        return fmean(self.values(metric, text))

    def deviation(self, metric: str, text: str) -> float | None:
        """Of a sample (n - 1); none of a single seed."""
        values = self.values(metric, text)
        return stdev(values) if len(values) > 1 else None


def _score_of(scores: dict[str, Any], metric: str) -> float:
    f1 = {metric_name(band["label"]): band["f1"] for band in scores.get("by_frequency", ())}
    return float((scores | f1)[metric])


@dataclass(frozen=True, kw_only=True)
class SystemTest:
    """A paired bootstrap on a test text between two translators of one seed, or two means over seeds."""

    system: str
    baseline: str
    seed: int | None = None  # None: the means
    metric: str  # BLEU, chrF2, or F1 of the words of a band
    text: str = "test"
    difference: float
    p_value: float
    p_over_seeds: float | None = None  # Welch's t-test, of means
    low: float | None = None  # 95 % interval
    high: float | None = None
    signature: str = ""  # sacreBLEU's, by whose test results of older versions have p, of one tail

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that a run has measured so far."""

    recipe: Recipe
    systems: list[SystemResult]
    tests: list[SystemTest]
    mean_tests: list[SystemTest]  # of systems all of whose seeds are there
    stages: dict[str, dict[str, Any]]  # signature, settings, seconds, facts and machine by stage
    versions: dict[str, str]
    machine: dict[str, Any]  # of the stage that took longest

    def as_json(self) -> dict[str, Any]:
        hidden = ("seed", "signature")
        means = [{k: v for k, v in asdict(one).items() if k not in hidden} for one in self.mean_tests]
        return asdict(self) | {"recipe": recipe_json(self.recipe), "mean_tests": means}

    @cached_property
    def titles(self) -> dict[str, str]:
        """Every system's title by its name; the name is added where another has the same title."""
        count = Counter(system.title for system in self.recipe.systems)
        return {
            one.name: one.title if count[one.title] == 1 else f"{one.title} ({one.name})"
            for one in self.recipe.systems
        }


def collect_results(root: Path) -> Results:
    """What the artifacts of a run say; those of other settings or other inputs are left out."""
    recipe, current = read_run_recipe(root), _current_records(root)

    def seeds(kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The seeds whose artifacts of this kind are up to date, with their records."""
        found = [re.fullmatch(f"{re.escape(kind)}/seed-([0-9]+)", name) for name in current]
        for seed in sorted(int(name[1]) for name in found if name):
            yield seed, current[f"{kind}/seed-{seed}"]

    systems, tests, mean_tests = [], [], []
    for system in recipe.systems:
        results = [
            SeedResult(
                seed=seed,
                signature=record["signature"],
                scores=record["facts"],
                training=current.get(f"translators/{system.name}/seed-{seed}", {}).get("facts", {}),
            )
            for seed, record in seeds(f"scores/{system.name}")
        ]
        if results:
            systems.append(SystemResult(name=system.name, title=system.title, seeds=results))
    for one, other in permutations([system.name for system in recipe.systems], 2):
        for seed, record in seeds(f"significance/{one}/{other}"):
            tests += [
                SystemTest(system=one, baseline=other, seed=seed, **t) for t in record["facts"]["tests"]
            ]
        mean = current.get(f"significance/{one}/{other}/mean", {"facts": {"tests": []}})
        mean_tests += [SystemTest(system=one, baseline=other, **test) for test in mean["facts"]["tests"]]
    shown = ("signature", "settings", "seconds", "facts", "machine")
    stages = {name: {key: one[key] for key in shown if key in one} for name, one in current.items()}
    longest = max(stages.values(), key=lambda stage: float(stage["seconds"]), default={})
    return Results(
        recipe=recipe,
        systems=systems,
        tests=tests,
        mean_tests=mean_tests,
        stages=stages,
        versions={"dpe": __version__} | versions(_PACKAGES),
        machine=longest.get("machine") or machine(),
    )


def _current_records(root: Path) -> dict[str, dict[str, Any]]:
    """The records of the finished artifacts that the recipe that was run last would make, as its plan says,
    and whose needs are still the same; a record that was adopted stands for its old signature too.
    """
    plan = root / PLAN
    planned = _read_json(plan, f"{plan} is damaged; run the recipe again.") if plan.exists() else None
    records: dict[str, dict[str, Any]] = {}
    for path in sorted(root.glob(f"**/{RECORD}")):
        name, record = path.parent.relative_to(root).as_posix(), read_record(path.parent)
        if record and record["finished"] and record["stage"] == name:  # what was set aside has another name
            records[name] = record

    @cache
    def is_current(name: str, signature: str) -> bool:
        if (record := records.get(name)) is None:
            return False
        signatures = (record["signature"], record.get("adopted", record["signature"]))
        is_planned = not planned or planned.get(name) in signatures
        return is_planned and signature in signatures and all(starmap(is_current, record["needs"].items()))

    return {name: record for name, record in records.items() if is_current(name, record["signature"])}


def read_run_recipe(root: Path) -> Recipe:
    """The recipe of a run, without the location of its files."""
    complaint = f"{root} is not a run of dpe, because it has no readable {RECIPE}; see 'dpe run'."
    return recipe_from_json(_read_json(root / RECIPE, complaint), str(root / RECIPE))


def write_results(root: Path) -> Results:
    """Collect the results into `results.json`, which stands for the run wherever it is copied."""
    results = collect_results(root)
    write_json(root / RESULTS, results.as_json())
    return results


def read_results(path: Path) -> Results:
    """Of a run directory, or of a `results.json` from one."""
    if path.is_dir():
        return collect_results(path)
    found = _read_json(path, f"{path} is neither a run directory nor the results.json of one.")
    try:
        systems = [
            SystemResult(**{**system, "seeds": [SeedResult(**seed) for seed in system["seeds"]]})
            for system in found["systems"]
        ]
        tests = [SystemTest(**test) for test in found["tests"]]
        means = [SystemTest(**test) for test in found["mean_tests"]]
        recipe = recipe_from_json(found["recipe"], str(path))
        read = {"recipe": recipe, "systems": systems, "tests": tests, "mean_tests": means}
        return Results(**{**found, **read})
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is not the results.json of a run; give one, or a run directory.") from error


def _read_json(path: Path, complaint: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content.items())
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(complaint) from error


SIGNIFICANT = 0.05
P_VALUES = (
    "p: paired bootstrap over the lines of the mean of the seeds, two-sided; until all seeds are there, the "
    "largest p of a seed."
)
P_OVER_SEEDS = "Over seeds: Welch's t-test, two-sided, which asks what other trainings would give."


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A difference on a test text and how sure it is."""

    seeds: int
    difference: float
    interval: tuple[float, float] | None  # 95 %; of a mean, or of a single seed
    p_value: float
    p_over_seeds: float | None = None

    @property
    def star(self) -> str:
        return "*" if self.p_value < SIGNIFICANT else ""


def verdict_on_means(
    results: Results, system: SystemResult, baseline: SystemResult, metric: str, text: str
) -> Verdict | None:
    """Of the difference between two means; None where other seeds were tested than are in the means."""
    found = verdict(results, system.name, baseline.name, metric, text)
    is_of_these = found is not None and found.seeds == len(system.seeds) == len(baseline.seeds)
    return found if is_of_these else None


def verdict(results: Results, system: str, baseline: str, metric: str, text: str) -> Verdict | None:
    """None where nothing has been tested."""
    wanted = (system, baseline, metric, text)
    for mean in results.mean_tests:
        if (mean.system, mean.baseline, mean.metric, mean.text) == wanted:
            return Verdict(
                seeds=len(results.recipe.seeds),
                difference=mean.difference,
                interval=mean.interval,
                p_value=mean.p_value,
                p_over_seeds=mean.p_over_seeds,
            )
    single = [
        test for test in results.tests if (test.system, test.baseline, test.metric, test.text) == wanted
    ]
    if not single:
        return None
    return Verdict(
        seeds=len(single),
        difference=fmean(test.difference for test in single),
        interval=single[0].interval if len(single) == 1 else None,
        p_value=max(test.p_value for test in single),
    )
