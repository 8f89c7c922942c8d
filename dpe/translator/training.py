"""`train_translator`: text, cuts and settings in, a directory with a trained translator out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from dpe.choices import SEGMENTER_METHODS, SourceMethod, TargetMethod
from dpe.errors import UserError
from dpe.model.batch_order import batches_by_length, epoch_batches
from dpe.model.batching import TranslationBatch, TranslationExample, collate_translation, translation_example
from dpe.model.cross_entropy import smoothed_cross_entropy
from dpe.model.transformer import TransformerSettings
from dpe.model.translation import TranslationTransformer
from dpe.text.draws import Draw
from dpe.text.segmenters import CountSegmenter, make_segmenter
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.directory import model_directory
from dpe.training.processes import Processes
from dpe.training.settings import Session, TrainingSettings
from dpe.training.state import Position
from dpe.training.task import bits_of, left_out_sentence, own_batches, refuse_empty, refuse_long_dev
from dpe.training.trainer import Trainer
from dpe.translator.methods import check_methods
from dpe.translator.targets import (
    CorpusCutter,
    CountTargets,
    CutTarget,
    Cutting,
    EpochTargets,
    KeptCuts,
    SegmenterTargets,
)

Bleu = Callable[[Sequence[str], Sequence[str]], float]  # hypotheses, references


@dataclass(frozen=True, kw_only=True)
class TranslatorSettings:
    """Everything that makes a translator what it is, beside its text, vocabulary and segmenter."""

    network: TransformerSettings
    training: TrainingSettings
    batch: int = 4_000  # padded tokens of either side in a batch
    label_smoothing: float = 0.1
    source_method: SourceMethod = "bpe"
    target_method: TargetMethod = "bpe"
    bpe_dropout: float = 0.05  # of the cuts, where a method is bpe-dropout
    unigram_alpha: float | None = 0.2  # sharpness of the draws, where a method is unigram; None: the best cut
    unigram_nbest: int = -1  # draw among this many best cuts; -1 is all
    target_sampling: float | None = None  # dpe draws from the posterior at this temperature; None: the best
    cut_seed: int = 1  # of all random cuts, apart from the network's seed
    max_tokens: int = 256  # lines with more pieces on a side are left out of training
    moses: tuple[str, str] | None = None  # the text is tokenised by Moses' rules for these two languages
    bleu_tokenize: str | None = None  # what BLEU takes for a token, if not sacreBLEU's default

    @property
    def uses_segmenter(self) -> bool:
        return self.target_method in SEGMENTER_METHODS


def train_translator(
    out: Path,
    vocabulary: Vocabulary,
    train: ParallelText,
    dev: ParallelText,
    *,
    settings: TranslatorSettings,
    session: Session,
    bleu: Bleu,
    cutter: CorpusCutter | None = None,
    cuts: Path | None = None,
) -> Position:
    """Train, or go on training, the translator in `out`.

    `cutter` is the segmenter of dpe and dpe-fixed with the training text; its cuts are kept in `cuts`, which
    several translators may share.
    """
    check_settings(settings, cutter, vocabulary)
    refuse_empty(train, dev)
    if train.source is None or dev.source is None:
        raise UserError("A translator needs a source side, of the training and of the development text.")
    targets: EpochTargets
    if cutter is None:
        segmenter = count_segmenter(settings.target_method, settings, vocabulary)
        targets = CountTargets(segmenter, settings.cut_seed)
    else:
        kept = KeptCuts(cutter, train, cuts or out / "cuts", session.progress)
        targets = SegmenterTargets(
            kept, _cutting(settings, cutter), work=out / "cache", processes=session.processes
        )
    described = _described(settings, train, dev, cutter)
    with model_directory(out, "translator", described, vocabulary, session.processes):
        task = _task(vocabulary, train, dev, targets, settings=settings, bleu=bleu)
        return Trainer(task, settings.training, out, session).train()


def _task(
    vocabulary: Vocabulary,
    train: ParallelText,
    dev: ParallelText,
    targets: EpochTargets,
    *,
    settings: TranslatorSettings,
    bleu: Bleu,
) -> TranslatorTask:
    """An untrained model, its text, and how that is cut."""
    data = TranslatorData(
        vocabulary=vocabulary,
        train=train,
        dev=dev,
        cut_source=count_segmenter(settings.source_method, settings, vocabulary),
        targets=targets,
        dev_bleu=bleu,
        cut_seed=settings.cut_seed,
        max_tokens=settings.max_tokens,
    )
    torch.manual_seed(settings.training.seed)
    return TranslatorTask(
        TranslationTransformer.of(settings.network, vocabulary),
        data,
        batch=settings.batch,
        seed=settings.training.seed,
        label_smoothing=settings.label_smoothing,
    )


def check_settings(settings: TranslatorSettings, cutter: CorpusCutter | None, vocabulary: Vocabulary) -> None:
    """Refuse methods that do not fit each other, the segmenter or the vocabulary, each in one sentence."""
    _check_segmenter(settings, cutter, vocabulary)
    check_methods(
        settings.source_method,
        settings.target_method,
        reads_source=cutter is not None and cutter.has_source,
        sampling=settings.target_sampling,
    )
    if not 0 <= settings.label_smoothing < 1:
        raise UserError(f"Label smoothing is {settings.label_smoothing}; give a number from 0 to below 1.")
    for method in {settings.source_method, settings.target_method} - {*SEGMENTER_METHODS}:
        count_segmenter(method, settings, vocabulary)  # which refuses another type of vocabulary


def _check_segmenter(
    settings: TranslatorSettings, cutter: CorpusCutter | None, vocabulary: Vocabulary
) -> None:
    method = settings.target_method
    if settings.uses_segmenter and cutter is None:
        raise UserError(f"The target method {method} needs a trained segmenter; give --segmenter.")
    if not settings.uses_segmenter and cutter is not None:
        raise UserError(
            f"The target method {method} uses no segmenter; leave --segmenter out, "
            "or choose dpe or dpe-fixed."
        )
    if cutter is not None and cutter.vocabulary_fingerprint != vocabulary.fingerprint:
        raise UserError(
            "The segmenter was trained with another vocabulary; give the vocab.model of its directory."
        )


def count_segmenter(method: str, settings: TranslatorSettings, vocabulary: Vocabulary) -> CountSegmenter:
    """The count-based segmenter of that name with these settings."""
    return make_segmenter(
        method,
        vocabulary,
        dropout=settings.bpe_dropout,
        alpha=settings.unigram_alpha,
        nbest=settings.unigram_nbest,
    )


def _cutting(settings: TranslatorSettings, cutter: CorpusCutter) -> Cutting:
    """What the segmenter's cuts depend on; dpe-fixed, and one without a source, on no dropout."""
    follows_dropout = settings.target_method == "dpe" and settings.source_method == "bpe-dropout"
    return Cutting(
        dropout=settings.bpe_dropout if follows_dropout and cutter.has_source else 0.0,
        temperature=settings.target_sampling,
        seed=settings.cut_seed,
    )


def _described(
    settings: TranslatorSettings, train: ParallelText, dev: ParallelText, cutter: CorpusCutter | None
) -> dict[str, object]:
    """What `settings.json` holds: enough to notice that something else is given when training goes on."""
    data = {"train": train.describe(), "dev": dev.describe()}
    return asdict(settings) | {"data": data, "segmenter": None if cutter is None else cutter.fingerprint}


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


def label_smoothed_cross_entropy(
    model: TranslationTransformer, batch: TranslationBatch, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sum over target tokens of the smoothed loss, and of the plain one, in nats."""
    states = model.states(batch.source, batch.source_lengths, batch.target_in)  # [sentence, token, width]
    real = batch.target_out != model.pad_id
    return smoothed_cross_entropy(
        states[real], model.embedding.weight, batch.target_out[real], smoothing=smoothing
    )
