"""Commands of the segmenter: train-segmenter, segment, score, distill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpe.choices import CountsOf, CutFormat, CutMode
from dpe.commands import options
from dpe.commands.options import given_settings, refuse_overwriting, setting_option, training_session
from dpe.errors import refuse
from dpe.progress import Progress
from dpe.segmenter.settings import (
    SEGMENTER_PRESETS,
    DistillSettings,
    SegmenterSettings,
    SegmentSettings,
)
from dpe.settings import changed

if TYPE_CHECKING:
    from dpe.corpus_run.run import Answerer

SegmenterDirectory = Annotated[
    Path, typer.Option("--segmenter", metavar="DIR", help="A directory that train-segmenter made.")
]
SourceFile = Annotated[
    Path | None,
    typer.Option(
        "--source", metavar="FILE", help="Source side, plain, .gz or .xz; none for an LM segmenter."
    ),
]
TargetFile = Annotated[
    Path | None,
    typer.Option(
        "--target",
        metavar="FILE",
        help="Target side; if both are absent, standard input: lines of source, tab, target "
        "(of the target alone for an LM segmenter).",
    ),
]
SourceDropout = Annotated[float, setting_option(SegmentSettings, "source_dropout")]
DrawSeed = Annotated[int, setting_option(SegmentSettings, "seed")]
Epoch = Annotated[int, setting_option(SegmentSettings, "epoch")]
BatchCharacters = Annotated[int, typer.Option(min=1, help="Target characters computed at once.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processes of one thread each. [default: one per core; 1 on a GPU or for a short text]"
    ),
]
Bf16 = Annotated[bool, setting_option(SegmentSettings, "bf16", "--bf16")]
Force = Annotated[bool, typer.Option("--force", help="Start over, whatever is in --out.")]


def train_segmenter(
    context: typer.Context,
    *,
    vocab: options.VocabularyFile,
    target: options.TrainTarget,
    dev_target: options.DevTarget,
    out: options.ModelOut,
    source: options.SourceSide = None,
    dev_source: options.SourceSide = None,
    no_source: Annotated[
        bool, typer.Option("--no-source", help="A language model of the target alone (LM DPE).")
    ] = False,
    preset: options.Preset = "small",
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    batch_characters: Annotated[
        int | None, setting_option(SegmenterSettings, "batch", default=options.PRESET)
    ] = None,
    accumulate: options.Accumulate = None,
    learning_rate: options.LearningRate = None,
    warmup: options.Warmup = None,
    dropout: options.Dropout = None,
    source_dropout: Annotated[float | None, setting_option(SegmenterSettings, "source_dropout")] = None,
    seed: options.TrainingSeed = None,
    bf16: options.Bf16 = None,
    average: options.Average = None,
    patience: options.Patience = None,
    evaluate_updates: options.EvaluateUpdates = None,
    until_cuts_change_less_than: options.UntilCutsChangeLessThan = None,
    changes: options.Changes = [],  # noqa: B006
    device: options.Device = "auto",
    threads: options.Threads = None,
    save_minutes: options.SaveMinutes = 5.0,
) -> None:
    """Train the mixed character-subword transformer on the exact marginal likelihood.

    Started again with the same --out it resumes from its last save. Several processes:
    `torchrun --nproc-per-node 2 -m dpe train-segmenter ...`

    Example: `dpe train-segmenter --vocab vocab.model --source train.en --target train.fi
    --dev-source dev.en --dev-target dev.fi --preset tiny --out segmenter`
    """
    from dpe.segmenter.training import train_segmenter as train

    refuse(
        (
            no_source and (source or dev_source),
            "--no-source trains a model of the target alone; leave the source files out.",
        ),
        (
            not no_source and (source is None or dev_source is None),
            "Give --source and --dev-source, or --no-source for a model of the target alone.",
        ),
    )
    train(
        out,
        vocabulary=vocab,
        source=source,
        target=target,
        dev_source=dev_source,
        dev_target=dev_target,
        settings=given_settings(
            context, SEGMENTER_PRESETS, changes, batch=batch_characters, source=False if no_source else None
        ),
        session=training_session(context),
    )


def segment(
    context: typer.Context,
    *,
    segmenter: SegmenterDirectory,
    source: SourceFile = None,
    target: TargetFile = None,
    out: options.OutFile = None,
    mode: Annotated[CutMode, setting_option(SegmentSettings, "mode")] = "best",
    n: Annotated[
        int | None, setting_option(SegmentSettings, "n", default="5 for n-best, 1 for sample")
    ] = None,
    temperature: Annotated[float, setting_option(SegmentSettings, "temperature")] = 1.0,
    source_dropout: SourceDropout = 0.0,
    seed: DrawSeed = 1,
    epoch: Epoch = 0,
    format: Annotated[
        CutFormat, typer.Option(help="Output format; several segmentations of a line are separated by tabs.")
    ] = "pieces",
    batch_characters: BatchCharacters = 4_000,
    workers: Workers = None,
    device: options.Device = "auto",
    bf16: Bf16 = False,
    force: Force = False,
) -> None:
    """Segment a text with a trained segmenter. One line in, one line out.

    The result is the same for any number of workers. Killed and started again with the same arguments it
    resumes after the lines that were saved (every 2,000, in `OUT.partial` and `.OUT.dpe.json`); a finished
    output is not overwritten by another configuration unless --force is given. With --source-dropout 0.05 and
    --epoch 0, 1, 2... it is the paper's on-the-fly DPE; with 0 its fixed DPE.

    A line of more than 2,000 characters is read in windows, each with the 1,000 characters before it (and
    the 2,000 source pieces around the same place); its words are still segmented exactly.

    Example: `dpe segment --segmenter segmenter --source train.en --target train.fi --out train.dpe.fi`
    """
    from dpe.corpus_run.lines import LineCutter

    settings = SegmentSettings(
        mode=mode,
        n={"best": 1, "sample": n or 1, "n-best": n or 5}[mode],
        temperature=temperature if mode == "sample" else 1.0,
        source_dropout=source_dropout,
        seed=seed,
        epoch=epoch,
        bf16=bf16,
    )
    _run(
        context.obj,
        partial(LineCutter, segmenter, settings, format),
        segmenter,
        settings,
        {"command": "segment", "format": format},
        source=source,
        target=target,
        out=out,
        batch_characters=batch_characters,
        workers=workers,
        device=device,
        force=force,
    )


def score(
    context: typer.Context,
    *,
    segmenter: SegmenterDirectory,
    source: SourceFile = None,
    target: TargetFile = None,
    out: options.OutFile = None,
    source_dropout: SourceDropout = 0.0,
    seed: DrawSeed = 1,
    epoch: Epoch = 0,
    batch_characters: BatchCharacters = 4_000,
    workers: Workers = None,
    device: options.Device = "auto",
    bf16: Bf16 = False,
    force: Force = False,
) -> None:
    """Exact log-probability of every line, summed over all its segmentations. One line in, one line out.

    A line of more than 2,000 characters is read in windows, as by `dpe segment`.

    Columns: log p(y | x), characters (of the normalised line, and one for its end), unknown characters
    (which the model takes for one class), bits per character. The totals go to standard error.

    Example: `dpe score --segmenter segmenter --source test.en --target test.fi --out test.scores.tsv`
    """
    from dpe.corpus_run.lines import LineScorer
    from dpe.segmenter.answers import Score

    progress: Progress = context.obj
    settings = SegmentSettings(source_dropout=source_dropout, seed=seed, epoch=epoch, bf16=bf16)
    totals = _run(
        progress,
        partial(LineScorer, segmenter, settings),
        segmenter,
        settings,
        {"command": "score"},
        source=source,
        target=target,
        out=out,
        batch_characters=batch_characters,
        workers=workers,
        device=device,
        force=force,
    )
    if totals:
        whole = Score(
            totals["log_probability"], characters=int(totals["characters"]), unknown=int(totals["unknown"])
        )
        progress.say(
            f"log p(y | x) {whole.log_probability:,.2f}, {whole.bits_per_character:.4f} bits per character, "
            f"{whole.characters:,} characters, {whole.unknown:,} unknown"
        )


def distill(
    context: typer.Context,
    *,
    segmenter: SegmenterDirectory,
    target: Annotated[
        Path, typer.Option("--target", metavar="FILE", help="Target side, plain or compressed.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The SentencePiece model, as distilled.model.")
    ],
    source: SourceFile = None,
    counts: Annotated[CountsOf, setting_option(DistillSettings, "counts")] = "posterior",
    max_types: Annotated[int, setting_option(DistillSettings, "max_types")] = 200_000,
    batch_characters: BatchCharacters = 4_000,
    workers: Workers = None,
    device: options.Device = "auto",
    bf16: Bf16 = False,
    force: Force = False,
) -> None:
    """Put what a segmenter has learned into an ordinary SentencePiece model.

    The model is a unigram model with the same pieces and ids. Its scores are fitted so that its segmentations
    of the words of this text are as probable as the segmenter's, which read the whole sentence pair, are on
    average. It needs no source, and any toolkit that reads SentencePiece models segments with it.

    The segmenter's best segmentation of the text is written too, as OUT.pieces.gz. Killed and started again
    with the same arguments, the command resumes there.

    Example: `dpe distill --segmenter segmenter --source train.en --target train.fi --out distilled.model`
    """
    from dpe.corpus_run.distillation import distill as distill_segmenter
    from dpe.corpus_run.distillation import segmented_file
    from dpe.model.checkpoint import model_files
    from dpe.training.processes import Session

    for place in (out, segmented_file(out)):
        refuse_overwriting(place, source, target, *model_files(segmenter))
    distill_segmenter(
        out,
        segmenter=segmenter,
        source=source,
        target=target,
        settings=DistillSettings(counts=counts, max_types=max_types, bf16=bf16),
        session=Session(device=device, workers=workers, progress=context.obj),
        batch_characters=batch_characters,
        force=force,
    )


def _run(
    progress: Progress,
    answerer: Callable[..., Answerer],
    segmenter: Path,
    settings: SegmentSettings,
    asked: Mapping[str, Any],
    *,
    source: Path | None,
    target: Path | None,
    out: Path | None,
    batch_characters: int,
    workers: int | None,
    device: str,
    force: bool,
) -> Mapping[str, float]:
    """Ask about every line; returns sums over all. Settings and `asked` go into the output's record."""
    from dpe import __version__
    from dpe.corpus_run.output import partial_file
    from dpe.corpus_run.run import CorpusRun, CorpusText
    from dpe.model.checkpoint import model_files, read_settings
    from dpe.model.device import choose_device
    from dpe.model.settings import model_settings
    from dpe.segmenter.segmenter import fingerprint

    has_source = model_settings(
        read_settings(segmenter, "segmenter"), SegmenterSettings, str(segmenter)
    ).source
    refuse(
        (source and not has_source, f"{segmenter} was trained without a source; leave --source out."),
        (target and has_source and not source, f"{segmenter} was trained with a source; give --source too."),
        (source and not target, "The target is missing; give --target too, or both sides on standard input."),
    )
    for place in (out, out and partial_file(out)):
        refuse_overwriting(place, source, target, *model_files(segmenter))
    chosen = choose_device(device, bf16=settings.bf16)
    configuration = {
        **asked,
        **changed(settings),
        "version": __version__,
        "segmenter": fingerprint(segmenter),
        "batch_characters": batch_characters,
        "device": chosen.type,
    }
    run = CorpusRun(
        answerer, device=chosen, workers=workers, batch_characters=batch_characters, progress=progress
    )
    return run.write(CorpusText(source, target, has_source), out, configuration, force=force).totals
