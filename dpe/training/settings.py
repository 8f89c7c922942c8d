"""How a model is trained, and when its training ends."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dpe.errors import UserError
from dpe.model.settings import TransformerSettings
from dpe.settings import changed, checked, nearest, setting

# Settings that say when a training ends: a training may be resumed with others.
ENDING = ("epochs", "steps", "patience", "average")
_Model = TypeVar("_Model", bound="ModelSettings")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(TransformerSettings):
    """What both models have: the network, its training, and the training's end."""

    batch: int = setting(8_000, "Padded target units in a batch.", low=1)
    learning_rate: float = setting(1e-3, "Peak learning rate.", above=0, below=math.inf)
    warmup: int = setting(1_000, "Updates over which the learning rate rises.", low=0)
    accumulate: int = setting(1, "Batches in one update, in each process.", low=1)
    clip: float = setting(1.0, "Largest norm of the gradient.", above=0)
    seed: int = setting(1, "Seed of weights, dropout and batch order.")
    bf16: bool = setting(False, "Compute in bfloat16 on a GPU.")
    epochs: int | None = setting(None, "Passes over the text.", low=1)
    steps: int | None = setting(None, "Updates; alone or with epochs, whichever ends first.", low=1)
    patience: int | None = setting(None, "Stop after this many epochs without a better dev score.", low=1)
    average: int = setting(1, "Try the mean of the weights of the last N epochs.", low=1)

    def rate_at(self, step: int) -> float:
        """The learning rate of update 1, 2, ...: linear warm-up, then inverse square root."""
        warmup = max(self.warmup, 1)
        return self.learning_rate * min(step / warmup, math.sqrt(warmup / step))

    def identity(self) -> dict[str, Any]:
        """What a training cannot change when it is resumed."""
        return {key: value for key, value in changed(self).items() if key not in ENDING}

    def prolongs(self, earlier: ModelSettings) -> bool:
        """Whether a training that ended by `earlier` can be resumed to become this one.

        Never with an average: the one made then would be lost.
        """
        ends = [(getattr(self, name), getattr(earlier, name)) for name in ENDING[:3]]
        longer = all(now is None or (before is not None and now >= before) for now, before in ends)
        return longer and self.average == earlier.average == 1 and self.identity() == earlier.identity()


def from_preset(presets: dict[str, _Model], changes: dict[str, Any], label: str) -> _Model:
    """A preset (`changes["preset"]`, or small) with changes; `steps` alone replaces the preset's epochs."""
    changes = dict(changes)
    name = changes.pop("preset", "small")
    if name not in presets:
        raise UserError(f"{label}: there is no preset {name!r}; {nearest(str(name), presets)}")
    preset = presets[name]
    values = checked(type(preset), changes, label)
    if "steps" in values:
        values.setdefault("epochs", None)
    try:
        return replace(preset, **values)
    except UserError as error:
        raise UserError(f"{label}: {error}") from error
