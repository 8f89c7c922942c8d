"""The settings of a segmenter, its segmentations and its distillation, and presets that work."""

from __future__ import annotations

from dataclasses import dataclass

from dpe.choices import CountsOf, CutMode
from dpe.model.settings import MixedSettings, ModelSettings, read_presets
from dpe.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class SegmenterSettings(ModelSettings, MixedSettings):
    """Everything that makes a segmenter what it is, apart from its text and vocabulary."""

    batch: int = setting(8_000, "Padded target characters in a batch.", low=1)
    source: bool = setting(True, "False: a language model of the target alone (LM DPE).")
    source_dropout: float = setting(0.05, "BPE dropout of the source, drawn anew every epoch.", low=0, high=1)
    source_alpha: float | None = setting(
        None,
        "Over a unigram vocabulary: sample the source with this sharpness instead; unset: 0.2, or the best "
        "segmentation where source_dropout is 0.",
        low=0,
    )
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
    source_alpha: float | None = setting(
        None, "Sample the source from a unigram vocabulary with this sharpness first.", low=0
    )
    seed: int = setting(1, "Same seed, same random segmentations.")
    epoch: int = setting(0, "Another epoch gives other random segmentations.")
    bf16: bool = setting(False, "Let the network compute in bfloat16, on a GPU only.")

    @property
    def is_random(self) -> bool:
        """Whether another epoch would give other segmentations."""
        return self.source_dropout > 0 or self.source_alpha is not None or self.mode == "sample"


@dataclass(frozen=True, kw_only=True)
class DistillSettings(Settings):
    """How a segmenter is distilled into a unigram model."""

    counts: CountsOf = setting(
        "posterior", "Pieces counted: expected ones under the posterior, or those of the best segmentation."
    )
    ridge: float = setting(0.01, "Holds scores near log counts; in occurrences of a piece.", above=0)
    max_types: int = setting(
        200_000, "Word types that are fitted, the most frequent; pieces of others are only counted.", low=1
    )
    max_updates: int = setting(300, "Updates of the fit, at most.", low=1)
    bf16: bool = setting(False, "Let the network compute in bfloat16, on a GPU only.")


SEGMENTER_PRESETS = read_presets("segmenter", SegmenterSettings)
