"""Training a standard subword transformer on any cut of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dpe.model.batch_order import batches_by_length, epoch_batches
from dpe.model.batching import TranslationBatch, TranslationExample, collate_translation, translation_example
from dpe.model.translation import TranslationTransformer
from dpe.text.draws import Draw
from dpe.text.segmenters import CountSegmenter
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.objectives import bits_of, label_smoothed_cross_entropy
from dpe.training.processes import Processes
from dpe.training.target_cuts import CutTarget, EpochTargets
from dpe.training.task import left_out_sentence, own_batches, refuse_long_dev

LONGEST_DEV = 1_000  # pieces; longer lines of the development text are left out


@dataclass(frozen=True, kw_only=True)
class TranslatorData:
    """The text that a translator learns from, and how both sides are cut.

    The source of a line is cut by the draw (cut_seed, epoch, line), which a segmenter's target cuts know of.
    """

    vocabulary: Vocabulary
    train: ParallelText
    dev: ParallelText
    cut_source: CountSegmenter
    targets: EpochTargets
    dev_bleu: Callable[[Sequence[str], Sequence[str]], float]  # hypotheses, references
    cut_seed: int = 1
    max_tokens: int = 256  # lines with more pieces on a side are left out of training


class TranslatorTask:
    """What the trainer needs to know of a translator."""

    unit = "token"

    def __init__(
        self,
        model: TranslationTransformer,
        data: TranslatorData,
        *,
        batch: int,
        seed: int,
        label_smoothing: float,
    ) -> None:
        self.model, self.data = model, data
        self.example_count = len(data.train)
        self._too_long: set[int] = set()
        self._batch, self._seed, self._smoothing = batch, seed, label_smoothing
        examples = (self._dev_example(number) for number in range(len(data.dev)))
        self._dev = [example for example in examples if max(example.size) <= LONGEST_DEV + 1]
        refuse_long_dev(self._dev, f"{LONGEST_DEV:,} pieces")

    def batches(self, epoch: int) -> Iterator[list[TranslationExample]]:
        cut_target = self.data.targets.start(epoch)
        return epoch_batches(
            len(self.data.train),
            lambda number: self._load(number, epoch, cut_target),
            lambda example: example.size,
            budget=(self._batch, self._batch),
            seed=self._seed,
            epoch=epoch,
        )

    def _load(self, number: int, epoch: int, cut_target: CutTarget) -> TranslationExample | None:
        """A line with both sides cut for this epoch; None, and counted, when it is too long."""
        source, target = self.data.train[number]
        source_pieces = self.data.cut_source.cut(source or "", Draw(self.data.cut_seed, epoch, number))
        target_pieces = cut_target(number, target)
        if max(len(source_pieces), len(target_pieces)) > self.data.max_tokens:
            self._too_long.add(number)
            return None
        return translation_example(self.data.vocabulary, number, source_pieces, target_pieces)

    @property
    def left_out(self) -> str:
        return left_out_sentence(
            len(self._too_long),
            f"{self.data.max_tokens:,} pieces",
            len(self.data.dev) - len(self._dev),
            f"{LONGEST_DEV:,} pieces",
        )

    def _dev_example(self, number: int) -> TranslationExample:
        source, target = self.data.dev[number]
        vocabulary = self.data.vocabulary
        return translation_example(
            vocabulary, number, vocabulary.encode(source or ""), vocabulary.encode(target)
        )

    def collate(self, examples: list[TranslationExample], epoch: int) -> TranslationBatch:
        return self._collated(examples)

    def _collated(self, examples: list[TranslationExample]) -> TranslationBatch:
        return collate_translation(examples, self.data.vocabulary)

    def loss(self, batch: TranslationBatch) -> tuple[Tensor, float, int]:
        smoothed, nats = label_smoothed_cross_entropy(self.model, batch, smoothing=self._smoothing)
        return smoothed, float(nats), batch.token_count

    @torch.no_grad()
    def evaluate(self, processes: Processes) -> dict[str, float]:
        """BLEU of greedy translations, and bits per token of the reference in the vocabulary's own cut."""
        report = self.data.targets.report()
        self.model.eval()
        nats, tokens = 0.0, 0
        translations: dict[int, str] = {}
        for batch in own_batches(self._dev_batches(), self._collated, processes):
            nats += float(label_smoothed_cross_entropy(self.model, batch, smoothing=0.0)[1])
            tokens += batch.token_count
            translations |= self._translated(batch)
        bits = bits_of(*processes.sum_scalars([nats, tokens]))
        lines = processes.join_lines(translations)
        bleu = self.data.dev_bleu(
            [lines[one.line] for one in self._dev], [self.data.dev[one.line].target for one in self._dev]
        )
        return {"score": -bleu, "dev_bleu": bleu, "dev_bits": bits} | report

    def shown(self, score: float, dev_bits: float) -> str:
        return f"BLEU {-score:.4g}, {dev_bits:.4g} bits a token"

    def _dev_batches(self) -> Iterator[list[TranslationExample]]:
        return batches_by_length(self._dev, lambda one: one.size, budget=(self._batch, self._batch))

    def _translated(self, batch: TranslationBatch) -> dict[int, str]:
        """Greedy translations by line; where one is cut off depends on its own source, not on the batch."""
        limits = (2 * batch.source_lengths + 20).clamp(max=512).tolist()
        found = self.model.greedy(batch.source, batch.source_lengths, max_length=max(limits))
        decode = self.data.vocabulary.decode_ids
        return {
            line: decode(ids[:limit]) for line, ids, limit in zip(batch.lines, found, limits, strict=True)
        }
