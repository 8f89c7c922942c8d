"""How a model is trained: what may not differ between two starts of one training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from dpe.errors import UserError
from dpe.model.transformer import TransformerSettings
from dpe.progress import QUIET, Progress
from dpe.training.processes import Processes


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


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """When training ends: at the first of these."""

    epochs: int | None = None
    steps: int | None = None  # updates
    patience: int | None = None  # epochs without a better score
    average: int = 1  # epochs whose weights are averaged at the end

    def goes_on_from(self, earlier: Stopping) -> bool:
        """Whether a training that stopped by `earlier` can be continued to this.

        Never with an average: the one made then would be lost.
        """
        pairs = (
            (self.epochs, earlier.epochs),
            (self.steps, earlier.steps),
            (self.patience, earlier.patience),
        )
        longer = all(now is None or (before is not None and now >= before) for now, before in pairs)
        return longer and self.average == earlier.average == 1


def _silence() -> Progress:
    return Progress(QUIET)


@dataclass(frozen=True, kw_only=True)
class Session:
    """What may differ between two starts of one training.

    Another number of processes changes the size of an update.
    """

    stopping: Stopping
    processes: Processes = field(default_factory=Processes)
    progress: Progress = field(default_factory=_silence)
    save_seconds: float = 300.0  # the longest time that a kill can cost


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
