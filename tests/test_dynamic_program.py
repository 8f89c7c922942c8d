"""The dynamic program against brute force, definitions and an independent recursion."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from dpe.errors import UserError
from dpe.lattice import dynamic_program as dp
from tests import oracles
from tests.strategies import lattices, tied_scores

Lattice = tuple[Tensor, Tensor]
MINUS_INFINITY = float("-inf")
property_test = settings(max_examples=50)


def cut_of(boundaries: Tensor) -> oracles.Cut:
    """Boundaries [position] as a tuple of positions."""
    return tuple(boundaries.nonzero().flatten().tolist())


def random_uniforms(lattice: Lattice, draws: int, seed: int = 0) -> Tensor:
    words, starts, _ = lattice[0].shape
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(draws, words, starts, generator=generator, dtype=torch.float64)


def full_lattice(length: int, max_span: int, fill: Callable[..., Tensor] = torch.zeros) -> Lattice:
    """One word in which every span up to `max_span` is a piece."""
    edge_scores = fill(1, length, max_span, dtype=torch.float64)
    for start, span in itertools.product(range(length), range(max_span)):
        if start + span + 1 > length:
            edge_scores[0, start, span] = MINUS_INFINITY
    return edge_scores, torch.tensor([length])


def seeded_normal(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def posteriors(lattice: Lattice) -> list[dict[oracles.Cut, float]]:
    edge_scores, lengths = lattice
    return [oracles.posterior(edge_scores[w], length) for w, length in enumerate(lengths.tolist())]


def close(actual: Tensor, expected: list[float] | Tensor, tolerance: float = 1e-9) -> None:
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# Against brute force


@property_test
@given(lattices())
def test_log_partition_is_the_sum_over_all_cuts(lattice: Lattice) -> None:
    edge_scores, lengths = lattice
    expected = [
        oracles.log_sum_exp([score for _, score in oracles.enumerate_cuts(edge_scores[w], length)])
        for w, length in enumerate(lengths.tolist())
    ]
    close(dp.log_partition(edge_scores, lengths), expected)


@property_test
@given(lattices())
def test_edge_marginals_sum_the_cuts_that_use_the_edge(lattice: Lattice) -> None:
    expected = torch.zeros_like(lattice[0])
    for word, cuts in enumerate(posteriors(lattice)):
        for cut, probability in cuts.items():
            for start, end in itertools.pairwise(cut):
                expected[word, start, end - start - 1] += probability
    close(dp.edge_marginals(*lattice), expected)


@property_test
@given(lattices())
def test_boundary_probabilities_sum_the_cuts_that_stop_there(lattice: Lattice) -> None:
    words, starts, _ = lattice[0].shape
    expected = torch.zeros(words, starts + 1, dtype=torch.float64)
    for word, cuts in enumerate(posteriors(lattice)):
        for cut, probability in cuts.items():
            expected[word, list(cut)] += probability
    close(dp.boundary_probabilities(*lattice), expected)


@property_test
@given(lattices())
def test_entropy_by_its_definition(lattice: Lattice) -> None:
    expected = [-sum(p * math.log(p) for p in cuts.values() if p) for cuts in posteriors(lattice)]
    close(dp.entropy(*lattice), expected)


@property_test
@given(lattices())
def test_best_is_the_highest_scoring_cut(lattice: Lattice) -> None:
    edge_scores, lengths = lattice
    found = dp.best(edge_scores, lengths)
    for word, length in enumerate(lengths.tolist()):
        cuts = dict(oracles.enumerate_cuts(edge_scores[word], length))
        score = found.scores[word].item()
        assert score == pytest.approx(max(cuts.values(), default=MINUS_INFINITY))
        cut = cut_of(found.boundaries[word])
        assert cuts[cut] == pytest.approx(score) if cuts else cut == ()


@property_test
@given(lattices(), st.integers(1, 9))
def test_n_best_are_the_highest_scoring_cuts_in_order(lattice: Lattice, n: int) -> None:
    edge_scores, lengths = lattice
    found = dp.n_best(edge_scores, lengths, n=n)
    for word, length in enumerate(lengths.tolist()):
        cuts = dict(oracles.enumerate_cuts(edge_scores[word], length))
        expected = sorted(cuts.values(), reverse=True)[:n]
        scores = found.scores[word].tolist()
        assert scores == pytest.approx(expected + [MINUS_INFINITY] * (n - len(expected)))
        own = [cut_of(boundaries) for boundaries in found.boundaries[word]]
        assert [cuts[cut] for cut in own[: len(expected)]] == pytest.approx(expected)
        assert len(set(own[: len(expected)])) == len(expected)
        assert own[len(expected) :] == [()] * (n - len(expected))


@property_test
@given(lattices(scores=tied_scores), st.integers(1, 9))
def test_ties_go_to_the_longer_last_piece_then_to_the_longer_one_before(lattice: Lattice, n: int) -> None:
    edge_scores, lengths = lattice
    found = dp.n_best(edge_scores, lengths, n=n)
    best = dp.best(edge_scores, lengths)
    for word, length in enumerate(lengths.tolist()):
        cuts = dict(oracles.enumerate_cuts(edge_scores[word], length))
        # The last piece is the longer, the smaller its start is; likewise for the pieces before it.
        ordered = sorted(cuts, key=lambda cut: (-cuts[cut], cut[::-1]))[:n]
        assert [cut_of(b) for b in found.boundaries[word]][: len(ordered)] == ordered
        assert cut_of(best.boundaries[word]) == (ordered[0] if ordered else ())


@property_test
@given(lattices(), st.floats(0.25, 4.0))
def test_draws_are_cuts_with_their_own_scores(lattice: Lattice, temperature: float) -> None:
    edge_scores, lengths = lattice
    uniforms = random_uniforms(lattice, draws=5)
    uniforms[0], uniforms[1] = 0.0, 1.0 - 2.0**-53  # the smallest and the largest there are
    found = dp.sample(edge_scores, lengths, uniforms=uniforms, temperature=temperature)
    for word, length in enumerate(lengths.tolist()):
        cuts = dict(oracles.enumerate_cuts(edge_scores[word], length)) or {(): MINUS_INFINITY}
        for boundaries, score in zip(found.boundaries[word], found.scores[word].tolist(), strict=True):
            assert score == pytest.approx(cuts[cut_of(boundaries)])


# Counting


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_zero_scores_count_the_segmentations(length: int) -> None:
    close(dp.log_partition(*full_lattice(length, length)).exp(), [2.0 ** (length - 1)])


def test_pieces_of_at_most_three_characters_count_tribonacci() -> None:
    counts = [1, 1, 2]  # of the words of length 0, 1, 2
    for length in range(3, 30):
        counts.append(sum(counts[-3:]))
        close(dp.log_partition(*full_lattice(length, 3)).exp(), [float(counts[length])])


# The gradient


@property_test
@given(lattices())
def test_the_gradient_of_log_partition_is_the_marginals(lattice: Lattice) -> None:
    edge_scores, lengths = lattice[0].clone().requires_grad_(), lattice[1]
    weights = torch.arange(1.0, len(lengths) + 1, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((dp.log_partition(edge_scores, lengths) * weights).sum(), edge_scores)
    close(gradient, dp.edge_marginals(*lattice) * weights[:, None, None])


@settings(max_examples=15)
@given(lattices(connected=True, max_words=3, max_length=5))
def test_the_gradient_of_log_partition_by_finite_differences(lattice: Lattice) -> None:
    edge_scores, lengths = lattice[0].clone().requires_grad_(), lattice[1]
    assert torch.autograd.gradcheck(lambda scores: dp.log_partition(scores, lengths), [edge_scores])


@property_test
@given(lattices(connected=True))
def test_every_character_is_covered_with_total_marginal_one(lattice: Lattice) -> None:
    marginals = dp.edge_marginals(*lattice)
    _, starts, max_span = marginals.shape
    covered = torch.zeros(marginals.shape[:2], dtype=torch.float64)
    for start, span in itertools.product(range(starts), range(max_span)):
        covered[:, start : start + span + 1] += marginals[:, start, span, None]
    inside = torch.arange(starts) < lattice[1][:, None]
    close(covered, inside.double())


# What must change nothing

QUESTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "log_partition": dp.log_partition,
    "edge_marginals": dp.edge_marginals,
    "boundary_probabilities": dp.boundary_probabilities,
    "entropy": dp.entropy,
    "best score": lambda *lattice: dp.best(*lattice).scores,
    "best boundaries": lambda *lattice: dp.best(*lattice).boundaries,
    "n_best scores": lambda *lattice: dp.n_best(*lattice, n=3).scores,
    "n_best boundaries": lambda *lattice: dp.n_best(*lattice, n=3).boundaries,
}


def padded(edge_scores: Tensor, more_starts: int, more_spans: int) -> Tensor:
    return torch.nn.functional.pad(edge_scores, (0, more_spans, 0, more_starts), value=MINUS_INFINITY)


def trimmed(answer: Tensor, like: Tensor) -> Tensor:
    return answer[tuple(slice(size) for size in like.shape)]


@property_test
@given(lattices(), st.integers(0, 3), st.integers(0, 3))
def test_padding_changes_nothing(lattice: Lattice, more_starts: int, more_spans: int) -> None:
    wider = padded(lattice[0], more_starts, more_spans)
    for name, question in QUESTIONS.items():
        plain, other = question(*lattice), question(wider, lattice[1])
        torch.testing.assert_close(trimmed(other, plain), plain, msg=name)
        assert not other.isnan().any()
    uniforms = random_uniforms(lattice, draws=3)
    more_uniforms = torch.nn.functional.pad(uniforms, (0, more_starts), value=0.5)
    plain_draws = dp.sample(*lattice, uniforms=uniforms).boundaries
    draws = dp.sample(wider, lattice[1], uniforms=more_uniforms).boundaries
    assert torch.equal(trimmed(draws, plain_draws), plain_draws)


@property_test
@given(lattices(), st.randoms(use_true_random=False))
def test_batch_order_and_batch_size_change_nothing(lattice: Lattice, random: Random) -> None:
    edge_scores, lengths = lattice
    order = list(range(len(lengths)))
    random.shuffle(order)
    for name, question in QUESTIONS.items():
        plain = question(*lattice)
        torch.testing.assert_close(question(edge_scores[order], lengths[order]), plain[order], msg=name)
        alone = [question(edge_scores[w : w + 1], lengths[w : w + 1]) for w in range(len(lengths))]
        torch.testing.assert_close(torch.cat(alone), plain, msg=name)
    uniforms = random_uniforms(lattice, draws=3)
    draws = dp.sample(*lattice, uniforms=uniforms).boundaries
    shuffled = dp.sample(edge_scores[order], lengths[order], uniforms=uniforms[:, order]).boundaries
    assert torch.equal(shuffled, draws[order])
    first = dp.sample(edge_scores[:1], lengths[:1], uniforms=uniforms[:, :1]).boundaries
    assert torch.equal(first, draws[:1])


def test_more_draws_do_not_change_the_first_ones() -> None:
    lattice = full_lattice(6, 4)
    uniforms = random_uniforms(lattice, draws=50)
    many = dp.sample(*lattice, uniforms=uniforms).boundaries
    assert torch.equal(dp.sample(*lattice, uniforms=uniforms[:7]).boundaries, many[:, :7])


# Sampling


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_sample_frequencies_match_the_posterior(temperature: float) -> None:
    lattice = full_lattice(5, 4, seeded_normal)
    lattice[0][0, 1, 1] = MINUS_INFINITY
    draws = 20_000
    found = dp.sample(*lattice, uniforms=random_uniforms(lattice, draws, seed=3), temperature=temperature)
    counts = Counter(cut_of(boundaries) for boundaries in found.boundaries[0])
    expected = oracles.posterior(lattice[0][0], 5, temperature)
    assert set(counts) <= set(expected)
    observed = [counts[cut] for cut in expected]
    assert chisquare(observed, [p * draws for p in expected.values()]).pvalue > 0.01


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf"), 1e-310])
def test_a_temperature_that_nothing_can_be_divided_by_is_refused(temperature: float) -> None:
    lattice = full_lattice(2, 2)
    with pytest.raises(UserError, match="temperature"):
        dp.sample(*lattice, uniforms=random_uniforms(lattice, 1), temperature=temperature)


# Extremes


def test_a_word_that_no_cut_covers_is_minus_infinity_with_zero_gradient() -> None:
    edge_scores = torch.zeros(2, 3, 2, dtype=torch.float64)
    edge_scores[:, 2, 1] = MINUS_INFINITY
    edge_scores[0, 1, :] = edge_scores[0, 0, 1] = MINUS_INFINITY  # nothing of word 0 covers character 1
    edge_scores.requires_grad_()
    lengths = torch.tensor([3, 3])
    partition = dp.log_partition(edge_scores, lengths)
    (gradient,) = torch.autograd.grad(partition.sum(), edge_scores)
    close(partition, [MINUS_INFINITY, math.log(3)])
    assert torch.equal(gradient[0], torch.zeros(3, 2, dtype=torch.float64))
    close(gradient[1], torch.tensor([[2 / 3, 1 / 3], [1 / 3, 1 / 3], [2 / 3, 0.0]]), tolerance=1e-6)
    assert dp.entropy(edge_scores, lengths)[0] == 0
    assert not dp.boundary_probabilities(edge_scores, lengths)[0].any()


def test_a_word_of_one_character() -> None:
    edge_scores, lengths = torch.tensor([[[-2.5]]]), torch.tensor([1])
    close(dp.log_partition(edge_scores, lengths), [-2.5])
    close(dp.edge_marginals(edge_scores, lengths), torch.ones(1, 1, 1))
    close(dp.entropy(edge_scores, lengths), [0.0])
    found = dp.n_best(edge_scores, lengths, n=2)
    assert found.scores.tolist() == [[-2.5, MINUS_INFINITY]]
    assert found.boundaries.tolist() == [[[True, True], [False, False]]]


@pytest.mark.parametrize("starts", [0, 2])
def test_an_empty_word_has_one_empty_cut(starts: int) -> None:
    edge_scores = torch.full((1, starts, 3), MINUS_INFINITY)
    lattice = (edge_scores, torch.tensor([0]))
    nothing = [[True] + [False] * starts]
    close(dp.log_partition(*lattice), [0.0])
    assert not dp.edge_marginals(*lattice).any()
    assert dp.boundary_probabilities(*lattice).bool().tolist() == nothing
    assert dp.best(*lattice).scores.tolist() == [0.0]
    assert dp.best(*lattice).boundaries.tolist() == nothing
    assert dp.n_best(*lattice, n=2).scores.tolist() == [[0.0, MINUS_INFINITY]]
    drawn = dp.sample(*lattice, uniforms=random_uniforms(lattice, draws=1))
    assert drawn.scores.tolist() == [[0.0]]
    assert drawn.boundaries[0].tolist() == nothing


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
def test_a_word_of_5000_characters(dtype: torch.dtype, tolerance: float) -> None:
    edge_scores, lengths = full_lattice(5000, 8, seeded_normal)
    edge_scores = (3 * edge_scores - 9).to(dtype).requires_grad_()
    edges = oracles.edges_of(edge_scores.detach()[0], 5000)
    alphas, betas = oracles.textbook_alphas(edges), oracles.textbook_alphas(oracles.mirrored(edges))
    partition = dp.log_partition(edge_scores, lengths)
    assert partition.item() == pytest.approx(alphas[-1], rel=2e-7 if dtype == torch.float32 else 1e-12)
    (gradient,) = torch.autograd.grad(partition.sum(), edge_scores)
    expected = torch.zeros(5000, 8, dtype=torch.float64)
    for start, by_end in enumerate(edges):
        for end, score in by_end.items():
            log_weight = alphas[start] + score + betas[5000 - end]
            expected[start, end - start - 1] = math.exp(log_weight - alphas[-1])
    close(gradient[0], expected.to(dtype), tolerance)


def test_the_best_cuts_of_a_word_of_5000_characters() -> None:
    """A planted cut: its pieces score 0 and all others -1, so every cut but itself is worse."""
    planted = list(itertools.accumulate([1, 3, 5, 2, 4, 5] * 250, initial=0))
    edge_scores, lengths = full_lattice(5000, 5)
    edge_scores -= 1.0
    for start, end in itertools.pairwise(planted):
        edge_scores[0, start, end - start - 1] = 0.0
    found = dp.n_best(edge_scores, lengths, n=2)
    assert cut_of(found.boundaries[0, 0]) == tuple(planted)
    assert found.scores[0].tolist() == [0.0, -1.0]


def test_it_runs_on_the_device_of_its_arguments() -> None:
    """The meta device refuses to be mixed with any other, so a tensor made elsewhere would show."""
    edge_scores = torch.zeros(3, 5, 4, device="meta", requires_grad=True)
    lengths = torch.ones(3, dtype=torch.int64, device="meta")
    (gradient,) = torch.autograd.grad(dp.log_partition(edge_scores, lengths).sum(), edge_scores)
    assert gradient.shape == (3, 5, 4)
    for question in QUESTIONS.values():
        assert question(edge_scores, lengths).device.type == "meta"
    drawn = dp.sample(edge_scores, lengths, uniforms=torch.zeros(2, 3, 5, device="meta"))
    assert drawn.boundaries.shape == (3, 2, 6)


# Sentences


@property_test
@given(lattices())
def test_the_sum_over_words_is_the_recursion_over_the_sentence(lattice: Lattice) -> None:
    sentence: list[dict[int, float]] = []
    for scores, length in zip(lattice[0], lattice[1].tolist(), strict=True):
        offset = len(sentence)
        for by_end in oracles.edges_of(scores, length):
            sentence.append({offset + end: score for end, score in by_end.items()})
    close(dp.log_partition(*lattice).sum()[None], [oracles.textbook_log_partition(sentence)])
