"""Welch's test against scipy's; the bootstrap is tested with the scores that it resamples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpe.evaluation.significance import difference_of, resamples, welch

scores = st.lists(st.floats(0, 100).map(lambda x: round(x, 2)), min_size=2, max_size=9)


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy, of equal scores
@given(scores, scores)
def test_welch_is_scipys(ours: list[float], others: list[float]) -> None:
    found = welch(ours, others)
    if len(set(ours)) == len(set(others)) == 1:
        assert found is None
    else:
        wanted = stats.ttest_ind(ours, others, equal_var=False).pvalue
        assert found == pytest.approx(wanted, rel=1e-4, abs=1e-12)


def test_welch_needs_two_of_each() -> None:
    assert welch([30.0], [31.0, 32.0]) is None
    assert welch([30.0, 31.0], [32.0]) is None


def test_the_difference_has_p_over_seeds_only_of_several() -> None:
    weights = resamples(4, 10)
    assert weights.shape == (11, 4)
    assert (weights.sum(axis=1) == 4).all()
    seeds = [weights @ np.array(lines) for lines in ([1.0, 2, 3, 4], [2.0, 3, 3, 4], [0.0, 1, 1, 0])]
    assert difference_of("x", seeds[:1], seeds[1:]).p_over_seeds is None
    wanted = stats.ttest_ind([10.0, 12.0], [12.0, 2.0], equal_var=False).pvalue
    assert difference_of("x", seeds[:2], seeds[1:]).p_over_seeds == pytest.approx(wanted)
