"""Training the mixed character-subword transformer on the exact marginal likelihood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dpe.errors import UserError, refuse
from dpe.model.batch_order import batches_by_length
from dpe.model.batching import MixedBatch, MixedCollator, MixedExample, mixed_example
from dpe.model.mixed import MixedTransformer
from dpe.segmenter.likelihood import batch_edge_scores, best_log_probability, marginal_log_likelihood
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings
from dpe.text.draws import Draw
from dpe.text.segmenters import CountSegmenter, source_noise, source_segmenter
from dpe.text.text_file import ParallelText, Text
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Processes, Session
from dpe.training.state import Position
from dpe.training.task import bits_of, left_out_sentence, own_batches, refuse_empty
from dpe.training.trainer import Trainer, model_directory

LONGEST_DEV = 2_000  # characters; longer lines of the development text are left out
UNKNOWN_RATE = 0.001  # characters hidden from the decoder, so that the unknown character is trained


def train_segmenter(
    out: Path | str,
    *,
    vocabulary: Vocabulary | Path | str,
    target: Text,
    dev_target: Text,
    source: Text | None = None,
    dev_source: Text | None = None,
    source_vocabulary: Vocabulary | Path | str | None = None,
    settings: SegmenterSettings = SEGMENTER_PRESETS["small"],
    session: Session = Session(),
) -> Position:
    """Train the segmenter in the directory `out`, or resume it there; load it with `dpe.Segmenter.load`.

    A text is a list of lines, or the path of a file. With `settings.source` false there is no source: a
    language model of the target (the paper's LM DPE). The vocabulary is joint, or the target's if there is a
    `source_vocabulary`.
    """
    out = Path(out)
    if settings.source and (source is None or dev_source is None):
        raise UserError("Give a source for the training and the development text, or train without a source.")
    if not settings.source:
        source = dev_source = source_vocabulary = None
        settings = replace(settings, source_dropout=0.0, source_alpha=None)
    vocabulary = Vocabulary.of(vocabulary, source_vocabulary)
    noise = source_noise(vocabulary.source.type, settings.source_dropout, settings.source_alpha)
    cut_source = source_segmenter(vocabulary.source, *noise)
    with session.joined() as processes:
        train = ParallelText.open(source, target, cache=out / "cache")
        dev = ParallelText.open(dev_source, dev_target, cache=out / "cache")
        refuse_empty(train, dev)
        data = {"train": train.describe(), "dev": dev.describe()}
        with model_directory(out, "segmenter", settings, vocabulary, {"data": data}, processes=processes):
            torch.manual_seed(settings.seed)
            model = MixedTransformer.of(settings, vocabulary, source=settings.source)
            task = SegmenterTask(model, vocabulary, train, dev, cut_source=cut_source, settings=settings)
            return Trainer(task, settings, out, session, processes).train()


class DevSums(NamedTuple):
    """What is summed over the development text."""

    marginal: float = 0.0  # log-likelihood, in nats
    best: float = 0.0  # log-probability of the best segmentations, in nats
    pieces: float = 0.0  # of the best segmentations
    characters: float = 0.0  # with one end per sentence
    words: float = 0.0
    unknown: float = 0.0  # characters that are in no piece


@dataclass(frozen=True)
class SegmenterLines:
    """Loads lines of the training text for an epoch, each with its source segmented by its own draw."""

    text: ParallelText
    vocabulary: Vocabulary
    cut_source: CountSegmenter
    settings: SegmenterSettings
    epoch: int = 0

    def __call__(self, numbers: list[int]) -> list[MixedExample | None]:
        return list(map(self._load, numbers))

    def _load(self, number: int) -> MixedExample | None:
        source, target = self.text[number]
        if longest(self.vocabulary, source, target) > self.settings.max_characters:
            return None
        draw = Draw(self.settings.seed, self.epoch, number)
        pieces = None if source is None else self.cut_source.cut(source, draw)
        return mixed_example(self.vocabulary, number, pieces, target)


def longest(vocabulary: Vocabulary, source: str | None, target: str) -> int:
    """Characters of the longer side as the model counts them; normalisation may make many of one."""
    sides = vocabulary.source.normalize(source or ""), vocabulary.normalize(target)
    return max(len(text) - 1 for text in sides)


class SegmenterTask:
    """What the trainer needs to know of a segmenter."""

    unit = "character"

    def __init__(
        self,
        model: MixedTransformer,
        vocabulary: Vocabulary,
        train: ParallelText,
        dev: ParallelText,
        *,
        cut_source: CountSegmenter,
        settings: SegmenterSettings,
    ) -> None:
        self.model, self._vocabulary, self._settings, self._dev = model, vocabulary, settings, dev
        self._lines = SegmenterLines(train, vocabulary, cut_source, settings)
        self.example_count = len(train)
        self.best_cuts: Tensor | None = None
        self._dev_lines = [n for n in range(len(dev)) if longest(vocabulary, *dev[n]) <= LONGEST_DEV]
        refuse(
            (
                not self._dev_lines,
                f"Every line of the development text is longer than {LONGEST_DEV:,} characters.",
            )
        )
        self._collator = MixedCollator(vocabulary, unknown_rate=UNKNOWN_RATE, seed=settings.seed)
        self._dev_collator = MixedCollator(vocabulary)
        self.budget = (settings.batch, settings.batch)

    def lines(self, epoch: int) -> SegmenterLines:
        return replace(self._lines, epoch=epoch)

    def left_out(self, lines: int) -> str:
        return left_out_sentence(
            lines,
            f"{self._settings.max_characters:,} characters",
            len(self._dev) - len(self._dev_lines),
            f"{LONGEST_DEV:,} characters",
        )

    def collate(self, examples: list[MixedExample], epoch: int) -> MixedBatch:
        return self._collator.collate(examples, epoch=epoch)

    def loss(self, batch: MixedBatch) -> tuple[Tensor, Tensor, int]:
        nats = -marginal_log_likelihood(batch_edge_scores(self.model, batch), batch).sum()
        return nats, nats.detach(), batch.character_count

    @torch.no_grad()
    def evaluate(self, processes: Processes) -> dict[str, float]:
        """Exact bits per character, those of the best segmentation alone, and pieces per word."""
        self.model.eval()
        sums = [0.0] * len(DevSums())
        first_words: dict[int, int] = {}  # of each line, among the words of all lines
        codes: dict[int, Tensor] = {}  # of the lines of this process, by their first word
        batches = batches_by_length(self._dev_examples(first_words), lambda one: one.size, budget=self.budget)
        for batch in own_batches(batches, lambda some: self._dev_collator.collate(some, epoch=0), processes):
            more, of_words = self._dev_sums(batch)
            sums = [one + other for one, other in zip(sums, more, strict=True)]
            lengths = torch.bincount(batch.lattice.word_sentence, minlength=len(batch.lines)).tolist()
            for line, some in zip(batch.lines, torch.split(of_words, lengths), strict=True):
                codes[first_words[line]] = some
        total = DevSums(*processes.sum_scalars(sums))
        all_codes = torch.zeros(int(total.words), dtype=torch.int64, device=processes.device)
        for first, some in codes.items():
            all_codes[first : first + len(some)] = some
        processes.sum_tensors([all_codes])
        self.best_cuts = all_codes.cpu()
        bits = bits_of(-total.marginal, total.characters)
        return {
            "score": bits,
            "dev_bits": bits,
            "dev_map_bits": bits_of(-total.best, total.characters),
            "dev_pieces_per_word": total.pieces / max(total.words, 1.0),
            "dev_unknown_characters": total.unknown,
        }

    def shown(self, score: float, dev_bits: float) -> str:
        return f"{dev_bits:.4g} bits per character"

    def _dev_examples(self, first_words: dict[int, int]) -> Iterator[MixedExample]:
        """The development text; notes where the words of each line begin among those of all lines."""
        words, encode = 0, self._vocabulary.source.encode
        for number in self._dev_lines:
            source, target = self._dev[number]
            pieces = None if source is None else encode(source)
            example = mixed_example(self._vocabulary, number, pieces, target)
            first_words[number] = words
            words += len(example.words)
            yield example

    def _dev_sums(self, batch: MixedBatch) -> tuple[DevSums, Tensor]:
        """And a code of each word's best segmentation.  # [word]"""
        scores = batch_edge_scores(self.model, batch)
        best, pieces, codes = best_log_probability(scores, batch)
        sums = DevSums(
            marginal=float(marginal_log_likelihood(scores, batch).double().sum()),
            best=best,
            pieces=pieces,
            characters=batch.character_count,
            words=batch.word_count,
            unknown=batch.unknown_count,
        )
        return sums, codes
