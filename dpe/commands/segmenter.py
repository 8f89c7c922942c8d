"""Commands of the segmenter: train-segmenter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpe.commands.options import (
    Accumulate,
    Average,
    Bf16,
    Device,
    DevTarget,
    Dropout,
    Epochs,
    LearningRate,
    Preset,
    SaveMinutes,
    Seed,
    Steps,
    Threads,
    TrainTarget,
    VocabularyFile,
    Warmup,
)
from dpe.commands.training import training_session


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("train-segmenter")(train_segmenter)


def train_segmenter(
    context: typer.Context,
    *,
    vocab: VocabularyFile,
    target: TrainTarget,
    dev_target: DevTarget,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the segmenter goes; resumes what is there.")
    ],
    source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Source side, plain, .gz or .xz.")
    ] = None,
    dev_source: Annotated[Path | None, typer.Option(metavar="FILE", help="Source side.")] = None,
    no_source: Annotated[
        bool, typer.Option("--no-source", help="A language model of the target alone (LM DPE).")
    ] = False,
    preset: Preset = "small",
    epochs: Epochs = None,
    steps: Steps = None,
    batch_characters: Annotated[
        int | None, typer.Option(min=1, help="Target characters in a batch. [default: the preset's]")
    ] = None,
    accumulate: Accumulate = None,
    learning_rate: LearningRate = None,
    warmup: Warmup = None,
    dropout: Dropout = None,
    source_dropout: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="BPE dropout of the source. [default: 0.05]")
    ] = None,
    max_characters: Annotated[int, typer.Option(min=1, help="Leave longer lines out of training.")] = 1000,
    seed: Seed = 1,
    device: Device = "auto",
    threads: Threads = None,
    bf16: Bf16 = False,
    save_minutes: SaveMinutes = 5.0,
    average: Average = 1,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after N epochs without a better development score.")
    ] = None,
) -> None:
    """Train the mixed character-subword transformer on the exact marginal likelihood.

    Started again with the same --out it goes on from its last save. Many processes:
    `torchrun --nproc-per-node 2 -m dpe train-segmenter ...`

    Example: `dpe train-segmenter --vocab vocab.model --source train.en --target train.fi
    --dev-source dev.en --dev-target dev.fi --preset tiny --out segmenter`
    """
    from dpe.errors import UserError
    from dpe.text.text_file import ParallelText
    from dpe.text.vocabulary import Vocabulary
    from dpe.training.presets import SEGMENTER_PRESETS
    from dpe.training.segmenter_training import SegmenterSettings
    from dpe.training.segmenter_training import train_segmenter as train

    if no_source and (source or dev_source):
        raise UserError("--no-source trains a model of the target alone; leave the source files out.")
    if not no_source and (source is None or dev_source is None):
        raise UserError("Give --source and --dev-source, or --no-source for a model of the target alone.")
    if no_source and source_dropout is not None:
        raise UserError("--no-source trains a model of the target alone; leave --source-dropout out.")
    if source_dropout is None:
        source_dropout = 0.0 if no_source else SegmenterSettings.source_dropout
    chosen = SEGMENTER_PRESETS[preset]
    settings = SegmenterSettings(
        network=chosen.network_with(dropout=dropout),
        training=chosen.training_with(
            accumulate=accumulate, learning_rate=learning_rate, warmup=warmup, seed=seed, bf16=bf16
        ),
        batch=batch_characters or chosen.batch,
        source=not no_source,
        source_dropout=source_dropout,
        max_characters=max_characters,
    )
    stopping = chosen.stopping(epochs=epochs, steps=steps, patience=patience, average=average)
    with training_session(
        context, out, stopping, device=device, threads=threads, save_minutes=save_minutes
    ) as session:
        train(
            out,
            Vocabulary.load(vocab),
            ParallelText.open(source, target, cache=out / "cache"),
            ParallelText.open(dev_source, dev_target, cache=out / "cache"),
            settings=settings,
            session=session,
        )
