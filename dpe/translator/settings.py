"""The settings of a translator and of its search, and presets that are known to work."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from dpe.choices import SEGMENTER_METHODS, BleuTokens, SourceMethod, TargetMethod
from dpe.errors import UserError, refuse
from dpe.model.settings import ModelSettings, read_presets
from dpe.settings import Settings, setting

BATCH_TOKENS = 1_000


@dataclass(frozen=True, kw_only=True)
class TranslatorSettings(ModelSettings):
    """Everything that makes a translator what it is, apart from its text, vocabulary and segmenter."""

    encoder_layers: int = setting(4, "Layers of the encoder.", low=1)
    batch: int = setting(4_000, "Padded tokens of either side in a batch.", low=1)
    label_smoothing: float = setting(0.1, "Label smoothing; 0 is none.", low=0, below=1)
    source_method: SourceMethod = setting(
        "bpe", "How the source is segmented. unigram samples, unigram-best does not."
    )
    target_method: TargetMethod = setting(
        "bpe",
        "How the target is segmented. dpe: by the segmenter, anew for every segmentation of the source; "
        "dpe-fixed: by the segmenter, once, given the plain source.",
    )
    bpe_dropout: float = setting(0.05, "Dropout of merges, where a method is bpe-dropout.", low=0, high=1)
    unigram_alpha: float | None = setting(
        0.2, "Sharpness of sampling, where a method is unigram; unset: the best segmentation.", low=0
    )
    unigram_nbest: int = setting(-1, "Sample among this many best, where a method is unigram; -1 is all.")
    uniform_skew: float = setting(
        0.0,
        "Where a method is uniform: the weight of a segmentation of n pieces is exp(-uniform_skew n).",
        low=0,
    )
    target_sampling: float | None = setting(
        None, "dpe: sample targets from the posterior at this temperature.", low=1e-100, high=1e100
    )
    cut_seed: int = setting(1, "Seed of all random segmentations; seed is the network's.")
    max_tokens: int = setting(256, "Lines with more pieces on a side are left out of training.", low=1)
    moses: tuple[str, str] | None = setting(
        None, "The text is tokenised by Moses' rules for these two languages (source, target)."
    )
    bleu_tokenize: BleuTokens = setting("13a", "What BLEU takes for a token, as in sacreBLEU.")

    def __post_init__(self) -> None:
        super().__post_init__()
        follows_samples = (self.source_method, self.target_method) == ("unigram", "dpe")
        refuse(
            (
                self.moses is not None and len(self.moses) != 2,
                f"moses names {len(self.moses or ())} languages; give the source's and the target's.",
            ),
            (
                follows_samples and self.unigram_nbest != -1,
                "Target method dpe follows sources sampled among all segmentations; leave unigram_nbest out.",
            ),
        )

    @property
    def uses_segmenter(self) -> bool:
        return self.target_method in SEGMENTER_METHODS


@dataclass(frozen=True, kw_only=True)
class Search(Settings):
    """How translations are searched for."""

    beam: int = setting(5, "Hypotheses kept at every step; 1 is greedy.", low=1)
    length_penalty: float = setting(
        1.0, "Scores are divided by length to this power; above 1 prefers longer ones.", above=-inf, below=inf
    )
    n_best: int = setting(1, "Translations of a line.", low=1)
    batch_tokens: int = setting(BATCH_TOKENS, "Source pieces decoded at once by each thread.", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise UserError(f"n_best is {self.n_best}; it must be at most the beam, {self.beam}.")


def check_methods(
    source: SourceMethod, target: TargetMethod, *, reads_source: bool, sampling: float | None
) -> None:
    """Refuse methods that contradict each other; `reads_source`: whether the segmenter of dpe does.

    `sampling` is the temperature of sampled targets, None for the best.
    """
    drawn = {
        "bpe": "bpe-dropout",
        "unigram-best": "unigram with unigram_alpha",
    }  # in place of what is always the same
    refuse(
        (
            source in drawn and target == "dpe" and reads_source and sampling is None,
            "Target method dpe segments the target anew for every draw of the source, but the source is not "
            f"drawn; choose {drawn.get(source)} as source method, or dpe-fixed as target method.",
        ),
        (
            sampling is not None and target != "dpe",
            "Target sampling needs target method dpe, which segments anew every epoch.",
        ),
    )


TRANSLATOR_PRESETS = read_presets("translator", TranslatorSettings)
