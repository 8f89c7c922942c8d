"""How a model is trained, when that ends, and how two trainings differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpe.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a model is trained. The learning rate rises over `warmup` updates, then falls as 1/sqrt(update)."""

    learning_rate: float = 5e-4
    warmup: int = 4000
    clip: float = 1.0  # largest norm of the gradient
    accumulate: int = 1  # batches whose gradients make one update, in each process
    seed: int = 1
    bf16: bool = False  # autocast on a GPU

    def __post_init__(self) -> None:
        if self.accumulate < 1:
            raise UserError(f"accumulate is {self.accumulate}: an update needs 1 batch or more.")
        if not 0 < self.learning_rate < math.inf:
            raise UserError(f"The learning rate is {self.learning_rate}: give a number above 0.")


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When training ends: at the first of these. May differ between two starts of one training."""

    epochs: int | None = None
    steps: int | None = None  # updates
    patience: int | None = None  # epochs without a better score
    average: int = 1  # epochs whose weights are averaged at the end

    def goes_on_from(self, earlier: Stopping) -> bool:
        """Whether a training that ended so can go on until this; an average at its end would be lost."""
        pairs = (
            (self.epochs, earlier.epochs),
            (self.steps, earlier.steps),
            (self.patience, earlier.patience),
        )
        longer = all(now is None or (before is not None and now >= before) for now, before in pairs)
        return longer and self.average == earlier.average == 1


def first_difference(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """In words, the first setting that two nested mappings do not share; None if there is none."""
    flat_there, flat_wanted = _flatten(there), _flatten(wanted)
    for key in sorted(flat_there.keys() | flat_wanted.keys()):
        old, new = flat_there.get(key), flat_wanted.get(key)
        if old != new:
            is_hash = isinstance(old, str) and isinstance(new, str) and len(old) == len(new) == 64
            return f"another {key}" if is_hash else f"{key} is {old} there and {new} now"
    return None


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
