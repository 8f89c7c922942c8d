"""Commands of the segmenter: train-segmenter, segment, score, distill, join."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpe.choices import CountsOf, CutFormat, CutMode
from dpe.commands import options
from dpe.commands.options import (
    GoldFile,
    given_settings,
    refuse_overwriting,
    require_files,
    setting_option,
    training_session,
)
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
    from dpe.training.processes import Session

SegmenterDirectory = Annotated[
    Path, typer.Option("--segmenter", metavar="DIR", help="A directory that train-segmenter made.")
]
SourceFile = Annotated[
    Path | None,
    typer.Option(
        "--source", metavar="FILE", help="Source side, plain, .gz, .xz or .zst; none for an LM segmenter."
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
SourceAlpha = Annotated[float | None, setting_option(SegmentSettings, "source_alpha")]
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
Lines = Annotated[
    str | None,
    typer.Option(
        "--lines",
        metavar="FIRST:END",
        help="Only these lines, numbered from 0, as 2000:4000 or 4000: to the end; multiples of 2,000. "
        "dpe join puts the outputs together.",
    ),
]


def train_segmenter(
    context: typer.Context,
    *,
    vocab: options.JointVocabulary = None,
    source_vocab: options.SourceVocabulary = None,
    target_vocab: options.TargetVocabulary = None,
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
    source_alpha: Annotated[float | None, setting_option(SegmenterSettings, "source_alpha")] = None,
    seed: options.TrainingSeed = None,
    bf16: options.Bf16 = None,
    average: options.Average = None,
    patience: options.Patience = None,
    evaluate_updates: options.EvaluateUpdates = None,
    until_cuts_change_less_than: options.UntilCutsChangeLessThan = None,
    changes: options.Changes = [],  # noqa: B006
    device: options.Device = "auto",
    threads: options.Threads = None,
    load_workers: options.LoadWorkers = 1,
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
    vocabulary, source_vocabulary = options.vocabularies(vocab, source_vocab, target_vocab)
    train(
        out,
        vocabulary=vocabulary,
        source_vocabulary=source_vocabulary,
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
    source_alpha: SourceAlpha = None,
    seed: DrawSeed = 1,
    epoch: Epoch = 0,
    format: Annotated[
        CutFormat, typer.Option(help="Output format; several segmentations of a line are separated by tabs.")
    ] = "pieces",
    batch_characters: BatchCharacters = 4_000,
    lines: Lines = None,
    ray: options.Ray = None,
    workers: Workers = None,
    device: options.Device = "auto",
    bf16: Bf16 = False,
    force: Force = False,
) -> None:
    """Segment a text with a trained segmenter. One line in, one line out.

    The result is the same for any number of workers. Killed and started again with the same arguments it
    resumes after the lines that were saved (every 2,000, in `OUT.partial` and `.OUT.dpe.json`); a finished
    output is not overwritten by another configuration unless --force is given. With --source-dropout 0.05 and
    --epoch 0, 1, 2... it is the paper's on-the-fly DPE; with 0 its fixed DPE. Over a unigram vocabulary give
    --source-alpha 0.2 instead.

    A line of more than 2,000 characters is read in windows, each with the 1,000 characters before it (and
    the 2,000 source pieces around the same place); its words are still segmented exactly.

    Example: `dpe segment --segmenter segmenter --source train.en --target train.fi --out train.dpe.fi`
    """
    from dpe.corpus_run.lines import LineCutter
    from dpe.training.processes import Session

    settings = SegmentSettings(
        mode=mode,
        n={"best": 1, "sample": n or 1, "n-best": n or 5}[mode],
        temperature=temperature if mode == "sample" else 1.0,
        source_dropout=source_dropout,
        source_alpha=source_alpha,
        seed=seed,
        epoch=epoch,
        bf16=bf16,
    )
    _run(
        Session(device=device, workers=workers, ray=ray, progress=context.obj),
        partial(LineCutter, segmenter.absolute(), settings, format),
        segmenter,
        settings,
        {"command": "segment", "format": format},
        source=source,
        target=target,
        out=out,
        batch_characters=batch_characters,
        lines=lines,
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
    source_alpha: SourceAlpha = None,
    seed: DrawSeed = 1,
    epoch: Epoch = 0,
    batch_characters: BatchCharacters = 4_000,
    lines: Lines = None,
    ray: options.Ray = None,
    workers: Workers = None,
    device: options.Device = "auto",
    bf16: Bf16 = False,
    force: Force = False,
) -> None:
    """Exact log-probability of every line, summed over all its segmentations. One line in, one line out.

    A line of more than 2,000 characters is read in windows, as by `dpe segment`.

    Columns: log p(y | x), characters (of the normalised line, and one for its end), unknown characters
    (which the model takes for one class), bits per character; log p(y, z | x) of the best segmentation z, the
    gap between the two (-log of its posterior probability), the entropy of the posterior in nats; UTF-8 bytes
    (of the normalised line, and one for its end), bits per byte. The totals go to standard error.

    Example: `dpe score --segmenter segmenter --source test.en --target test.fi --out test.scores.tsv`
    """
    from dpe.corpus_run.lines import LineScorer
    from dpe.segmenter.answers import Score
    from dpe.training.processes import Session

    progress: Progress = context.obj
    settings = SegmentSettings(
        source_dropout=source_dropout, source_alpha=source_alpha, seed=seed, epoch=epoch, bf16=bf16
    )
    totals = _run(
        Session(device=device, workers=workers, ray=ray, progress=progress),
        partial(LineScorer, segmenter.absolute(), settings),
        segmenter,
        settings,
        {"command": "score"},
        source=source,
        target=target,
        out=out,
        batch_characters=batch_characters,
        lines=lines,
        force=force,
    )
    if totals:
        whole = Score(**totals)  # type: ignore[arg-type]  # sums are floats
        progress.say(
            f"log p(y | x) {whole.log_probability:,.2f}, of the best segmentations "
            f"{whole.best_log_probability:,.2f}; {whole.bits_per_character:.4f} bits per character, "
            f"{whole.bits_per_byte:.4f} bits per byte; "
            f"{whole.characters:,.0f} characters, {whole.unknown:,.0f} unknown"
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
    lines: Lines = None,
    ray: options.Ray = None,
    workers: Workers = None,
    device: options.Device = "auto",
    bf16: Bf16 = False,
    force: Force = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", file_okay=False, help="Report how much of the segmenter is kept."),
    ] = None,
    gold: GoldFile = None,
    held_out_source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Source side of the text of the report.")
    ] = None,
    held_out_target: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text of the report; the text itself if absent.")
    ] = None,
) -> None:
    """Put what a segmenter has learned into an ordinary SentencePiece model.

    The model is a unigram model with the same pieces and ids. Its scores are fitted so that its segmentations
    of the words of this text are as probable as the segmenter's, which read the whole sentence pair, are on
    average. It needs no source, and any toolkit that reads SentencePiece models segments with it.

    The segmenter's best segmentation of the text is written too, as OUT.pieces.gz. Killed and started again
    with the same arguments, the command resumes there. With --lines it writes only that file, with the counts
    in its record; join the parts as OUT.pieces.gz, and run the command without --lines.

    --report compares the model with the segmenter on up to 2,000 lines, best of text that was not distilled:
    words cut alike, probabilities of boundaries, speed, and with --gold boundaries of morphemes.

    Example: `dpe distill --segmenter segmenter --source train.en --target train.fi --out distilled.model`
    """
    from dpe.corpus_run.distillation import count_pieces
    from dpe.corpus_run.distillation import distill as distill_segmenter
    from dpe.corpus_run.distillation_report import write_distillation_report
    from dpe.corpus_run.piece_counts import segmented_file
    from dpe.corpus_run.run import Shard
    from dpe.model.checkpoint import model_files
    from dpe.training.processes import Session

    for place in (out, segmented_file(out)):
        refuse_overwriting(place, source, target, held_out_source, held_out_target, *model_files(segmenter))
    require_files(gold, held_out_source, held_out_target)
    refuse(
        (
            bool(source and held_out_target) != bool(held_out_source),
            "Of held-out text give both sides, or the target alone for an LM segmenter.",
        ),
        ((gold or held_out_target) and not report, "--gold and held-out text are for --report DIR; give it."),
        (report and lines, "A report needs the whole text; give --report to the run without --lines."),
    )
    session = Session(device=device, workers=workers, ray=ray, progress=context.obj)
    make: Callable[..., Any] = distill_segmenter
    if lines is not None:
        make = partial(count_pieces, lines=Shard.parse(lines))
    made = make(
        out,
        segmenter=segmenter,
        source=source,
        target=target,
        settings=DistillSettings(counts=counts, max_types=max_types, bf16=bf16),
        session=session,
        batch_characters=batch_characters,
        force=force,
    )
    if report:
        write_distillation_report(
            report,
            segmenter=segmenter,
            distilled=made,
            source=held_out_source if held_out_target else source,
            target=held_out_target or target,
            gold=gold,
            session=session,
        )


def join(
    context: typer.Context,
    *,
    parts: Annotated[
        list[Path],
        typer.Argument(metavar="PARTS...", help="Outputs of --lines, with their records (.PART.dpe.json)."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The whole output, compressed as its name says.")
    ],
    force: Force = False,
) -> None:
    """Put the outputs of `--lines` together: the bytes, and the record, of one run over the whole text.

    Refused unless the parts are finished, have all lines of one text, and were made by the same model with
    the same settings. Their order does not matter. Parts of `dpe distill` are the files `.pieces.gz`.

    Example: `dpe join parts/*.fi --out train.dpe.fi`
    """
    from dpe.corpus_run.join import join as join_parts

    refuse_overwriting(out, *parts)
    join_parts(parts, out, force=force, progress=context.obj)


def _run(
    session: Session,
    answerer: Callable[..., Answerer],
    segmenter: Path,
    settings: SegmentSettings,
    asked: Mapping[str, Any],
    *,
    source: Path | None,
    target: Path | None,
    out: Path | None,
    batch_characters: int,
    lines: str | None,
    force: bool,
) -> Mapping[str, float]:
    """Ask about every line; returns sums over all. Settings and `asked` go into the output's record."""
    from dpe import __version__
    from dpe.corpus_run.output import partial_file
    from dpe.corpus_run.run import WHOLE, CorpusText, Shard, segmenter_run
    from dpe.model.checkpoint import model_files, read_settings
    from dpe.model.settings import model_settings

    shard = WHOLE if lines is None else Shard.parse(lines)
    has_source = model_settings(
        read_settings(segmenter, "segmenter"), SegmenterSettings, str(segmenter)
    ).source
    refuse(
        (source and not has_source, f"{segmenter} was trained without a source; leave --source out."),
        (target and has_source and not source, f"{segmenter} was trained with a source; give --source too."),
        (source and not target, "The target is missing; give --target too, or both sides on standard input."),
        (session.ray and out is None, "A run on a cluster is resumed from its file; give --out."),
    )
    for place in (out, out and partial_file(out)):
        refuse_overwriting(place, source, target, *model_files(segmenter))
    with segmenter_run(answerer, segmenter, session, batch_characters, bf16=settings.bf16) as (run, about):
        text = CorpusText(source, target, has_source)
        configuration = {**asked, **changed(settings), "version": __version__, **about}
        return run.write(text, out, configuration, force=force, lines=shard).totals
