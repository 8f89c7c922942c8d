"""The softmax over the vocabulary, a chunk of positions at a time, in buffers that are reused."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

DEFAULT_CHUNK = 512  # positions: enough for the matrix product to run at full speed


def product_type(states: Tensor) -> torch.dtype:
    """The type of matrix products under autocast, or that of the states without autocast."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


class ChunkedSoftmax:
    """The softmax of up to `rows` positions at a time, always in the same two buffers [row, piece].

    Matrix products are in `product_type`; softmax and sums are in float32 at least. The `excluded` pieces
    have probability 0.
    """

    def __init__(
        self, output_weight: Tensor, *, rows: int, product_type: torch.dtype, excluded: Sequence[int] = ()
    ) -> None:
        self.product_type = product_type
        self.weight = output_weight.to(product_type)  # [piece, width]
        self.excluded = torch.tensor(excluded, dtype=torch.long, device=output_weight.device)
        softmax_type = torch.promote_types(product_type, torch.float32)
        self.logits = self.weight.new_empty((rows, len(output_weight)), dtype=softmax_type)
        self.output = torch.empty_like(self.logits)

    def log_probabilities(self, states: Tensor) -> Tensor:
        """Of states [row, width]: [row, piece], valid until the next call."""
        return torch.log_softmax(self._logits(states), 1, out=self.output[: len(states)])

    def probabilities(self, states: Tensor) -> Tensor:
        """Of states [row, width]: [row, piece], valid until the next call."""
        return torch.softmax(self._logits(states), 1, out=self.output[: len(states)])

    def _logits(self, states: Tensor) -> Tensor:
        logits = self.logits[: len(states)]
        _product(states.to(self.product_type), self.weight.T, out=logits)
        if len(self.excluded):
            logits[:, self.excluded] = float("-inf")
        return logits

    def add_gradients(self, logits_gradient: Tensor, states: Tensor, weight_gradient: Tensor) -> Tensor:
        """Add the chunk's part to `weight_gradient`; returns the gradient of its states. # [row, width]"""
        left, right = logits_gradient.to(self.product_type), states.to(self.product_type)
        if self.product_type == weight_gradient.dtype:
            weight_gradient.addmm_(left.T, right)
        else:
            weight_gradient.add_(left.T @ right)
        return (left @ self.weight).to(states.dtype)


def _product(left: Tensor, right: Tensor, *, out: Tensor) -> None:
    """left @ right into `out`, whose type may be wider."""
    if left.dtype == out.dtype:
        torch.mm(left, right, out=out)
    else:
        out.copy_(left @ right)
