"""`train_segmenter`: text and settings in, a directory with a trained segmenter out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from dpe.model.mixed import MixedTransformer
from dpe.model.transformer import TransformerSettings
from dpe.text.segmenters import source_segmenter
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.model_directory import model_directory
from dpe.training.position import Position
from dpe.training.segmenter_task import SegmenterData, SegmenterTask
from dpe.training.session import Session
from dpe.training.settings import TrainingSettings
from dpe.training.task import refuse_empty
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
