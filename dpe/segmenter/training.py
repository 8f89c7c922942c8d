"""Training the mixed character-subword transformer on the exact marginal likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dpe.model.batch_order import batches_by_length, epoch_batches
from dpe.model.batching import MixedBatch, MixedCollator, MixedExample, mixed_example
from dpe.model.mixed import MixedTransformer
from dpe.model.transformer import TransformerSettings
from dpe.segmenter.likelihood import batch_edge_scores, best_log_probability, marginal_log_likelihood
from dpe.text.draws import Draw
from dpe.text.segmenters import CountSegmenter, source_segmenter
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.directory import model_directory
from dpe.training.processes import Processes
from dpe.training.settings import Session, TrainingSettings
from dpe.training.state import Position
from dpe.training.task import bits_of, left_out_sentence, own_batches, refuse_empty, refuse_long_dev
from dpe.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class SegmenterSettings:
    """Everything that makes a segmenter what it is, beside its text and vocabulary."""

    network: TransformerSettings
    training: TrainingSettings
    batch: int = 8_000  # padded target characters in a batch
    source: bool = True  # False: a language model of the target (the paper's LM DPE)
    source_dropout: float = 0.05  # BPE dropout of the source, drawn anew every epoch
    max_characters: int = 1_000  # longer lines are left out of training


def train_segmenter(
    out: Path,
    vocabulary: Vocabulary,
    train: ParallelText,
    dev: ParallelText,
    *,
    settings: SegmenterSettings,
    session: Session,
) -> Position:
    """Train, or go on training, the segmenter in `out`."""
    refuse_empty(train, dev)
    cut_source = source_segmenter(vocabulary, settings.source_dropout)
    described = asdict(settings) | {"data": {"train": train.describe(), "dev": dev.describe()}}
    data = SegmenterData(
        vocabulary=vocabulary,
        train=train,
        dev=dev,
        cut_source=cut_source,
        max_characters=settings.max_characters,
    )
    with model_directory(out, "segmenter", described, vocabulary, session.processes):
        torch.manual_seed(settings.training.seed)
        model = MixedTransformer.of(settings.network, vocabulary, source=settings.source)
        task = SegmenterTask(model, data, batch=settings.batch, seed=settings.training.seed)
        return Trainer(task, settings.training, out, session).train()


LONGEST_DEV = 2_000  # characters; longer lines of the development text are left out
UNKNOWN_RATE = 0.001  # characters hidden from the decoder, so that the unknown character is trained


@dataclass(frozen=True, kw_only=True)
class SegmenterData:
    """The text that a segmenter learns from, and how its source is cut."""

    vocabulary: Vocabulary
    train: ParallelText
    dev: ParallelText
    cut_source: CountSegmenter  # drawn anew every epoch
    max_characters: int = 1000  # longer lines are left out of training


class DevSums(NamedTuple):
    """What is summed over the development text."""

    marginal: float = 0.0  # log-likelihood, in nats
    best: float = 0.0  # log-probability of the best cuts, in nats
    pieces: float = 0.0  # of the best cuts
    characters: float = 0.0  # with one end per sentence
    words: float = 0.0
    unknown: float = 0.0  # characters that are in no piece

    def plus(self, other: DevSums) -> DevSums:
        return DevSums(*(one + more for one, more in zip(self, other, strict=True)))


class SegmenterTask:
    """What the trainer needs to know of a segmenter."""

    unit = "character"

    def __init__(self, model: MixedTransformer, data: SegmenterData, *, batch: int, seed: int) -> None:
        self.model, self.data = model, data
        self.example_count = len(data.train)
        self._too_long: set[int] = set()
        self._dev_lines = [n for n in range(len(data.dev)) if self._longest(*data.dev[n]) <= LONGEST_DEV]
        refuse_long_dev(self._dev_lines, f"{LONGEST_DEV:,} characters")
        self._batch, self._seed = batch, seed
        self._collator = MixedCollator(data.vocabulary, unknown_rate=UNKNOWN_RATE, seed=seed)
        self._dev_collator = MixedCollator(data.vocabulary)

    def batches(self, epoch: int) -> Iterator[list[MixedExample]]:
        return epoch_batches(
            len(self.data.train),
            lambda number: self._load(number, epoch),
            lambda example: example.size,
            budget=(self._batch, self._batch),
            seed=self._seed,
            epoch=epoch,
        )

    def _load(self, number: int, epoch: int) -> MixedExample | None:
        """A line with its source cut for this epoch; None, and counted, when it is too long."""
        source, target = self.data.train[number]
        if self._longest(source, target) > self.data.max_characters:
            self._too_long.add(number)
            return None
        pieces = None if source is None else self.data.cut_source.cut(source, Draw(self._seed, epoch, number))
        return mixed_example(self.data.vocabulary, number, pieces, target)

    def _longest(self, source: str | None, target: str) -> int:
        """Characters of the longer side as the model counts them; normalising may make many of one."""
        return max(len(self.data.vocabulary.normalize(text)) - 1 for text in (source or "", target))

    @property
    def left_out(self) -> str:
        return left_out_sentence(
            len(self._too_long),
            f"{self.data.max_characters:,} characters",
            len(self.data.dev) - len(self._dev_lines),
            f"{LONGEST_DEV:,} characters",
        )

    def collate(self, examples: list[MixedExample], epoch: int) -> MixedBatch:
        return self._collator.collate(examples, epoch=epoch)

    def loss(self, batch: MixedBatch) -> tuple[Tensor, float, int]:
        nats = -marginal_log_likelihood(batch_edge_scores(self.model, batch), batch).sum()
        return nats, float(nats.detach()), batch.character_count

    @torch.no_grad()
    def evaluate(self, processes: Processes) -> dict[str, float]:
        """Exact bits per character, those of the best cut alone, and pieces per word."""
        self.model.eval()
        sums = DevSums()
        for batch in own_batches(self._dev_batches(), self._dev_collated, processes):
            sums = sums.plus(self._dev_sums(batch))
        total = DevSums(*processes.sum_scalars(sums))
        bits = bits_of(-total.marginal, total.characters)
        return {
            "score": bits,
            "dev_bits": bits,
            "dev_map_bits": bits_of(-total.best, total.characters),
            "dev_pieces_per_word": total.pieces / max(total.words, 1.0),
            "dev_unknown_characters": total.unknown,
        }

    def shown(self, score: float, dev_bits: float) -> str:
        return f"{dev_bits:.4g} bits a character"

    def _dev_batches(self) -> Iterator[list[MixedExample]]:
        examples = map(self._load_dev, self._dev_lines)
        return batches_by_length(examples, lambda one: one.size, budget=(self._batch, self._batch))

    def _load_dev(self, number: int) -> MixedExample:
        source, target = self.data.dev[number]
        pieces = None if source is None else self.data.vocabulary.encode(source)
        return mixed_example(self.data.vocabulary, number, pieces, target)

    def _dev_collated(self, examples: list[MixedExample]) -> MixedBatch:
        return self._dev_collator.collate(examples, epoch=0)

    def _dev_sums(self, batch: MixedBatch) -> DevSums:
        scores = batch_edge_scores(self.model, batch)
        best, pieces = best_log_probability(scores, batch)
        return DevSums(
            marginal=float(marginal_log_likelihood(scores, batch).double().sum()),
            best=best,
            pieces=pieces,
            characters=batch.character_count,
            words=batch.word_count,
            unknown=batch.unknown_count,
        )
