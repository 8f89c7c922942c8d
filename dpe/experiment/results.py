"""The results of a run, from its artifacts alone: one JSON file that says what was measured and how."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

from dpe import __version__
from dpe.errors import UserError
from dpe.experiment.artifacts import Artifacts, write_json
from dpe.experiment.recipe import Recipe, recipe_from_json, recipe_json
from dpe.experiment.systems import System
from dpe.machine import machine, versions

RECIPE, PLAN, RESULTS = "recipe.json", "plan.json", "results.json"
Metric = Literal["bleu", "chrf"]
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

    def values(self, metric: Metric, text: str) -> list[float]:
        return [float(seed.scores[text][metric]) for seed in self.seeds]

    def mean(self, metric: Metric, text: str) -> float:
        return fmean(self.values(metric, text))

    def deviation(self, metric: Metric, text: str) -> float | None:
        """Of a sample (n - 1); none of a single seed."""
        values = self.values(metric, text)
        return stdev(values) if len(values) > 1 else None


@dataclass(frozen=True, kw_only=True)
class SeedTest:
    """A paired bootstrap on the test text between two translators of one seed."""

    system: str
    baseline: str
    seed: int
    metric: str  # BLEU, chrF2
    difference: float
    p_value: float
    low: float | None = None  # 95 % interval
    high: float | None = None
    signature: str = ""  # sacreBLEU's, by whose test results of older versions have p, of one tail

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class MeanTest:
    """A paired bootstrap on the test text between the means of two systems' seeds, with its 95 % interval."""

    system: str
    baseline: str
    metric: str  # BLEU, chrF2
    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that a run has measured so far."""

    recipe: Recipe
    systems: list[SystemResult]
    tests: list[SeedTest]
    mean_tests: list[MeanTest]  # of systems all of whose seeds are there
    stages: dict[str, dict[str, Any]]  # signature, settings, seconds, facts and machine by stage
    versions: dict[str, str]
    machine: dict[str, Any]  # of the stage that took longest

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"recipe": recipe_json(self.recipe)}

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
    artifacts = _RecipeArtifacts(root)
    recipe = read_run_recipe(root)
    systems = [_system_result(artifacts, system) for system in recipe.systems]
    pairs = [(one.name, other.name) for one, other in permutations(recipe.systems, 2)]
    stages = _stages(artifacts)
    longest = max(stages.values(), key=lambda stage: float(stage["seconds"]), default={})
    return Results(
        recipe=recipe,
        systems=[system for system in systems if system.seeds],
        tests=[test for pair in pairs for test in _tests(artifacts, *pair)],
        mean_tests=[test for pair in pairs for test in _mean_tests(artifacts, *pair)],
        stages=stages,
        versions={"dpe": __version__} | versions(_PACKAGES),
        machine=longest.get("machine") or machine(),
    )


def read_run_recipe(root: Path) -> Recipe:
    """The recipe of a run, without the place of its files."""
    path = root / RECIPE
    table = _read_json(path, f"{root}: is no run of dpe (no {RECIPE} to read); see 'dpe run'.")
    return recipe_from_json(table, str(path))


class _RecipeArtifacts(Artifacts):
    """Only what the recipe that was run last would make, as its plan says."""

    @cached_property
    def _planned(self) -> dict[str, str]:
        path = self.root / PLAN
        return _read_json(path, f"{path}: is damaged; run the recipe again.") if path.exists() else {}

    def is_current(self, name: str) -> bool:
        record = self.record(name)
        if record and self._planned and record["signature"] != self._planned.get(name):
            return False
        return super().is_current(name)


def write_results(root: Path) -> Results:
    """Collect the results into `results.json`, which stands for the run wherever it is copied."""
    results = collect_results(root)
    write_json(root / RESULTS, results.as_json())
    return results


def read_results(path: Path) -> Results:
    """Of a run directory, or of a `results.json` from one."""
    if path.is_dir():
        return collect_results(path)
    found = _read_json(path, f"{path}: is neither a run directory nor the results of one.")
    try:
        systems = [
            SystemResult(**{**system, "seeds": [SeedResult(**seed) for seed in system["seeds"]]})
            for system in found["systems"]
        ]
        tests = [SeedTest(**test) for test in found["tests"]]
        means = [MeanTest(**test) for test in found["mean_tests"]]
        recipe = recipe_from_json(found["recipe"], str(path))
        read = {"recipe": recipe, "systems": systems, "tests": tests, "mean_tests": means}
        return Results(**{**found, **read})
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: is not the results.json of a run; give one, or a run directory.") from error


def _system_result(artifacts: Artifacts, system: System) -> SystemResult:
    name = system.name
    seeds = []
    for seed, stage in _seeds(artifacts, "scores", name):
        record = artifacts.record(stage) or {}
        seeds.append(
            SeedResult(
                seed=seed,
                signature=record["signature"],
                scores=record["facts"],
                training=_facts(artifacts, f"translators/{name}/seed-{seed}"),
            )
        )
    return SystemResult(name=name, title=system.title, seeds=seeds)


def _tests(artifacts: Artifacts, system: str, baseline: str) -> list[SeedTest]:
    return [
        SeedTest(system=system, baseline=baseline, seed=seed, **one)
        for seed, stage in _seeds(artifacts, f"significance/{system}", baseline)
        for one in _facts(artifacts, stage)["tests"]
    ]


def _mean_tests(artifacts: Artifacts, system: str, baseline: str) -> list[MeanTest]:
    stage = f"significance/{system}/{baseline}/mean"
    found = _facts(artifacts, stage)["tests"] if artifacts.is_current(stage) else []
    return [MeanTest(system=system, baseline=baseline, **test) for test in found]


def _facts(artifacts: Artifacts, stage: str) -> dict[str, Any]:
    facts: dict[str, Any] = (artifacts.record(stage) or {}).get("facts", {})
    return facts


def _seeds(artifacts: Artifacts, kind: str, system: str) -> list[tuple[int, str]]:
    """The seeds of a system whose artifacts of this kind are up to date, with their stages."""
    found = []
    for directory in (artifacts.root / kind / system).glob("seed-*"):
        number, stage = directory.name.removeprefix("seed-"), f"{kind}/{system}/{directory.name}"
        if number.isdigit() and artifacts.is_current(stage):  # what was put aside has a suffix
            found.append((int(number), stage))
    return sorted(found)


def _stages(artifacts: Artifacts) -> dict[str, dict[str, Any]]:
    """Signature, settings, time and facts of every artifact that is up to date."""
    stages = {}
    for path in sorted(artifacts.root.glob("**/artifact.json")):
        name = path.parent.relative_to(artifacts.root).as_posix()
        record = artifacts.record(name)
        if record and record["stage"] == name and artifacts.is_current(name):
            shown = ("signature", "settings", "seconds", "facts", "machine")
            stages[name] = {key: record[key] for key in shown if key in record}
    return stages


def _read_json(path: Path, complaint: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(complaint) from error
    if not isinstance(content, dict):
        raise UserError(complaint)
    return content


SIGNIFICANT = 0.05
P_VALUES = (
    "p: paired bootstrap over the lines of the mean of the seeds, two-sided; until all seeds are there, the "
    "largest p of a seed."
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A difference on the test text and how sure it is."""

    seeds: int
    difference: float
    interval: tuple[float, float] | None  # 95 %; of a mean, or of a single seed
    p_value: float

    @property
    def star(self) -> str:
        return "*" if self.p_value < SIGNIFICANT else ""


def verdict_on_means(
    results: Results, system: SystemResult, baseline: SystemResult, metric: str
) -> Verdict | None:
    """Of the difference between two means; None where other seeds were tested than are in the means."""
    found = verdict(results, system.name, baseline.name, metric)
    is_of_these = found is not None and found.seeds == len(system.seeds) == len(baseline.seeds)
    return found if is_of_these else None


def verdict(results: Results, system: str, baseline: str, metric: str) -> Verdict | None:
    """On BLEU or chrF2; None where nothing has been tested."""
    pair = (system, baseline, metric)
    for mean in results.mean_tests:
        if (mean.system, mean.baseline, mean.metric) == pair:
            return Verdict(
                seeds=len(results.recipe.seeds),
                difference=mean.difference,
                interval=(mean.low, mean.high),
                p_value=mean.p_value,
            )
    single = [test for test in results.tests if (test.system, test.baseline, test.metric) == pair]
    if not single:
        return None
    return Verdict(
        seeds=len(single),
        difference=fmean(test.difference for test in single),
        interval=single[0].interval if len(single) == 1 else None,
        p_value=max(test.p_value for test in single),
    )
