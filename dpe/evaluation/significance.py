"""Whether two systems differ: over lines by paired bootstrap, over seeds by Welch's t-test.

A resample of the bootstrap draws lines with replacement. A score depends only on sums of counts by line, so a
resample is scored by a weighted sum of these counts, not by its text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
from numpy.typing import NDArray

SAMPLES = 1000
_SEED = 12345  # as sacreBLEU's
_ROUNDING = 1e-9  # of mean scores, which depends on the order of the seeds
_NODES = 200  # of the integral over the t distribution
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """The mean score of one system minus the other's: 95 % interval, and two-sided p of no difference."""

    metric: str
    difference: float
    low: float
    high: float
    p_value: float  # over lines
    p_over_seeds: float | None = None  # where both systems have at least two


def resamples(lines: int, samples: int = SAMPLES) -> Array:
    """How often each line counts, [1 + sample, line]; the first row is the text itself."""
    drawn = np.random.default_rng(_SEED).choice(lines, size=(samples, lines), replace=True)
    return np.array([np.ones(lines), *(np.bincount(sample, minlength=lines) for sample in drawn)])


def difference_of(metric: str, ours: Sequence[Array], baseline: Sequence[Array]) -> Difference:
    """Between two systems, of each of which there are the scores of some seeds.

    A seed's are [1 + sample]: of the text and of its resamples.
    """
    differences = np.mean(ours, axis=0) - np.mean(baseline, axis=0)
    real, resampled = float(differences[0]), differences[1:]
    low, high = np.percentile(resampled, [2.5, 97.5])
    as_far = np.abs(resampled - resampled.mean()) >= abs(real) - _ROUNDING
    p_value = (int(as_far.sum()) + 1) / (len(resampled) + 1)
    sides = [[float(scores[0]) for scores in side] for side in (ours, baseline)]
    return Difference(metric, real, float(low), float(high), p_value, welch(*sides))


def welch(ours: Sequence[float], others: Sequence[float]) -> float | None:
    """Two-sided p of equal means of two samples with unequal variances (Welch's t-test).

    None where it is not defined: a sample of one, or no variance at all.
    """
    if min(len(ours), len(others)) < 2:
        return None
    parts = [variance(sample) / len(sample) for sample in (ours, others)]
    if not (total := sum(parts)):
        return None
    freedom = total**2 / sum(
        part**2 / (len(sample) - 1) for part, sample in zip(parts, (ours, others), strict=True)
    )
    return _two_tails(abs(fmean(ours) - fmean(others)) / math.sqrt(total), freedom)


def _two_tails(t: float, freedom: float) -> float:
    """The share of Student's distribution beyond t on both sides; `freedom` is at least 1.

    With t = sqrt(freedom) tan(a), its density is a power of cos(a), which is easy to integrate.
    """
    begin = math.atan(t / math.sqrt(freedom))
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    half = (math.pi / 2 - begin) / 2
    tail = half * float(weights @ np.cos(begin + half * (1 + nodes)) ** (freedom - 1))
    whole = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2)) * math.sqrt(math.pi)
    return min(2 * tail / whole, 1.0)
