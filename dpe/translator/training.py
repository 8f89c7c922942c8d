"""Training a standard subword transformer on any segmentation of the text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dpe.choices import SEGMENTER_METHODS
from dpe.errors import refuse
from dpe.evaluation.scores import dev_bleu
from dpe.model.batch_order import batches_by_length
from dpe.model.batching import TranslationBatch, TranslationExample, collate_translation, translation_example
from dpe.model.checkpoint import SOURCE_VOCABULARY, VOCABULARY, read_settings
from dpe.model.cross_entropy import smoothed_cross_entropy
from dpe.model.settings import model_settings
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.settings import SegmenterSettings
from dpe.text.draws import Draw
from dpe.text.segmenters import CountSegmenter, make_segmenter
from dpe.text.text_file import ParallelText, Text
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Processes, Session
from dpe.training.state import Position
from dpe.training.task import bits_of, left_out_sentence, own_batches, refuse_empty
from dpe.training.trainer import Trainer, model_directory
from dpe.translator.settings import TRANSLATOR_PRESETS, TranslatorSettings, check_methods
from dpe.translator.targets import CountTargets, CutTarget, EpochTargets, KeptCuts, SegmenterTargets

_OWN_CUTS = 2  # epochs that are kept of targets that no other training shares: this one, and one to compare
LONGEST_DEV = 1_000  # pieces; longer lines of the development text are left out


def train_translator(
    out: Path | str,
    *,
    vocabulary: Vocabulary | Path | str,
    source: Text,
    target: Text,
    dev_source: Text,
    dev_target: Text,
    source_vocabulary: Vocabulary | Path | str | None = None,
    segmenter: Path | str | None = None,
    cuts: Path | None = None,
    settings: TranslatorSettings = TRANSLATOR_PRESETS["small"],
    session: Session = Session(),
) -> Position:
    """Train the translator in the directory `out`, or resume it there; load it with `dpe.Translator.load`.

    A text is a list of lines, or the path of a file. The vocabulary is joint, or the target's if there is a
    `source_vocabulary`. `segmenter` is the directory of the segmenter of the target methods dpe and
    dpe-fixed; its targets are kept in `cuts`, which several translators may share.
    """
    out = Path(out)
    vocabulary = Vocabulary.of(vocabulary, source_vocabulary)
    segmenter = None if segmenter is None else Path(segmenter)
    check_settings(settings, segmenter, vocabulary)
    with session.joined() as processes:
        train = ParallelText.open(source, target, cache=out / "cache")
        dev = ParallelText.open(dev_source, dev_target, cache=out / "cache")
        refuse_empty(train, dev)
        kept = KeptCuts(segmenter, train, cuts or out / "cuts", session) if segmenter else None
        targets: EpochTargets
        if kept:
            keep = session.keep_cuts or (None if cuts else _OWN_CUTS)
            targets = SegmenterTargets(kept, settings, work=out / "cache", processes=processes, keep=keep)
        else:
            targets = CountTargets(
                count_segmenter(settings.target_method, settings, vocabulary), settings.cut_seed
            )
        about = {
            "data": {"train": train.describe(), "dev": dev.describe()},
            "segmenter": kept.fingerprint if kept else None,
        }
        with model_directory(out, "translator", settings, vocabulary, about, processes=processes):
            torch.manual_seed(settings.seed)
            model = TranslationTransformer.of(settings, vocabulary)
            task = TranslatorTask(model, vocabulary, train, dev, targets=targets, settings=settings)
            return Trainer(task, settings, out, session, processes).train()


def check_settings(settings: TranslatorSettings, segmenter: Path | None, vocabulary: Vocabulary) -> None:
    """Refuse methods that do not fit each other, the segmenter or the vocabulary."""
    method, reads_source = settings.target_method, False
    refuse(
        (
            settings.uses_segmenter and not segmenter,
            f"Target method {method} needs a segmenter; give --segmenter.",
        ),
        (
            segmenter and not settings.uses_segmenter,
            f"Target method {method} does not use a segmenter; leave --segmenter out, or choose dpe.",
        ),
    )
    if segmenter is not None:
        record = read_settings(segmenter, "segmenter")
        reads_source = model_settings(record, SegmenterSettings, str(segmenter)).source
        own_source = record.get("source_vocabulary") or record["vocabulary"]
        refuse(
            (
                record["vocabulary"] != vocabulary.fingerprint,
                f"The segmenter was trained with another vocabulary; use the {VOCABULARY} in its directory.",
            ),
            (
                reads_source and own_source != vocabulary.source.fingerprint,
                "The segmenter was trained with another source vocabulary; use the "
                f"{SOURCE_VOCABULARY if record.get('source_vocabulary') else VOCABULARY} in its directory.",
            ),
        )
    source = settings.source_method
    check_methods(
        "unigram-best" if source == "unigram" and settings.unigram_alpha is None else source,
        method,
        reads_source=reads_source,
        sampling=settings.target_sampling,
    )
    count_segmenter(settings.source_method, settings, vocabulary.source)  # which refuses another type
    if method not in SEGMENTER_METHODS:
        count_segmenter(method, settings, vocabulary)


def count_segmenter(method: str, settings: TranslatorSettings, vocabulary: Vocabulary) -> CountSegmenter:
    """The count-based segmenter of that name with these settings."""
    samples = method == "unigram"
    return make_segmenter(
        "unigram" if method == "unigram-best" else method,
        vocabulary,
        dropout=settings.bpe_dropout,
        alpha=settings.unigram_alpha if samples else None,
        nbest=settings.unigram_nbest,
        skew=settings.uniform_skew,
    )


def label_smoothed_cross_entropy(
    model: TranslationTransformer, batch: TranslationBatch, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """Sum over target tokens of the smoothed loss, and of the plain one, in nats."""
    states = model.states(batch.source, batch.source_lengths, batch.target_in)  # [sentence, token, width]
    real = batch.target_out != model.pad_id
    return smoothed_cross_entropy(
        states[real], model.embedding.weight, batch.target_out[real], smoothing=smoothing
    )


@dataclass(frozen=True)
class TranslatorLines:
    """Loads lines of the training text for an epoch, both sides segmented."""

    text: ParallelText
    vocabulary: Vocabulary
    cut_source: CountSegmenter
    cut_target: CutTarget
    settings: TranslatorSettings
    epoch: int

    def __call__(self, numbers: list[int]) -> list[TranslationExample | None]:
        return list(map(self._load, numbers))

    def _load(self, number: int) -> TranslationExample | None:
        source, target = self.text[number]
        source_pieces = self.cut_source.cut(source or "", Draw(self.settings.cut_seed, self.epoch, number))
        target_pieces = self.cut_target(number, target)
        if max(len(source_pieces), len(target_pieces)) > self.settings.max_tokens:
            return None
        return translation_example(self.vocabulary, number, source_pieces, target_pieces)


class TranslatorTask:
    """What the trainer needs to know of a translator.

    The source of a line is segmented by the draw (cut_seed, epoch, line), as for a segmenter's targets.
    """

    unit = "token"
    best_cuts: Tensor | None = None

    def __init__(
        self,
        model: TranslationTransformer,
        vocabulary: Vocabulary,
        train: ParallelText,
        dev: ParallelText,
        *,
        targets: EpochTargets,
        settings: TranslatorSettings,
    ) -> None:
        self.model, self._vocabulary, self._settings = model, vocabulary, settings
        self._train, self._dev_text, self._targets = train, dev, targets
        self._cut_source = count_segmenter(settings.source_method, settings, vocabulary.source)
        self._bleu = dev_bleu(moses=settings.moses, tokenize=settings.bleu_tokenize)
        self.example_count = len(train)
        self.budget = (settings.batch, settings.batch)
        examples = (
            translation_example(
                vocabulary, number, vocabulary.source.encode(source or ""), vocabulary.encode(target)
            )
            for number, (source, target) in enumerate(dev)
        )
        self._dev = [example for example in examples if max(example.size) <= LONGEST_DEV + 1]
        refuse((not self._dev, f"Every line of the development text is longer than {LONGEST_DEV:,} pieces."))

    def lines(self, epoch: int) -> TranslatorLines:
        cut_target = self._targets.start(epoch)
        return TranslatorLines(
            self._train, self._vocabulary, self._cut_source, cut_target, self._settings, epoch
        )

    def left_out(self, lines: int) -> str:
        return left_out_sentence(
            lines,
            f"{self._settings.max_tokens:,} pieces",
            len(self._dev_text) - len(self._dev),
            f"{LONGEST_DEV:,} pieces",
        )

    def collate(self, examples: list[TranslationExample], epoch: int) -> TranslationBatch:
        return collate_translation(examples, self._vocabulary)

    def loss(self, batch: TranslationBatch) -> tuple[Tensor, Tensor, int]:
        smoothed, nats = label_smoothed_cross_entropy(
            self.model, batch, smoothing=self._settings.label_smoothing
        )
        return smoothed, nats, batch.token_count

    @torch.no_grad()
    def evaluate(self, processes: Processes) -> dict[str, float]:
        """BLEU and length of greedy translations, and bits per token of the reference in BPE's pieces."""
        report = self._targets.report()
        self.model.eval()
        nats, tokens = 0.0, 0
        translations: dict[int, str] = {}
        batches = batches_by_length(self._dev, lambda one: one.size, budget=self.budget)
        for batch in own_batches(batches, lambda some: self.collate(some, 0), processes):
            nats += float(label_smoothed_cross_entropy(self.model, batch, smoothing=0.0)[1])
            tokens += batch.token_count
            translations |= self._translated(batch)
        bits = bits_of(*processes.sum_scalars([nats, tokens]))
        lines = processes.join_lines(translations)
        bleu, length = self._bleu(
            [lines[one.line] for one in self._dev], [self._dev_text[one.line].target for one in self._dev]
        )
        return {"score": -bleu, "dev_bleu": bleu, "dev_length": length, "dev_bits": bits} | report

    def shown(self, score: float, dev_bits: float) -> str:
        return f"BLEU {-score:.4g}, {dev_bits:.4g} bits per token"

    def _translated(self, batch: TranslationBatch) -> dict[int, str]:
        """Greedy translations by line; the length limit of each depends on its source, not on the batch."""
        limits = (2 * batch.source_lengths + 20).clamp(max=512).tolist()
        found = self.model.greedy(batch.source, batch.source_lengths, max_length=max(limits))
        decode = self._vocabulary.decode_ids
        return {
            line: decode(ids[:limit]) for line, ids, limit in zip(batch.lines, found, limits, strict=True)
        }
