"""Whether one system is better than another, by the mean of their seeds or by the seed that is least sure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from dpe.pipeline.results import Results, SystemResult

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
