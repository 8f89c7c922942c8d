"""Dynamic Programming Encoding: exact latent subword segmentation for machine translation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpe.errors import UserError as UserError

if TYPE_CHECKING:
    from dpe.corpus_run.distillation import distill as distill
    from dpe.corpus_run.pruning import prune_vocabulary as prune_vocabulary
    from dpe.progress import Progress as Progress
    from dpe.segmenter.answers import Posterior as Posterior
    from dpe.segmenter.answers import PrefixScore as PrefixScore
    from dpe.segmenter.answers import Score as Score
    from dpe.segmenter.answers import Segmentation as Segmentation
    from dpe.segmenter.segmenter import OnTheFly as OnTheFly
    from dpe.segmenter.segmenter import Segmenter as Segmenter
    from dpe.segmenter.segmenter import TrainingPair as TrainingPair
    from dpe.segmenter.settings import SEGMENTER_PRESETS as SEGMENTER_PRESETS
    from dpe.segmenter.settings import DistillSettings as DistillSettings
    from dpe.segmenter.settings import SegmenterSettings as SegmenterSettings
    from dpe.segmenter.training import train_segmenter as train_segmenter
    from dpe.text.learning import VocabularySettings as VocabularySettings
    from dpe.text.learning import learn_vocabulary as learn_vocabulary
    from dpe.text.vocabulary import Vocabulary as Vocabulary
    from dpe.training.processes import Session as Session
    from dpe.translator.settings import TRANSLATOR_PRESETS as TRANSLATOR_PRESETS
    from dpe.translator.settings import Search as Search
    from dpe.translator.settings import TranslatorSettings as TranslatorSettings
    from dpe.translator.training import train_translator as train_translator
    from dpe.translator.translator import Translation as Translation
    from dpe.translator.translator import Translator as Translator

__version__ = "0.2.0"

# Imported when they are asked for, so that `import dpe` and `dpe --help` do not wait for torch.
_NAMES = {
    "dpe.corpus_run.distillation": ("distill",),
    "dpe.corpus_run.pruning": ("prune_vocabulary",),
    "dpe.progress": ("Progress",),
    "dpe.segmenter.answers": ("Posterior", "PrefixScore", "Score", "Segmentation"),
    "dpe.segmenter.segmenter": ("OnTheFly", "Segmenter", "TrainingPair"),
    "dpe.segmenter.settings": ("SEGMENTER_PRESETS", "DistillSettings", "SegmenterSettings"),
    "dpe.segmenter.training": ("train_segmenter",),
    "dpe.text.learning": ("VocabularySettings", "learn_vocabulary"),
    "dpe.text.vocabulary": ("Vocabulary",),
    "dpe.training.processes": ("Session",),
    "dpe.translator.settings": ("TRANSLATOR_PRESETS", "Search", "TranslatorSettings"),
    "dpe.translator.training": ("train_translator",),
    "dpe.translator.translator": ("Translation", "Translator"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["UserError", "__version__", *_WHERE]  # noqa: PLE0604  (all are strings)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
