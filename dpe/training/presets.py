"""Sizes that are known to work. `base` is the paper's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpe.model.transformer import TransformerSettings
from dpe.training.session import Stopping
from dpe.training.settings import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A network and how it is trained."""

    network: TransformerSettings
    training: TrainingSettings
    batch: int  # padded target characters (segmenter) or tokens (translator) in a batch
    epochs: int

    def network_with(self, **changes: Any) -> TransformerSettings:
        """The network with those changes that are not None."""
        return replace(self.network, **_given(changes))

    def training_with(self, **changes: Any) -> TrainingSettings:
        """The training with those changes that are not None."""
        return replace(self.training, **_given(changes))

    def stopping(
        self, *, epochs: int | None, steps: int | None, patience: int | None, average: int
    ) -> Stopping:
        """When training ends; the preset's epochs count only where neither epochs nor steps are given."""
        own = self.epochs if epochs is None and steps is None else epochs
        return Stopping(epochs=own, steps=steps, patience=patience, average=average)


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


SEGMENTER_PRESETS = {
    # Minutes on two cores: small corpora, demos.
    "tiny": Preset(
        network=TransformerSettings(
            width=128, heads=4, feed_forward=512, encoder_layers=2, decoder_layers=3, dropout=0.1
        ),
        training=TrainingSettings(learning_rate=2e-3, warmup=400),
        batch=6_000,
        epochs=8,
    ),
    # Hours on two cores, minutes on a GPU: 20,000 to 500,000 pairs.
    "small": Preset(
        network=TransformerSettings(
            width=256, heads=4, feed_forward=1024, encoder_layers=3, decoder_layers=4, dropout=0.2
        ),
        training=TrainingSettings(learning_rate=1e-3, warmup=1000, accumulate=2),
        batch=8_000,
        epochs=15,
    ),
    # The paper's: 4 layers instead of transformer base's 6, 16 gradients an update; the rest is from the
    # authors' published scripts.
    "base": Preset(
        network=TransformerSettings(
            width=512,
            heads=8,
            feed_forward=2048,
            encoder_layers=4,
            decoder_layers=4,
            dropout=0.3,
            norm="post",
        ),
        training=TrainingSettings(learning_rate=5e-4, warmup=4000, accumulate=16),
        batch=8_000,
        epochs=20,
    ),
}

TRANSLATOR_PRESETS = {
    # Minutes on two cores: small corpora, demos.
    "tiny": Preset(
        network=TransformerSettings(
            width=128, heads=4, feed_forward=512, encoder_layers=3, decoder_layers=3, dropout=0.1
        ),
        training=TrainingSettings(learning_rate=2e-3, warmup=400),
        batch=4_000,
        epochs=15,
    ),
    # Hours on two cores, minutes on a GPU: 20,000 to 500,000 pairs.
    "small": Preset(
        network=TransformerSettings(
            width=256, heads=4, feed_forward=1024, encoder_layers=4, decoder_layers=4, dropout=0.2
        ),
        training=TrainingSettings(learning_rate=1e-3, warmup=1000, accumulate=2),
        batch=4_000,
        epochs=20,
    ),
    # The paper says "transformer base" and nothing more: 6+6 layers of width 512, 8 heads, norms last. The
    # learning rate, the warm-up and the dropout are those of the authors' published scripts; label smoothing
    # of 0.1 belongs to transformer base. An update of 32,000 tokens and the epochs are our choice.
    "base": Preset(
        network=TransformerSettings(
            width=512,
            heads=8,
            feed_forward=2048,
            encoder_layers=6,
            decoder_layers=6,
            dropout=0.3,
            norm="post",
        ),
        training=TrainingSettings(learning_rate=5e-4, warmup=4000, accumulate=8),
        batch=4_000,
        epochs=20,
    ),
}
