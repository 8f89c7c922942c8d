"""The n best cuts of a sentence against all combinations of its words' cuts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpe.lattice import dynamic_program as dp
from dpe.lattice.n_best import sentence_n_best
from tests import oracles
from tests.strategies import lattices, tied_scores

Lattice = tuple[Tensor, Tensor]
MINUS_INFINITY = float("-inf")
property_test = settings(max_examples=50)


def every_combination(word_lists: list[list[float]]) -> list[tuple[float, tuple[int, ...]]]:
    """All choices of one cut per word, in the order that `sentence_n_best` promises."""

    def order(ranks: tuple[int, ...]) -> tuple[list[float], tuple[int, ...]]:
        sums = list(itertools.accumulate(scores[r] for scores, r in zip(word_lists, ranks, strict=True)))
        return [-total for total in reversed(sums)], ranks

    ordered = sorted(itertools.product(*(range(len(scores)) for scores in word_lists)), key=order)
    return [(sum(scores[r] for scores, r in zip(word_lists, ranks, strict=True)), ranks) for ranks in ordered]


def falling_lists(scores: st.SearchStrategy[float]) -> st.SearchStrategy[list[list[float]]]:
    falling = st.lists(scores, min_size=1, max_size=5).map(lambda values: sorted(values, reverse=True))
    return st.lists(falling, max_size=4)


@property_test
@given(st.one_of(falling_lists(st.floats(-20, 0)), falling_lists(tied_scores)), st.integers(1, 12))
def test_sentence_n_best_is_the_head_of_all_combinations(word_lists: list[list[float]], n: int) -> None:
    found = sentence_n_best(word_lists, n)
    expected = every_combination(word_lists)[:n]
    assert [score for score, _ in found] == pytest.approx([score for score, _ in expected])
    assert found == expected


def test_sentence_n_best_leaves_out_cuts_that_do_not_exist() -> None:
    assert sentence_n_best([[-1.0, MINUS_INFINITY], [-2.0]], 5) == [(-3.0, (0, 0))]
    assert sentence_n_best([[-1.0], []], 5) == []


def test_sentence_n_best_of_many_words_does_not_enumerate() -> None:
    """Of 400 words with 20 cuts each exactly one leaves its first cut in the 2nd to 401st best."""
    found = sentence_n_best([[-float(rank) for rank in range(20)]] * 400, 402)
    assert [score for score, _ in found] == [0.0] + [-1.0] * 400 + [-2.0]


@property_test
@given(lattices(connected=True, max_words=3, max_length=4), st.integers(1, 6))
def test_sentence_n_best_over_the_words_n_best_is_exact(lattice: Lattice, n: int) -> None:
    words = [
        [score for _, score in oracles.enumerate_cuts(scores, length)]
        for scores, length in zip(lattice[0], lattice[1].tolist(), strict=True)
    ]
    expected = sorted((sum(choice) for choice in itertools.product(*words)), reverse=True)[:n]
    found = sentence_n_best(dp.n_best(*lattice, n=n).scores.tolist(), n)
    assert [score for score, _ in found] == pytest.approx(expected)
