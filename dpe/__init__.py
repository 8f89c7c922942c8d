"""Dynamic Programming Encoding: exact latent subword segmentation for machine translation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpe.errors import UserError
from dpe.version import __version__

if TYPE_CHECKING:
    from dpe.segmenter.answers import Posterior, Score, Segmentation
    from dpe.segmenter.on_the_fly import OnTheFly, TrainingPair
    from dpe.segmenter.segmenter import Segmenter
    from dpe.translator.translator import Search, Translation, Translator

__all__ = [
    "OnTheFly",
    "Posterior",
    "Score",
    "Search",
    "Segmentation",
    "Segmenter",
    "TrainingPair",
    "Translation",
    "Translator",
    "UserError",
    "__version__",
]

# Imported when they are asked for, so that `import dpe` and `dpe --help` do not wait for torch.
_WHERE = {
    "OnTheFly": "dpe.segmenter.on_the_fly",
    "TrainingPair": "dpe.segmenter.on_the_fly",
    "Posterior": "dpe.segmenter.answers",
    "Score": "dpe.segmenter.answers",
    "Segmentation": "dpe.segmenter.answers",
    "Segmenter": "dpe.segmenter.segmenter",
    "Search": "dpe.translator.translator",
    "Translation": "dpe.translator.translator",
    "Translator": "dpe.translator.translator",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
