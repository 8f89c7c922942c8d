"""The systems of the paper's tables: how the source and the target of a translator are segmented.

A recipe says over which vocabulary its segmenters work. Over a unigram vocabulary the systems that have one
keep their names; their sources are samples from the unigram, or its best segmentation, instead of BPE's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dpe.choices import SEGMENTER_METHODS, SourceMethod, TargetMethod, VocabularyType
from dpe.errors import UserError, refuse
from dpe.settings import build, changed, nearest
from dpe.translator.settings import check_methods

SegmenterName = Literal["mixed", "lm"]
SEGMENTER_TITLES = {"mixed": "DPE", "lm": "LM DPE"}  # in tables
# Of a vocabulary's own segmentation, and the system that is drawn on both sides without a segmenter.
OWN_TITLES: dict[VocabularyType, str] = {"bpe": "BPE", "unigram": "unigram"}
DRAWN_SYSTEMS: dict[VocabularyType, str] = {"bpe": "bpe-dropout", "unigram": "unigram"}
DISTILLED_TITLE = "{}, distilled"


@dataclass(frozen=True, kw_only=True)
class System:
    """One column of the table."""

    name: str  # its directory in the run, and what --only takes
    title: str  # source / target, as in the table
    source: SourceMethod
    target: TargetMethod
    segmenter: SegmenterName | None = None  # of DPE targets: given the source, or a language model
    target_sampling: float | None = None  # sample targets at this temperature instead of taking the best

    def __post_init__(self) -> None:
        plain = all(c.isascii() and (c.isalnum() or c in "-_") for c in self.name)
        refuse(
            (
                not self.name or not plain,
                f"System name {self.name!r} must have ASCII letters, digits, '-' and '_' only.",
            ),
            (
                (self.target in SEGMENTER_METHODS) != (self.segmenter is not None),
                f"System {self.name} needs a segmenter if, and only if, its target is dpe or dpe-fixed.",
            ),
            (
                self.target.startswith("bpe" if self.vocabulary == "unigram" else "unigram"),
                f"System {self.name} needs two vocabularies, for {self.source} and for {self.target}; choose "
                "methods of one type.",
            ),
        )
        try:
            check_methods(
                self.source,
                self.target,
                reads_source=self.segmenter == "mixed",
                sampling=self.target_sampling,
            )
        except UserError as error:
            raise UserError(f"System {self.name}: {error}") from error

    @property
    def vocabulary(self) -> VocabularyType:
        """Which of the run's vocabularies it uses."""
        return "unigram" if self.source.startswith("unigram") else "bpe"

    def over(self, type: VocabularyType) -> System:
        """The system of this name in a recipe whose segmenters work over this type of vocabulary."""
        if type == "bpe" or self.segmenter is None or SYSTEMS.get(self.name) != self:
            return self
        title = self.title.replace("BPE dropout", "unigram sampling").replace("BPE", "unigram best")
        return replace(
            self, source="unigram" if self.source == "bpe-dropout" else "unigram-best", title=title
        )

    @property
    def is_own(self) -> bool:
        """Whether the recipe defines it itself."""
        known = SYSTEMS.get(self.name)
        return known is None or self not in (known, known.over("unigram"))

    @classmethod
    def from_value(cls, value: Any, label: str, key: str) -> System:
        """A system by name, or from a table of its fields."""
        if isinstance(value, Mapping):
            return build(cls, value, label, f"{key}.")
        if isinstance(value, str) and value in SYSTEMS:
            return SYSTEMS[value]
        raise UserError(f"{label}: there is no system {value!r}; {nearest(str(value), SYSTEMS)}")

    def to_value(self) -> Any:
        """Its name, or the table of a system that is not among `SYSTEMS`."""
        return changed(self) if self.is_own else self.name


def _paper(name: str, title: str, target: TargetMethod, segmenter: SegmenterName | None = None) -> System:
    """A system whose source is segmented by BPE dropout."""
    return System(name=name, title=title, source="bpe-dropout", target=target, segmenter=segmenter)


# Recipes and results name these, so an entry never changes. LM targets do not depend on the source, so
# segmenting once is segmenting on the fly.
SYSTEMS = {
    system.name: system
    for system in (
        System(name="bpe", title="BPE / BPE", source="bpe", target="bpe"),
        _paper("bpe-dropout-source", "BPE dropout / BPE", "bpe"),
        _paper("bpe-dropout", "BPE dropout / BPE dropout", "bpe-dropout"),
        _paper("dpe", "BPE dropout / DPE", "dpe", "mixed"),
        _paper("dpe-fixed", "BPE dropout / DPE fixed", "dpe-fixed", "mixed"),
        System(
            name="dpe-plain", title="BPE / DPE fixed", source="bpe", target="dpe-fixed", segmenter="mixed"
        ),
        _paper("lm-dpe", "BPE dropout / LM DPE", "dpe-fixed", "lm"),
        System(
            name="dpe-sampled",
            title="BPE dropout / DPE sampled",
            source="bpe-dropout",
            target="dpe",
            segmenter="mixed",
            target_sampling=1.0,
        ),
        System(
            name="unigram",
            title="unigram sampling / unigram sampling",
            source="unigram",
            target="unigram",
        ),
        System(
            name="unigram-best",
            title="unigram best / unigram best",
            source="unigram-best",
            target="unigram-best",
        ),
        System(
            name="unigram-source",
            title="unigram sampling / unigram best",
            source="unigram",
            target="unigram-best",
        ),
        _paper("longest-match", "BPE dropout / longest match", "longest-match"),
    )
}
