"""What both models have: the shape of a transformer, how it is trained, and when the training ends."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from dpe.errors import UserError
from dpe.settings import Settings, build, changed, checked, nearest, setting

_Settings = TypeVar("_Settings")
_Model = TypeVar("_Model", bound="ModelSettings")
# Settings that say when a training ends: a training may be resumed with others, unless the first two shape
# its learning rate.
ENDING = ("epochs", "steps", "patience", "until_cuts_change_less_than", "average")


@dataclass(frozen=True, kw_only=True)
class TransformerSettings(Settings):
    """The shape of a transformer. `encoder_layers` is not used by a model without a source."""

    width: int = setting(256, "Width of the network.", low=2)
    heads: int = setting(4, "Attention heads.", low=1)
    feed_forward: int = setting(1024, "Width of the feed-forward layers.", low=1)
    encoder_layers: int = setting(3, "Layers of the encoder.", low=0)
    decoder_layers: int = setting(4, "Layers of the decoder.", low=1)
    dropout: float = setting(0.1, "Dropout of the network.", low=0, below=1)
    norm: Literal["pre", "post"] = setting(
        "pre", "Layer norms before (pre) or after (post) each layer; pre trains without a careful warm-up."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads or self.width % 2:
            raise UserError(f"width {self.width} must be even and a multiple of heads {self.heads}.")


@dataclass(frozen=True, kw_only=True)
class MixedSettings(TransformerSettings):
    """The shape of a mixed transformer, whose decoder reads characters, or words and then characters."""

    decoder: Literal["words", "characters"] = setting(
        "characters",
        "Where most decoder layers are: over characters, as in the paper, or over words, which is faster.",
    )
    character_layers: int = setting(1, "Layers over characters of a words decoder.", low=1)


@dataclass(frozen=True, kw_only=True)
class ModelSettings(TransformerSettings):
    """What both models have: the network, its training, and the training's end."""

    batch: int = setting(8_000, "Padded target units in a batch.", low=1)
    learning_rate: float = setting(1e-3, "Peak learning rate.", above=0, below=math.inf)
    warmup: int = setting(1_000, "Updates over which the learning rate rises.", low=0)
    schedule: Literal["inverse-sqrt", "linear", "cosine"] = setting(
        "inverse-sqrt",
        "How the learning rate falls: with the square root of the updates, or to zero at the last of the "
        "epochs or steps.",
    )
    accumulate: int = setting(1, "Batches in one update, divided among the processes.", low=1)
    clip: float = setting(1.0, "Largest norm of the gradient.", above=0)
    seed: int = setting(1, "Seed of weights, dropout and batch order.")
    bf16: bool = setting(False, "Compute in bfloat16 on a GPU.")
    epochs: int | None = setting(None, "Passes over the text.", low=1)
    steps: int | None = setting(None, "Updates; alone or with epochs, whichever ends first.", low=1)
    patience: int | None = setting(None, "Stop after this many epochs without a better dev score.", low=1)
    average: int = setting(1, "Try the mean of the weights of the last N epochs.", low=1)
    evaluate_updates: int | None = setting(
        None, "Evaluate every N updates instead of every epoch, for patience and average too.", low=1
    )
    until_cuts_change_less_than: float | None = setting(
        None,
        "Stop when the segmentations of fewer dev words than this share differ from the evaluation before.",
        above=0,
        high=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schedule != "inverse-sqrt" and self.epochs is self.steps is None:
            raise UserError(f"schedule {self.schedule} falls to zero at the end; set epochs or steps.")

    def share_done(self, epochs: float, steps: int) -> float:
        """How much of the training is done after so many epochs and steps; 0 if neither limits it."""
        share = max(epochs / (self.epochs or math.inf), steps / (self.steps or math.inf))
        return min(share, 1.0)

    def rate_at(self, step: int, share: float) -> float:
        """The learning rate of update 1, 2, ..., with `share` of the training done before it."""
        warmup = max(self.warmup, 1)
        rising = min(step / warmup, 1.0)
        falling = {
            "inverse-sqrt": math.sqrt(warmup / max(step, warmup)),
            "linear": 1 - share,
            "cosine": (1 + math.cos(math.pi * share)) / 2,
        }
        return self.learning_rate * rising * falling[self.schedule]

    def identity(self) -> dict[str, Any]:
        """What a training cannot change when it is resumed; its end too, if the learning rate falls to it."""
        free = ENDING if self.schedule == "inverse-sqrt" else ENDING[2:]
        return {key: value for key, value in changed(self).items() if key not in free}

    def prolongs(self, earlier: ModelSettings) -> bool:
        """Whether a training that ended by `earlier` can be resumed to become this one.

        Never with an average: the one made then would be lost.
        """
        ends = [(getattr(self, name), getattr(earlier, name)) for name in ENDING[:3]]
        longer = all(now is None or (before is not None and now >= before) for now, before in ends)
        share, earlier_share = self.until_cuts_change_less_than, earlier.until_cuts_change_less_than
        longer &= share is None or (earlier_share is not None and share <= earlier_share)
        return longer and self.average == earlier.average == 1 and self.identity() == earlier.identity()


def read_presets(kind: str, cls: type[_Model]) -> dict[str, _Model]:
    """The presets of a kind of model, from presets.toml."""
    tables = tomllib.loads(files("dpe").joinpath("presets.toml").read_text(encoding="utf-8"))[kind]
    return {name: build(cls, table, f"presets.toml, {kind}.{name}") for name, table in tables.items()}


def from_preset(presets: dict[str, _Model], changes: dict[str, Any], label: str) -> _Model:
    """A preset (`changes["preset"]`, or small) with changes; `steps` alone replaces the preset's epochs."""
    changes = dict(changes)
    name = changes.pop("preset", "small")
    if name not in presets:
        raise UserError(f"{label}: there is no preset {name!r}; {nearest(str(name), presets)}")
    preset = presets[name]
    hints = get_type_hints(type(preset))
    given = checked(type(preset), changes, label)
    # Unset (`--set KEY=`) is the preset's own value, except where it means something.
    values = {k: v for k, v in given.items() if v is not None or NoneType in get_args(hints[k])}
    if "steps" in values:
        values.setdefault("epochs", None)
    try:
        return replace(preset, **values)
    except UserError as error:
        raise UserError(f"{label}: {error}") from error


def model_settings(record: Mapping[str, Any], cls: type[_Settings], label: str) -> _Settings:
    """The settings of a model from what is recorded of it: all fields that it lacks have their default.

    dpe 0.1 recorded every field, in tables: network, training, and in runs the end of the training.
    """
    flat = dict(record.get("settings", record))
    for part in ("network", "training", "stopping"):
        flat |= flat.get(part, {})
    if flat.get("bleu_tokenize", "") is None:
        del flat["bleu_tokenize"]
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # callers give a dataclass
    return build(cls, {key: value for key, value in flat.items() if key in known}, label)
