"""Training the segmenters and translators of an experiment: a preset, with the recipe's fields on top."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dpe.evaluation.plots import draw_training_curve
from dpe.evaluation.scores import dev_bleu
from dpe.experiment.recipe import NetworkFields, SegmenterFields, Split, TranslatorFields
from dpe.experiment.systems import System
from dpe.experiment.texts import Texts
from dpe.model.checkpoint import CURVE, MODEL, PICTURE, SETTINGS, VOCABULARY
from dpe.model.device import choose_device
from dpe.model.transformer import TransformerSettings
from dpe.progress import Progress
from dpe.segmenter.training import SegmenterSettings, train_segmenter
from dpe.text.vocabulary import Vocabulary
from dpe.training.log import read_curve
from dpe.training.processes import Processes
from dpe.training.settings import (
    SEGMENTER_PRESETS,
    TRANSLATOR_PRESETS,
    Preset,
    Session,
    Stopping,
    TrainingSettings,
)
from dpe.training.state import Position
from dpe.translator.targets import SegmenterCutter
from dpe.translator.training import TranslatorSettings, train_translator

MODEL_FILES = (SETTINGS, VOCABULARY, MODEL, CURVE)
CUTS = "cuts"  # in a segmenter's directory: what it cut


@dataclass(frozen=True)
class Compute:
    """What computes; results depend on it only by rounding."""

    device: str = "auto"
    threads: int | None = None  # None is one per core

    def session(self, stopping: Stopping, progress: Progress) -> Session:
        processes = Processes(device=choose_device(self.device))
        return Session(stopping=stopping, processes=processes, progress=progress)


def segmenter_settings(fields: SegmenterFields, *, source: bool) -> SegmenterSettings:
    """Of the mixed model, or of the language model."""
    preset = SEGMENTER_PRESETS[fields.preset]
    return SegmenterSettings(
        network=_network(preset, fields),
        training=_training(preset, fields, fields.seed),
        batch=fields.batch or preset.batch,
        source=source,
        source_dropout=fields.source_dropout if source else 0.0,
        max_characters=fields.max_characters,
    )


def translator_settings(
    fields: TranslatorFields,
    system: System,
    seed: int,
    *,
    moses: tuple[str, str] | None,
    bleu_tokenize: str | None,
) -> TranslatorSettings:
    """Of one system and one seed."""
    preset = TRANSLATOR_PRESETS[fields.preset]
    return TranslatorSettings(
        network=_network(preset, fields),
        training=_training(preset, fields, seed),
        batch=fields.batch or preset.batch,
        label_smoothing=fields.label_smoothing,
        source_method=system.source,
        target_method=system.target,
        bpe_dropout=fields.bpe_dropout,
        unigram_alpha=fields.unigram_alpha,
        target_sampling=system.target_sampling,
        cut_seed=fields.cut_seed,
        max_tokens=fields.max_tokens,
        moses=moses,
        bleu_tokenize=bleu_tokenize,
    )


def segmenter_stopping(fields: SegmenterFields) -> Stopping:
    return _stopping(SEGMENTER_PRESETS[fields.preset], fields)


def translator_stopping(fields: TranslatorFields) -> Stopping:
    return _stopping(TRANSLATOR_PRESETS[fields.preset], fields)


def model_settings(settings: SegmenterSettings | TranslatorSettings, stopping: Stopping) -> dict[str, Any]:
    """What a trained model depends on, as its stage records it."""
    described = asdict(settings) | {"stopping": asdict(stopping)}
    if described.get("bleu_tokenize") is None:
        described.pop("bleu_tokenize", None)  # as in runs made before there was a choice
    return described


def can_go_on(before: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a model that was trained with other settings would only have to be trained longer."""
    after = json.loads(json.dumps(settings))  # as a record has them
    stopping, earlier = Stopping(**after["stopping"]), Stopping(**before["stopping"])
    return {**before, "stopping": None} == {**after, "stopping": None} and stopping.goes_on_from(earlier)


def make_segmenter(
    directory: Path,
    vocabulary: Path,
    texts: Texts,
    settings: SegmenterSettings,
    stopping: Stopping,
    *,
    compute: Compute,
    progress: Progress,
) -> dict[str, Any]:
    """Train the segmenter in a directory, or go on with it."""
    train, dev = (texts.open(split, cache=directory / "cache") for split in ("train", "dev"))
    if not settings.source:
        train, dev = replace(train, source=None), replace(dev, source=None)
    position = train_segmenter(
        directory,
        Vocabulary.load(vocabulary),
        train,
        dev,
        settings=settings,
        session=compute.session(stopping, progress),
    )
    draw_training_curve(read_curve(directory / CURVE), directory / PICTURE)
    return _facts(position) | {"dev_bits_per_character": position.kept_score}


def make_translator(
    directory: Path,
    vocabulary: Path,
    texts: Texts,
    settings: TranslatorSettings,
    stopping: Stopping,
    *,
    segmenter: Path | None,
    compute: Compute,
    progress: Progress,
) -> dict[str, Any]:
    """Train the translator in a directory, or go on with it. The segmenter's cuts are kept beside it."""
    cutter = segmenter and segmenter_cutter(segmenter, texts, "train", compute=compute, progress=progress)
    position = train_translator(
        directory,
        Vocabulary.load(vocabulary),
        texts.open("train", cache=directory / "cache"),
        texts.open("dev", cache=directory / "cache"),
        settings=settings,
        session=compute.session(stopping, progress),
        bleu=dev_bleu(moses=settings.moses, tokenize=settings.bleu_tokenize),
        cutter=cutter or None,
        cuts=segmenter / CUTS if segmenter else None,
    )
    draw_training_curve(read_curve(directory / CURVE), directory / PICTURE)
    return _facts(position) | {"dev_bleu_greedy": -position.kept_score}


def segmenter_cutter(
    segmenter: Path, texts: Texts, split: Split, *, compute: Compute, progress: Progress
) -> SegmenterCutter:
    """The segmenter, ready to cut one text of the run."""
    source, target = texts.prepared_pair(split)
    return SegmenterCutter(
        segmenter,
        source=source,
        target=target,
        device=compute.device,
        workers=compute.threads,
        progress=progress,
    )


def _network(preset: Preset, fields: NetworkFields) -> TransformerSettings:
    return preset.network_with(
        width=fields.width,
        heads=fields.heads,
        feed_forward=fields.feed_forward,
        encoder_layers=fields.encoder_layers,
        decoder_layers=fields.decoder_layers,
        dropout=fields.dropout,
        norm=fields.norm,
    )


def _training(preset: Preset, fields: NetworkFields, seed: int) -> TrainingSettings:
    return preset.training_with(
        learning_rate=fields.learning_rate,
        warmup=fields.warmup,
        accumulate=fields.accumulate,
        seed=seed,
        bf16=fields.bf16,
    )


def _stopping(preset: Preset, fields: NetworkFields) -> Stopping:
    return preset.stopping(
        epochs=fields.epochs, steps=fields.steps, patience=fields.patience, average=fields.average
    )


def _facts(position: Position) -> dict[str, Any]:
    return {"steps": position.step, "epochs": position.epoch, "training_seconds": round(position.seconds, 1)}
