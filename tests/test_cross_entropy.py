"""`smoothed_cross_entropy` against its definition: values, gradients, memory."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpe.model import cross_entropy as module
from dpe.model.cross_entropy import smoothed_cross_entropy, smoothed_cross_entropy_reference
from tests.tensor_sizes import LargestTensor


def case(seed: int, positions: int, pieces: int = 13, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """states [position, width], weight [piece, width], targets [position]"""
    generator = torch.Generator().manual_seed(seed)
    states = scale * torch.randn(positions, 5, dtype=torch.float64, generator=generator)
    weight = torch.randn(pieces, 5, dtype=torch.float64, generator=generator)
    targets = torch.randint(pieces, (positions,), generator=generator)
    return states.requires_grad_(), weight.requires_grad_(), targets


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    positions=st.integers(0, 12),
    chunk=st.integers(1, 14),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    scale=st.sampled_from([1.0, 300.0]),
)
def test_equals_the_definition(seed: int, positions: int, chunk: int, smoothing: float, scale: float) -> None:
    states, weight, targets = case(seed, positions, scale=scale)
    ours = smoothed_cross_entropy(states, weight, targets, smoothing=smoothing, chunk=chunk)
    reference = smoothed_cross_entropy_reference(states, weight, targets, smoothing=smoothing)
    torch.testing.assert_close(ours, reference)
    got = torch.autograd.grad(3 * ours[0], (states, weight))
    wanted = torch.autograd.grad(3 * reference[0], (states, weight))
    torch.testing.assert_close(got, wanted)


def test_gradient_by_finite_differences() -> None:
    states, weight, targets = case(1, 7)

    def loss(states: Tensor, weight: Tensor) -> Tensor:
        return smoothed_cross_entropy(states, weight, targets, smoothing=0.2, chunk=3)[0]

    assert torch.autograd.gradcheck(loss, (states, weight))


def test_the_plain_loss_is_a_number_only() -> None:
    loss, nats = smoothed_cross_entropy(*case(2, 4), smoothing=0.1)
    assert loss.requires_grad
    assert not nats.requires_grad


def test_without_gradients_none_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(module.ChunkedSoftmax, "add_gradients", refuse)
    with torch.no_grad():
        loss, nats = smoothed_cross_entropy(*case(3, 6), smoothing=0.0, chunk=4)
    assert loss == nats


def test_never_holds_all_positions_times_all_pieces() -> None:
    positions, pieces, chunk = 96, 400, 8
    states, weight, targets = case(4, positions, pieces)
    with LargestTensor() as largest:
        smoothed_cross_entropy(states, weight, targets, smoothing=0.1, chunk=chunk)[0].backward()  # type: ignore[no-untyped-call]
    assert largest.elements <= max(positions * 5, pieces * 5, chunk * pieces) < positions * pieces


def test_lower_precision_products_keep_a_float32_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """What autocast asks for on a GPU, with float16 because every CPU has it."""
    monkeypatch.setattr(module, "product_type", lambda states: torch.float16)
    states, weight = (tensor.detach().float().requires_grad_() for tensor in case(5, 9)[:2])
    targets = case(5, 9)[2]
    ours = smoothed_cross_entropy(states, weight, targets, smoothing=0.1, chunk=4)
    reference = smoothed_cross_entropy_reference(states, weight, targets, smoothing=0.1)
    assert ours[0].dtype == torch.float32
    torch.testing.assert_close(ours, reference, atol=5e-2, rtol=0)
    for got, want in zip(
        torch.autograd.grad(ours[0], (states, weight)),
        torch.autograd.grad(reference[0], (states, weight)),
        strict=True,
    ):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, atol=5e-2, rtol=0)
