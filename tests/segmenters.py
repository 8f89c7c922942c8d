"""Segmenters for tests: minute, with random weights, which make rich posteriors, or trained for moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dpe.choices import VocabularyType
from dpe.demo.grammar import generate
from dpe.model.checkpoint import MODEL, save_model, write_settings
from dpe.model.mixed import MixedTransformer
from dpe.progress import QUIET, Progress
from dpe.segmenter.settings import SegmenterSettings
from dpe.segmenter.training import train_segmenter
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Processes, Session
from dpe.training.state import Position

PAIRS = [(pair.source, pair.target) for pair in generate(400, seed=5)]
NETWORK = SegmenterSettings(width=32, heads=2, feed_forward=64, encoder_layers=1, decoder_layers=1)

# Of trainings: a network that learns next to nothing, from a text of five updates an epoch.
SMALLEST = SegmenterSettings(width=8, heads=1, feed_forward=8, encoder_layers=1, decoder_layers=1)
TARGETS = [f"talo{ending} auto{ending}" for ending in ("", "n", "ssa", "sta", "lle", "kin", "t", "ja")] * 5
UPDATES = 5


def learned_vocabulary(size: int = 200, type: VocabularyType = "bpe") -> Vocabulary:
    """Of the built-in corpus."""
    settings = VocabularySettings(size=size, type=type)
    return learn_vocabulary((side for pair in PAIRS for side in pair), settings)


DECODERS = ("characters", "words")


def save_segmenter(
    directory: Path,
    vocabulary: Vocabulary,
    *,
    source: bool = True,
    seed: int = 1,
    decoder: Any = "characters",
) -> Path:
    """An untrained segmenter as training would leave it."""
    directory.mkdir(parents=True)
    settings = replace(NETWORK, source=source, decoder=decoder)
    write_settings(directory, "segmenter", settings, vocabulary, {})
    torch.manual_seed(seed)
    model = MixedTransformer.of(settings, vocabulary, source=source)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # sharper than at the start of a training, so that cuts differ in score
    save_model(directory / MODEL, model, {})
    return directory


def train(
    out: Path,
    *,
    processes: Processes = Processes(),
    seed: int = 1,
    learning_rate: float = 1e-3,
    save_seconds: float = 300.0,
    load_workers: int = 1,
    progress: Progress = Progress(QUIET),
    targets: Sequence[str] = TARGETS,
    vocabulary: Vocabulary | None = None,
    **ending: Any,
) -> Position:
    """Train a segmenter without a source; its vocabulary is learned from the targets unless given."""
    vocabulary = vocabulary or learn_vocabulary(targets, VocabularySettings(size=30))
    settings = replace(
        SMALLEST, learning_rate=learning_rate, warmup=4, seed=seed, batch=160, source=False, **ending
    )
    return train_segmenter(
        out,
        vocabulary=vocabulary,
        target=list(targets),
        dev_target=list(targets),
        settings=settings,
        session=Session(
            processes=processes, progress=progress, save_seconds=save_seconds, load_workers=load_workers
        ),
    )
