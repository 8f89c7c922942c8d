"""A linear map and a dropout that are faster on a CPU than torch's; on a GPU they are torch's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Linear(nn.Linear):
    """A linear map whose backward pass, on a CPU, skips the rows that receive no gradient.

    Padding receives none, nor, in the last decoder layer of a mixed model, do the positions that
    `edge_scores` skips, which are most. The gradient is the same up to rounding: sums leave out zeros.
    """

    def forward(self, x: Tensor) -> Tensor:
        autocast = torch.is_autocast_enabled()
        if x.device.type != "cpu" or autocast or not torch.is_grad_enabled():
            return super().forward(x)
        return _RowSkippingLinear.apply(x, self.weight, self.bias)  # type: ignore[no-any-return, no-untyped-call]


class _RowSkippingLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        shape, x, gradient = x.shape, x.flatten(0, -2), gradient.flatten(0, -2)  # [row, width]
        # Not a norm: squares could underflow, and the maximum norm is 20 times slower. NaN is not 0 either.
        rows = ((gradient.amax(1) != 0) | (gradient.amin(1) != 0)).nonzero()[:, 0]
        if len(rows) > 0.8 * len(x):  # copying the rows would cost more than it saves
            return (gradient @ weight).view(shape), gradient.T @ x, gradient.sum(0)
        x_gradient, x, gradient = torch.zeros_like(x), x[rows], gradient[rows]
        x_gradient[rows] = gradient @ weight
        return x_gradient.view(shape), gradient.T @ x, gradient.sum(0)


def add_dropped(x: Tensor, update: Tensor, dropout: float) -> Tensor:
    """x + dropout(update), in one pass over memory on a CPU."""
    if dropout == 0.0:
        return x + update
    if x.device.type != "cpu":
        return x + F.dropout(update, dropout)
    return torch.addcmul(x, update, random_mask(update.shape, dropout), value=1 / (1 - dropout))


def random_mask(shape: torch.Size, dropout: float) -> Tensor:
    """True with probability 1 - dropout, from torch's CPU generator. # bool, of the given shape

    Four elements share one 64-bit draw, 16 bits each: `bernoulli_` makes a draw for each element and takes
    longer than the sum that needs them. So the probability is rounded to a multiple of 2^-16.
    """
    size = shape.numel()
    draws = torch.empty((size + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[:size].view(shape) >= round((dropout - 0.5) * 2**16)
