"""Segmenters for tests: minute, with random weights, which make rich posteriors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import torch

from dpe.model.mixed import MixedTransformer
from dpe.model.transformer import TransformerSettings
from dpe.text.grammar import generate
from dpe.text.vocabulary import Vocabulary, VocabularySettings, learn_vocabulary
from dpe.training.checkpoint import MODEL, save_model, write_settings

PAIRS = [(pair.source, pair.target) for pair in generate(400, seed=5)]
NETWORK = TransformerSettings(
    width=32, heads=2, feed_forward=64, encoder_layers=1, decoder_layers=1, dropout=0.1
)


def learned_vocabulary(size: int = 200) -> Vocabulary:
    """BPE of the built-in corpus."""
    return learn_vocabulary((side for pair in PAIRS for side in pair), VocabularySettings(size=size))


def save_segmenter(directory: Path, vocabulary: Vocabulary, *, source: bool = True, seed: int = 1) -> Path:
    """An untrained segmenter as training would leave it."""
    directory.mkdir(parents=True)
    write_settings(directory, "segmenter", {"network": asdict(NETWORK), "source": source}, vocabulary)
    torch.manual_seed(seed)
    model = MixedTransformer.of(NETWORK, vocabulary, source=source)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # sharper than at the start of a training, so that cuts differ in score
    save_model(directory / MODEL, model, {})
    return directory
