"""`edge_scores` against its definition, `edge_scores_reference`, in values, gradients and memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpe.model import edge_scores as module
from dpe.model.chunked_softmax import product_type
from dpe.model.edge_scores import edge_scores, edge_scores_reference
from tests.tensor_sizes import LargestTensor


class Case(NamedTuple):
    states: Tensor  # [position, width]
    weight: Tensor  # [piece, width]
    positions: Tensor  # [edge]
    pieces: Tensor  # [edge]


def make_case(
    seed: int, *, positions: int = 11, pieces: int = 17, edges: int = 30, scale: float = 1.0
) -> Case:
    """Random edges: some positions have several, some have none, and an edge may occur twice."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    edge_positions = torch.randint(positions, (edges,), generator=generator).sort().values
    edge_pieces = torch.randint(2, pieces, (edges,), generator=generator)
    return Case(normal(positions, 5) * scale, normal(pieces, 5), edge_positions, edge_pieces)


def gradients(scores: Tensor, incoming: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((scores * incoming).sum(), inputs)


def leaves(case: Case) -> Case:
    return case._replace(
        states=case.states.clone().requires_grad_(), weight=case.weight.clone().requires_grad_()
    )


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    positions=st.integers(1, 12),
    edges=st.integers(0, 30),
    chunk=st.integers(1, 14),
    excluded=st.sampled_from([(), (0,), (1, 0)]),
)
def test_equals_the_definition(
    seed: int, positions: int, edges: int, chunk: int, excluded: tuple[int, ...]
) -> None:
    case = leaves(make_case(seed, positions=positions, edges=edges))
    ours = edge_scores(*case, excluded=excluded, threshold=0.0, chunk=chunk)
    reference = edge_scores_reference(*case, excluded=excluded)
    torch.testing.assert_close(ours, reference)
    incoming = torch.randn(edges, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    wanted = gradients(reference, incoming, case.states, case.weight)
    for got, want in zip(gradients(ours, incoming, case.states, case.weight), wanted, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("chunk", [1, 4, 512])
def test_gradients_equal_finite_differences(chunk: int) -> None:
    case = leaves(make_case(1))

    def scores(states: Tensor, weight: Tensor) -> Tensor:
        return edge_scores(
            states, weight, case.positions, case.pieces, excluded=(0,), threshold=0.0, chunk=chunk
        )

    assert torch.autograd.gradcheck(scores, (case.states, case.weight))


def test_excluded_pieces_have_no_probability() -> None:
    case = make_case(2)
    every_piece = torch.arange(17)
    scores = edge_scores(
        case.states, case.weight, torch.full((17,), 3), every_piece, excluded=(0, 5), threshold=0.0
    )
    assert (scores == float("-inf")).nonzero().flatten().tolist() == [0, 5]
    assert scores.exp().sum().item() == pytest.approx(1.0)


def test_an_edge_of_an_excluded_piece_is_impossible_and_harms_no_gradient() -> None:
    case = leaves(make_case(3))
    pieces = case.pieces.clone()
    pieces[4] = 0
    ours = edge_scores(
        case.states, case.weight, case.positions, pieces, excluded=(0,), threshold=0.0, chunk=3
    )
    assert ours[4] == float("-inf")
    incoming = torch.ones(len(pieces), dtype=torch.float64)
    incoming[4] = 0.0  # the posterior of an impossible edge
    finite = torch.where(incoming > 0, ours, 0.0)
    for gradient in torch.autograd.grad(finite.sum(), (case.states, case.weight)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_logits_neither_overflow_nor_give_nan(dtype: torch.dtype) -> None:
    case = make_case(4, scale=1e4)
    case = leaves(Case(case.states.to(dtype), case.weight.to(dtype), case.positions, case.pieces))
    ours = edge_scores(*case, threshold=0.0, chunk=4)
    reference = edge_scores_reference(*case)
    assert reference.min() < -1e4
    torch.testing.assert_close(ours, reference)
    incoming = torch.ones_like(ours)
    wanted = gradients(reference, incoming, case.states, case.weight)
    for got, want in zip(gradients(ours, incoming, case.states, case.weight), wanted, strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got, want)


def test_no_edges_at_all() -> None:
    case = leaves(make_case(5, edges=0))
    scores = edge_scores(*case)
    assert scores.shape == (0,)
    for gradient in torch.autograd.grad(scores.sum(), (case.states, case.weight)):
        assert (gradient == 0).all()


def test_position_below_the_threshold_is_dropped_whole_and_the_others_are_exact() -> None:
    case = leaves(make_case(6))
    faint = case.positions == case.positions[0]
    incoming = torch.where(faint, 1e-6, 1.0).double()
    ours = edge_scores(*case, threshold=1e-3, chunk=4)
    got = gradients(ours, incoming, case.states, case.weight)
    wanted = gradients(edge_scores_reference(*case), incoming * ~faint, case.states, case.weight)
    for got_one, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(got_one, want)


def test_edges_of_opposite_sign_do_not_hide_each_other() -> None:
    case = leaves(make_case(7, positions=1, edges=2))
    case = case._replace(pieces=torch.tensor([3, 4]))
    incoming = torch.tensor([1.0, -1.0], dtype=torch.float64)
    got = gradients(edge_scores(*case, threshold=0.5), incoming, case.states, case.weight)
    wanted = gradients(edge_scores_reference(*case), incoming, case.states, case.weight)
    for got_one, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(got_one, want)


def test_a_gradient_that_is_nan_stays_visible() -> None:
    case = leaves(make_case(8))
    incoming = torch.ones(len(case.pieces), dtype=torch.float64)
    incoming[3] = float("nan")
    for gradient in gradients(edge_scores(*case), incoming, case.states, case.weight):
        assert gradient.isnan().any()


def test_default_threshold_on_a_peaked_posterior() -> None:
    """Row sums as a trained model has them: one position in four certain, the rest log-uniformly faint."""
    generator = torch.Generator().manual_seed(9)
    positions, width, pieces = 400, 16, 200
    states = torch.randn(positions, width, generator=generator).double().requires_grad_()
    weight = torch.randn(pieces, width, generator=generator).double().requires_grad_()
    edge_positions = torch.arange(positions).repeat_interleave(2)
    edge_pieces = torch.randint(pieces, (2 * positions,), generator=generator)
    faint = 10.0 ** (-8 * torch.rand(positions, generator=generator)).double()
    masses = torch.where(torch.arange(positions) % 4 == 0, 1.0, faint * 1e-1)
    incoming = -(masses / 2).repeat_interleave(2)
    case = Case(states, weight, edge_positions, edge_pieces)
    exact = torch.cat(
        [g.flatten() for g in gradients(edge_scores_reference(*case), incoming, states, weight)]
    )
    ours = torch.cat([g.flatten() for g in gradients(edge_scores(*case), incoming, states, weight)])
    assert 0 < (ours - exact).norm() / exact.norm() < 1e-4


def test_memory_is_one_chunk_whatever_the_number_of_positions() -> None:
    positions, pieces, chunk = 300, 50, 8
    case = leaves(make_case(10, positions=positions, pieces=pieces, edges=600))
    with LargestTensor() as largest:
        scores = edge_scores(*case, threshold=0.0, chunk=chunk)
        torch.autograd.grad(scores.sum(), (case.states, case.weight))
    assert largest.elements <= max(positions * 5, chunk * pieces, 600) < positions * pieces


@contextmanager
def saved_tensors() -> Iterator[list[Tensor]]:
    saved: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield saved


def test_keeps_only_its_inputs_for_the_backward_pass() -> None:
    case = leaves(make_case(11))
    with saved_tensors() as saved:
        edge_scores(*case)
    inputs = {tensor.data_ptr() for tensor in case}
    assert saved
    assert all(tensor.data_ptr() in inputs for tensor in saved)


def test_lower_precision_products_keep_a_float32_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """What autocast asks for on a GPU, with float16 because every CPU has it."""
    monkeypatch.setattr(module, "product_type", lambda states: torch.float16)
    case = make_case(12)
    case = leaves(Case(case.states.float(), case.weight.float(), case.positions, case.pieces))
    ours = edge_scores(*case, threshold=0.0, chunk=4)
    reference = edge_scores_reference(*case)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, reference, atol=2e-2, rtol=0)
    incoming = torch.ones_like(ours)
    wanted = gradients(reference, incoming, case.states, case.weight)
    for got, want in zip(gradients(ours, incoming, case.states, case.weight), wanted, strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, atol=5e-2, rtol=0)


def test_products_are_of_the_type_that_autocast_wants() -> None:
    states = torch.zeros(1)
    assert product_type(states) == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product_type(states) == torch.bfloat16
