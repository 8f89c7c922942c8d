"""Sizes that are known to work. `base` is the paper's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from dpe.model.transformer import TransformerSettings
from dpe.training.session import Stopping
from dpe.training.settings import TrainingSettings

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A network and how it is trained."""

    network: TransformerSettings
    training: TrainingSettings
    batch: int  # padded target characters (segmenter) or tokens (translator) in a batch
    epochs: int

    def network_with(
        self,
        *,
        width: int | None = None,
        heads: int | None = None,
        feed_forward: int | None = None,
        encoder_layers: int | None = None,
        decoder_layers: int | None = None,
        dropout: float | None = None,
        norm: Literal["pre", "post"] | None = None,
    ) -> TransformerSettings:
        """The network with those changes that are given."""
        own = self.network
        return replace(
            own,
            width=_chosen(width, own.width),
            heads=_chosen(heads, own.heads),
            feed_forward=_chosen(feed_forward, own.feed_forward),
            encoder_layers=_chosen(encoder_layers, own.encoder_layers),
            decoder_layers=_chosen(decoder_layers, own.decoder_layers),
            dropout=_chosen(dropout, own.dropout),
            norm=_chosen(norm, own.norm),
        )

    def training_with(
        self,
        *,
        seed: int,
        bf16: bool,
        learning_rate: float | None = None,
        warmup: int | None = None,
        accumulate: int | None = None,
    ) -> TrainingSettings:
        """The training with those changes that are given, and with a seed."""
        return replace(
            self.training,
            learning_rate=_chosen(learning_rate, self.training.learning_rate),
            warmup=_chosen(warmup, self.training.warmup),
            accumulate=_chosen(accumulate, self.training.accumulate),
            seed=seed,
            bf16=bf16,
        )

    def stopping(
        self, *, epochs: int | None, steps: int | None, patience: int | None, average: int
    ) -> Stopping:
        """When training ends; the preset's epochs count only where neither epochs nor steps are given."""
        own = self.epochs if epochs is None and steps is None else epochs
        return Stopping(epochs=own, steps=steps, patience=patience, average=average)


def _chosen(given: Value | None, own: Value) -> Value:
    return own if given is None else given


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
