"""Dynamic Programming Encoding: exact latent subword segmentation for machine translation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpe.errors import UserError

if TYPE_CHECKING:
    from dpe.progress import Progress
    from dpe.segmenter.answers import Posterior, Score, Segmentation
    from dpe.segmenter.segmenter import OnTheFly, Segmenter, TrainingPair
    from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings
    from dpe.segmenter.training import train_segmenter
    from dpe.text.vocabulary import Vocabulary, VocabularySettings, learn_vocabulary
    from dpe.training.processes import Session
    from dpe.translator.settings import TRANSLATOR_PRESETS, Search, TranslatorSettings
    from dpe.translator.training import train_translator
    from dpe.translator.translator import Translation, Translator

__version__ = "0.1.0"

# Imported when they are asked for, so that `import dpe` and `dpe --help` do not wait for torch.
_WHERE = {
    "Progress": "dpe.progress",
    "Posterior": "dpe.segmenter.answers",
    "Score": "dpe.segmenter.answers",
    "Segmentation": "dpe.segmenter.answers",
    "OnTheFly": "dpe.segmenter.segmenter",
    "Segmenter": "dpe.segmenter.segmenter",
    "TrainingPair": "dpe.segmenter.segmenter",
    "SEGMENTER_PRESETS": "dpe.segmenter.settings",
    "SegmenterSettings": "dpe.segmenter.settings",
    "train_segmenter": "dpe.segmenter.training",
    "Vocabulary": "dpe.text.vocabulary",
    "VocabularySettings": "dpe.text.vocabulary",
    "learn_vocabulary": "dpe.text.vocabulary",
    "Session": "dpe.training.processes",
    "TRANSLATOR_PRESETS": "dpe.translator.settings",
    "Search": "dpe.translator.settings",
    "TranslatorSettings": "dpe.translator.settings",
    "train_translator": "dpe.translator.training",
    "Translation": "dpe.translator.translator",
    "Translator": "dpe.translator.translator",
}

__all__ = [
    "SEGMENTER_PRESETS",
    "TRANSLATOR_PRESETS",
    "OnTheFly",
    "Posterior",
    "Progress",
    "Score",
    "Search",
    "Segmentation",
    "Segmenter",
    "SegmenterSettings",
    "Session",
    "TrainingPair",
    "Translation",
    "Translator",
    "TranslatorSettings",
    "UserError",
    "Vocabulary",
    "VocabularySettings",
    "__version__",
    "learn_vocabulary",
    "train_segmenter",
    "train_translator",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
