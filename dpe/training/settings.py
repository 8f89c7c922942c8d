"""How a model is trained: what may not differ between two starts of one training."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpe.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a model is trained, beside its network and its text."""

    learning_rate: float = 5e-4
    warmup: int = 4000  # updates over which the rate rises
    clip: float = 1.0  # largest norm of the gradient
    accumulate: int = 1  # batches whose gradients make one update, in each process
    seed: int = 1
    bf16: bool = False  # autocast on a GPU

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise UserError(f"accumulate is {self.accumulate}: an update needs 1 batch or more.")
        if not 0 < self.learning_rate < math.inf:
            raise UserError(f"The learning rate is {self.learning_rate}: give a number above 0.")

    def rate_at(self, step: int) -> float:
        """The learning rate of update 1, 2, ...: linear warm-up, then inverse square root."""
        warmup = max(self.warmup, 1)
        return self.learning_rate * min(step / warmup, math.sqrt(warmup / step))
