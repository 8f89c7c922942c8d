"""The shape of a transformer, and the recorded settings of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from dpe.errors import UserError
from dpe.settings import Settings, build, setting

_Settings = TypeVar("_Settings")


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
