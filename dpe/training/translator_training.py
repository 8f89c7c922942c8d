"""`train_translator`: text, cuts and settings in, a directory with a trained translator out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from dpe.choices import SEGMENTER_METHODS, SourceMethod, TargetMethod
from dpe.errors import UserError
from dpe.model.transformer import TransformerSettings
from dpe.model.translation import TranslationTransformer
from dpe.text.segmenters import CountSegmenter, make_segmenter
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.kept_cuts import CorpusCutter, Cutting, KeptCuts
from dpe.training.methods import check_methods
from dpe.training.model_directory import model_directory
from dpe.training.position import Position
from dpe.training.session import Session
from dpe.training.settings import TrainingSettings
from dpe.training.target_cuts import CountTargets, EpochTargets, SegmenterTargets
from dpe.training.task import refuse_empty
from dpe.training.trainer import Trainer
from dpe.training.translator_task import TranslatorData, TranslatorTask

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
