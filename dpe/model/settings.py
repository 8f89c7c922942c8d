"""The shape of a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpe.errors import UserError
from dpe.settings import Settings, setting


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
