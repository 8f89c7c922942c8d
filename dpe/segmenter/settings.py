"""The settings of a segmenter and of its segmentations, and presets that are known to work."""

from __future__ import annotations

from dataclasses import dataclass

from dpe.choices import CutMode
from dpe.model.settings import MixedSettings, ModelSettings
from dpe.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class SegmenterSettings(ModelSettings, MixedSettings):
    """Everything that makes a segmenter what it is, apart from its text and vocabulary."""

    batch: int = setting(8_000, "Padded target characters in a batch.", low=1)
    source: bool = setting(True, "False: a language model of the target alone (LM DPE).")
    source_dropout: float = setting(0.05, "BPE dropout of the source, drawn anew every epoch.", low=0, high=1)
    max_characters: int = setting(1_000, "Longer lines are left out of training.", low=1)


@dataclass(frozen=True, kw_only=True)
class SegmentSettings(Settings):
    """Which segmentations of a line are wanted; random ones are a function of (seed, epoch, line)."""

    mode: CutMode = setting("best", "The best segmentation, random ones from the posterior, or the n best.")
    n: int = setting(1, "Segmentations of a line, for sample and n-best.", low=1)
    temperature: float = setting(
        1.0,
        "For sample: divides the scores; below 1 keeps closer to the best segmentation.",
        low=1e-100,
        high=1e100,
    )
    source_dropout: float = setting(
        0.0, "Segment the source by BPE dropout of this epoch first.", low=0, high=1
    )
    seed: int = setting(1, "Same seed, same random segmentations.")
    epoch: int = setting(0, "Another epoch gives other random segmentations.")

    @property
    def is_random(self) -> bool:
        """Whether another epoch would give other segmentations."""
        return self.source_dropout > 0 or self.mode == "sample"


SEGMENTER_PRESETS = {
    # Minutes on two cores: small corpora, demos.
    "tiny": SegmenterSettings(
        width=128,
        feed_forward=512,
        encoder_layers=2,
        decoder_layers=3,
        learning_rate=2e-3,
        warmup=400,
        batch=6_000,
        epochs=8,
    ),
    # Hours on two cores, minutes on a GPU: 20,000 to 500,000 pairs.
    "small": SegmenterSettings(dropout=0.2, accumulate=2, epochs=15),
    # The paper's: 4 layers instead of transformer base's 6, 16 gradients an update; the rest is from the
    # authors' published scripts.
    "base": SegmenterSettings(
        width=512,
        heads=8,
        feed_forward=2048,
        encoder_layers=4,
        dropout=0.3,
        norm="post",
        learning_rate=5e-4,
        warmup=4000,
        accumulate=16,
        epochs=20,
    ),
}
