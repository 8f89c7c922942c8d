"""Two systems, each with one translation or those of several seeds: their mean scores on resampled lines.

All seeds of both systems are scored on the same resampled lines, which asks whether these models would differ
as much on another test text of the kind. How much the models of one system differ among themselves is not in
it; their standard deviation says that. sacreBLEU's own test takes one translation of each and counts one
tail, so its p is about half of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric

from dpe.evaluation.scores import SystemOutput, metrics

_SAMPLES = 1000
_SEED = 12345  # as sacreBLEU's
_ROUNDING = 1e-9  # of mean scores, which depends on the order of the seeds


@dataclass(frozen=True)
class Difference:
    """The mean score of one system minus the other's: 95 % interval, and two-sided p of no difference."""

    metric: str
    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    ours: Sequence[SystemOutput],
    baseline: Sequence[SystemOutput],
    reference: Sequence[str],
    *,
    samples: int = _SAMPLES,
    tokenize: str | None = None,
) -> list[Difference]:
    """Every translation is one seed's; the two systems may have different numbers of seeds."""
    counts = _resampled_counts(len(reference), samples)
    found = []
    for name, metric in metrics(tokenize).items():
        means = [
            np.mean([_scores(metric, one.lines, reference, counts) for one in seeds], axis=0)
            for seeds in (ours, baseline)
        ]
        found.append(_summary(name, means[0] - means[1]))
    return found


def _resampled_counts(lines: int, samples: int) -> NDArray[np.float64]:
    """How often each resample takes each line; the first row is the text itself."""  # [1 + sample, line]
    drawn = np.random.default_rng(_SEED).choice(lines, size=(samples, lines), replace=True)
    counts = [np.bincount(sample, minlength=lines) for sample in drawn]
    return np.array([np.ones(lines), *counts])


def _summary(metric: str, differences: NDArray[np.float64]) -> Difference:
    """Of the difference on the text itself, which comes first, and on its resamples."""
    real, resampled = float(differences[0]), differences[1:]
    low, high = np.percentile(resampled, [2.5, 97.5])
    as_far = np.abs(resampled - resampled.mean()) >= abs(real) - _ROUNDING
    p_value = (int(as_far.sum()) + 1) / (len(resampled) + 1)
    return Difference(metric, real, float(low), float(high), p_value)


def _scores(
    metric: Metric, lines: Sequence[str], reference: Sequence[str], counts: NDArray[np.float64]
) -> list[float]:
    """The corpus score of every resample, from sums of sacreBLEU's counts by line."""
    by_line = metric._extract_corpus_statistics(lines, [reference])  # what its own bootstrap calls
    sums = counts @ np.array(by_line, dtype=np.float64)  # [1 + sample, statistic]
    return [cast(Any, metric._compute_score_from_stats(one)).score for one in sums.tolist()]
