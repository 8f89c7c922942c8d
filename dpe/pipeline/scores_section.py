"""The first section of a run's report: the scores of its systems, their differences, and every seed."""

from __future__ import annotations

from dpe.evaluation.html_page import Html, html_table, missing
from dpe.evaluation.tables import Table
from dpe.pipeline.paper_table import METRIC_NAMES, baseline_of, mean_score, paper_tables
from dpe.pipeline.results import Metric, Results, SystemResult
from dpe.pipeline.verdicts import P_VALUES, SIGNIFICANT, verdict_on_means


def score_blocks(results: Results) -> list[Html]:
    """The paper's table turned, so that it fits a phone: a row for each system; then tests and seeds."""
    lacking = _lacking(results)
    blocks = [missing(f"Not scored yet: {lacking}; 'dpe run' goes on with them.")] if lacking else []
    if not results.systems:
        return blocks
    tests = paper_tables([results])[1:]
    tables = [*(_score_table(results, metric) for metric in METRIC_NAMES), *tests, _seed_table(results)]
    return [*blocks, *map(html_table, tables)]


def _lacking(results: Results) -> str:
    scored = {(system.name, seed.seed) for system in results.systems for seed in system.seeds}
    wanted = [(system, seed) for system in results.recipe.systems for seed in results.recipe.seeds]
    return ", ".join(f"{one.title} seed {seed}" for one, seed in wanted if (one.name, seed) not in scored)


def _score_table(results: Results, metric: Metric) -> Table:
    systems = {system.name: system for system in results.systems}
    columns = [(system.name, system.title) for system in systems.values()]
    rows = []
    for system in systems.values():
        baseline = baseline_of(system.name, columns)
        against = _difference(results, system, systems[baseline], metric) if baseline else ["", "", ""]
        scores = [mean_score(system, metric, text) for text in ("dev", "test")]
        rows.append([system.title, str(len(system.seeds)), *scores, *against])
    signatures = {
        seed.scores["test"][f"{metric}_signature"] for one in systems.values() for seed in one.seeds
    }
    note = [
        "Mean of the seeds ± standard deviation; Δ on test is the difference of the means.",
        f"{P_VALUES} * p < {SIGNIFICANT}.",
        *(f"{METRIC_NAMES[metric]}: {signature}" for signature in sorted(signatures)),
    ]
    left = frozenset({"system", "against"})
    headings = ["system", "seeds", "dev", "test", "Δ", "p", "against"]
    return Table(METRIC_NAMES[metric], headings, rows, left, "\n".join(note))


def _difference(results: Results, system: SystemResult, other: SystemResult, metric: Metric) -> list[str]:
    """Difference on test, p, and from what."""
    found = verdict_on_means(results, system, other, METRIC_NAMES[metric])
    delta = f"{system.mean(metric, 'test') - other.mean(metric, 'test'):+.2f}{found.star if found else ''}"
    return [delta, f"{found.p_value:.4f}" if found else "", other.title]


def _seed_table(results: Results) -> Table:
    rows = [
        [
            system.title,
            str(seed.seed),
            *(f"{seed.scores[text][metric]:.2f}" for metric in METRIC_NAMES for text in ("dev", "test")),
            seed.signature,
        ]
        for system in results.systems
        for seed in system.seeds
    ]
    columns = ["system", "seed", "BLEU dev", "BLEU test", "chrF2 dev", "chrF2 test", "signature"]
    note = "The signature is a hash of all settings and inputs that a score depends on."
    return Table("Every seed", columns, rows, frozenset({"system", "signature"}), note)
