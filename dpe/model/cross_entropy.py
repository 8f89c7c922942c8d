"""Label-smoothed cross-entropy of a softmax over the vocabulary, without a [position, vocabulary] tensor.

The loss is a sum, so the gradient of each position is known as soon as its softmax is: both are computed in
one pass over chunks of positions, and the backward pass only scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dpe.model.chunked_softmax import DEFAULT_CHUNK, ChunkedSoftmax, product_type


def smoothed_cross_entropy(
    states: Tensor, output_weight: Tensor, targets: Tensor, *, smoothing: float, chunk: int = DEFAULT_CHUNK
) -> tuple[Tensor, Tensor]:
    """The smoothed loss and, without a gradient, the plain one, each summed over the positions, in nats.

    By definition (`smoothed_cross_entropy_reference`):

        log_probabilities = (states @ output_weight.T).log_softmax(1)    # [position, piece]
        nats = -log_probabilities[range(len(targets)), targets].sum()
        uniform = -log_probabilities.mean(1).sum()
        return (1 - smoothing) * nats + smoothing * uniform, nats

    states [position, width], output_weight [piece, width], targets [position].
    """
    found: tuple[Tensor, Tensor] = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, output_weight, targets, _Options(smoothing, chunk, gradient=torch.is_grad_enabled())
    )
    return found


def smoothed_cross_entropy_reference(
    states: Tensor, output_weight: Tensor, targets: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The definition, which holds [position, piece] and lets autograd differentiate it."""
    log_probabilities = (states @ output_weight.T).log_softmax(1)
    nats = -log_probabilities.gather(1, targets[:, None]).sum()
    uniform = -log_probabilities.mean(1).sum()
    return (1 - smoothing) * nats + smoothing * uniform, nats.detach()


@dataclass(frozen=True)
class _Options:
    smoothing: float
    chunk: int
    gradient: bool  # whether it will be needed


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, output_weight: Tensor, targets: Tensor, options: _Options
    ) -> tuple[Tensor, Tensor]:
        smoothing, chunk = options.smoothing, options.chunk
        rows = min(len(states), chunk)
        softmax = ChunkedSoftmax(output_weight, rows=rows, product_type=product_type(states))
        nats = uniform = softmax.output.new_zeros(())
        states_gradient, weight_gradient = torch.zeros_like(states), torch.zeros_like(output_weight)
        for start in range(0, len(states), chunk):
            here = slice(start, start + chunk)
            log_probabilities = softmax.log_probabilities(states[here])  # [row, piece]
            picked = targets[here, None]
            nats = nats - log_probabilities.gather(1, picked).sum()
            uniform = uniform - log_probabilities.mean(1).sum()
            if options.gradient:
                # The softmax minus the smoothed target distribution.
                logits_gradient = log_probabilities.exp_().sub_(smoothing / len(output_weight))
                logits_gradient.scatter_add_(1, picked, logits_gradient.new_full(picked.shape, smoothing - 1))
                states_gradient[here] = softmax.add_gradients(logits_gradient, states[here], weight_gradient)
        ctx.save_for_backward(states_gradient, weight_gradient)
        ctx.mark_non_differentiable(nats)
        return (1 - smoothing) * nats + smoothing * uniform, nats

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states_gradient, weight_gradient = ctx.saved_tensors
        return gradient * states_gradient, gradient * weight_gradient, None, None
