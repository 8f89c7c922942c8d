"""What is measured: the text, the vocabularies, the batches, and models that were trained for 300 steps.

The text is Multi30k English-German when `../shared` is there, and the built-in corpus otherwise. Learned
vocabularies and trained weights are kept in the system's temporary directory, so that a second run is fast.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from sentencepiece import sentencepiece_model_pb2

from dpe.demo.grammar import generate
from dpe.errors import UserError
from dpe.model.batch_order import epoch_batches
from dpe.model.batching import (
    MixedBatch,
    MixedCollator,
    MixedExample,
    TranslationBatch,
    collate_translation,
    mixed_example,
    translation_example,
)
from dpe.model.checkpoint import MODEL, load_tensors, put_weights, save_model, write_settings
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.settings import SegmenterSettings
from dpe.segmenter.training import train_segmenter
from dpe.text.corpus import read_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary

SHARED_TEXT = Path(__file__).parents[2] / "shared" / "data" / "multi30k" / "en-de"
CACHE = Path(tempfile.gettempdir()) / "dpe-benchmarks"

TRAINED_STEPS = 300
NETWORK = SegmenterSettings(
    encoder_layers=4, learning_rate=1e-3, warmup=300, batch=4_000, steps=TRAINED_STEPS
)
DecoderName = Literal["characters", "words"]
DECODERS: tuple[DecoderName, ...] = ("characters", "words")
BATCH_CHARACTERS = 8_000  # of the timed batches, padding included: the paper's


@dataclass(frozen=True)
class Text:
    """A parallel text, and what it is called in the results."""

    name: str
    sources: list[str]
    targets: list[str]


@cache
def text() -> Text:
    """Multi30k's training part when it is there; otherwise as much of the built-in corpus."""
    if SHARED_TEXT.exists():
        sides = [list(read_lines(SHARED_TEXT / f"train.{side}.xz")) for side in ("en", "de")]
        return Text("Multi30k English-German", *sides)
    pairs = list(generate(29_000, seed=1))
    return Text("built-in corpus", [pair.source for pair in pairs], [pair.target for pair in pairs])


@cache
def vocabulary(size: int) -> Vocabulary:
    """A joint BPE vocabulary of exactly that many pieces.

    If the text cannot fill it, the largest half, quarter ... of the size that it can, and beside these
    pieces that never match: the softmax has its full size, the lattices have fewer edges.
    """
    path = CACHE / f"{text().name.replace(' ', '-')}-{size}.model"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        _learned(size).save(path)
    return Vocabulary.load(path)


def _learned(size: int) -> Vocabulary:
    lines, learned_size = [*text().sources, *text().targets], size
    while True:
        try:
            return _filled(learn_vocabulary(lines, VocabularySettings(size=learned_size)), size)
        except UserError:
            learned_size //= 2


def _filled(learned: Vocabulary, size: int) -> Vocabulary:
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # generated at import
    model.ParseFromString(learned.content)
    for number in range(size - len(model.pieces)):
        model.pieces.add(piece=f"<unused {number}>", score=0.0, type=model.SentencePiece.UNUSED)
    return Vocabulary(model.SerializeToString())


def untrained_mixed(size: int, network: SegmenterSettings = NETWORK) -> MixedTransformer:
    torch.manual_seed(1)
    return MixedTransformer.of(network, vocabulary(size), source=True)


def trained_mixed(size: int, network: SegmenterSettings = NETWORK) -> MixedTransformer:
    """The mixed model after 300 steps; trained once, then read from the cache."""
    model, pieces = untrained_mixed(size, network), vocabulary(size)
    key = hashlib.sha256(f"{pieces.fingerprint} {network}".encode()).hexdigest()[:16]
    directory = CACHE / f"mixed-{size}-{key}"
    if not (directory / MODEL).exists():
        _train(directory, pieces, network)
    put_weights(model, load_tensors(directory / MODEL)[0], name=MODEL)
    return model.train()


def _train(directory: Path, pieces: Vocabulary, network: SegmenterSettings) -> None:
    train_segmenter(
        directory,
        vocabulary=pieces,
        source=text().sources[1000:],
        target=text().targets[1000:],
        dev_source=text().sources[:100],
        dev_target=text().targets[:100],
        settings=network,
    )


def saved_segmenter(
    model: MixedTransformer, pieces: Vocabulary, network: SegmenterSettings, *, source: bool
) -> Path:
    """A temporary directory that a segmenter is loaded from."""
    directory = Path(tempfile.mkdtemp(prefix="dpe-segmenter-"))
    write_settings(directory, "segmenter", replace(network, source=source), pieces, {})
    save_model(directory / MODEL, model, {})
    return directory


def translation_model(size: int) -> TranslationTransformer:
    """Untrained: what a step of it costs does not depend on its weights."""
    torch.manual_seed(1)
    return TranslationTransformer.of(NETWORK, vocabulary(size))


def line_batches(size: int, *, count: int, characters: int = BATCH_CHARACTERS) -> list[list[int]]:
    """Lines of the text in batches of similar length, as the training of the mixed model groups them."""
    pieces = vocabulary(size)
    batches = epoch_batches(
        len(text().targets),
        lambda line: line,
        lambda line: (len(text().sources[line]) // 4, len(pieces.normalize(text().targets[line])) + 1),
        budget=(characters, characters),
        seed=1,
        epoch=0,
    )
    return [batch for batch, _ in zip(batches, range(count), strict=False)]


class Collation:
    """Both models' batches of the same lines; sources, and the translation model's targets, cut by BPE."""

    def __init__(self, size: int) -> None:
        self.vocabulary = vocabulary(size)
        self.collator = MixedCollator(self.vocabulary)

    def mixed_examples(self, lines: list[int]) -> list[MixedExample]:
        pieces = self.vocabulary
        return [
            mixed_example(pieces, line, pieces.encode(text().sources[line]), text().targets[line])
            for line in lines
        ]

    def mixed(self, lines: list[int]) -> MixedBatch:
        return self.collator.collate(self.mixed_examples(lines), epoch=0)

    def translation(self, lines: list[int]) -> TranslationBatch:
        pieces = self.vocabulary
        examples = [
            translation_example(
                pieces, line, pieces.encode(text().sources[line]), pieces.encode(text().targets[line])
            )
            for line in lines
        ]
        return collate_translation(examples, pieces)
