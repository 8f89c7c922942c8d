"""Translators for tests: minute networks, trained for seconds on the built-in corpus."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Session
from dpe.training.state import Position
from dpe.translator.settings import TranslatorSettings
from dpe.translator.training import train_translator
from tests.segmenters import PAIRS

TRAIN, DEV, TEST = PAIRS[:300], PAIRS[300:310], PAIRS[310:374]
SETTINGS = TranslatorSettings(
    width=32,
    heads=2,
    feed_forward=64,
    encoder_layers=2,
    decoder_layers=2,
    dropout=0.0,
    learning_rate=1e-2,
    warmup=30,
    batch=1_000,
)


def write_corpus(directory: Path) -> Path:
    """train.en, train.fi, dev.en and dev.fi of the built-in corpus."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("train", TRAIN), ("dev", DEV)):
        for side, language in enumerate(("en", "fi")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (directory / f"{name}.{language}").write_text(text, encoding="utf-8")
    return directory


def open_corpus(directory: Path, name: str) -> ParallelText:
    return ParallelText.open(directory / f"{name}.en", directory / f"{name}.fi")


def train(
    out: Path,
    corpus: Path,
    vocabulary: Vocabulary,
    *,
    segmenter: Path | None = None,
    cuts: Path | None = None,
    session: Session = Session(),
    **changes: Any,
) -> Position:
    """Train with `SETTINGS`, some of them changed."""
    return train_translator(
        out,
        vocabulary=vocabulary,
        source=corpus / "train.en",
        target=corpus / "train.fi",
        dev_source=corpus / "dev.en",
        dev_target=corpus / "dev.fi",
        segmenter=segmenter,
        cuts=cuts,
        settings=replace(SETTINGS, **changes),
        session=session,
    )
