"""Commands of the segmenter: train-segmenter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpe.choices import CutFormat, CutMode
from dpe.commands.options import Device, OutFile, model_files, refuse_idle, refuse_overwriting
from dpe.errors import UserError
from dpe.progress import Progress

if TYPE_CHECKING:
    from dpe.corpus_run.lines import EpochDraws
    from dpe.corpus_run.run import Answerer, CorpusText
from dpe.commands.options import (
    Accumulate,
    Average,
    Bf16,
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

SegmenterDirectory = Annotated[
    Path, typer.Option("--segmenter", metavar="DIR", help="What train-segmenter made.")
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
SourceDropout = Annotated[
    float | None,
    typer.Option(min=0.0, max=1.0, help="Cut the source by BPE dropout of this --epoch first. [default: 0]"),
]
CutSeed = Annotated[
    int | None,
    typer.Option(min=0, max=2**63 - 1, help="Same seed, same random cuts. [default: 1]"),
]
Epoch = Annotated[int | None, typer.Option(min=0, help="Another epoch gives other random cuts. [default: 0]")]
BatchCharacters = Annotated[
    int | None,
    typer.Option(min=1, help="Target characters computed at once. [default: 4000]", show_default=False),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes of one thread each. [default: one per core; 1 on a GPU or for a short text]",
        show_default=False,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Start over, whatever is at --out and whatever made it.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("train-segmenter")(train_segmenter)
    app.command("segment")(segment)
    app.command("score")(score)


def segment(
    context: typer.Context,
    *,
    segmenter: SegmenterDirectory,
    source: SourceFile = None,
    target: TargetFile = None,
    out: OutFile = None,
    mode: Annotated[
        CutMode,
        typer.Option(help="The best cut, random cuts from the posterior, or the n best."),
    ] = "best",
    n: Annotated[
        int | None,
        typer.Option(min=1, max=1000, help="Cuts of a line. [default: 5 for n-best, 1 for sample]"),
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="For sample: divides the scores; below 1 keeps closer to the best cut.")
    ] = 1.0,
    source_dropout: SourceDropout = None,
    seed: CutSeed = None,
    epoch: Epoch = None,
    format: Annotated[
        CutFormat,
        typer.Option(help="How cuts are written; several cuts of a line are separated by tabs."),
    ] = "pieces",
    batch_characters: BatchCharacters = None,
    workers: Workers = None,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Cut a text with a trained segmenter. One line in, one line out.

    The result is the same for any number of workers. Killed and started again with the same arguments it
    goes on after the lines that were saved (every 2,000, in `OUT.partial` and `.OUT.dpe.json`); a finished
    output is not overwritten by another configuration unless --force says so. With --source-dropout 0.05 and
    --epoch 0, 1, 2... it is the paper's on-the-fly DPE; with 0 its fixed DPE.

    A line of more than 2,000 characters is read in windows, each with the 1,000 characters before it (and
    the 2,000 source pieces around the same place); its words are still cut exactly.

    Example: `dpe segment --segmenter segmenter --source train.en --target train.fi --out train.dpe.fi`
    """
    from dpe.corpus_run.lines import CutSettings, LineCutter
    from dpe.lattice.dynamic_program import check_temperature

    if mode == "best" and n is not None:
        raise UserError("There is one best cut; --n is for --mode n-best and sample.")
    if mode != "sample" and temperature != 1.0:
        raise UserError("--temperature is for --mode sample.")
    if mode != "sample" and source_dropout is None:
        refuse_idle(
            {"--seed": seed, "--epoch": epoch}, needs="random cuts: --source-dropout, or --mode sample"
        )
    check_temperature(temperature)
    count = {"best": 1, "sample": n or 1, "n-best": n or 5}[mode]
    settings = CutSettings(
        mode=mode,
        n=count,
        temperature=temperature,
        format=format,
        draws=_draws(source_dropout, seed, epoch),
    )
    _run(
        context.obj,
        partial(LineCutter, segmenter, settings),
        segmenter,
        {"command": "segment"} | settings.configuration(),
        text=_text(segmenter, source, target, source_dropout=source_dropout),
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
    out: OutFile = None,
    source_dropout: SourceDropout = None,
    seed: CutSeed = None,
    epoch: Epoch = None,
    batch_characters: BatchCharacters = None,
    workers: Workers = None,
    device: Device = "auto",
    force: Force = False,
) -> None:
    """Exact log-probability of every line, summed over all its cuts. One line in, one line out.

    A line of more than 2,000 characters is read in windows, as by `dpe segment`.

    Columns: log p(y | x), characters (of the normalised line, and one for its end), unknown characters
    (which the model takes for one class), bits per character. The totals go to standard error.

    Example: `dpe score --segmenter segmenter --source test.en --target test.fi --out test.scores.tsv`
    """
    from dpe.corpus_run.lines import LineScorer
    from dpe.segmenter.answers import Score

    if source_dropout is None:
        refuse_idle({"--seed": seed, "--epoch": epoch}, needs="random cuts: --source-dropout")
    progress: Progress = context.obj
    draws = _draws(source_dropout, seed, epoch)
    totals = _run(
        progress,
        partial(LineScorer, segmenter, draws),
        segmenter,
        {"command": "score"} | draws.configuration(),
        text=_text(segmenter, source, target, source_dropout=source_dropout),
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


def _draws(dropout: float | None, seed: int | None, epoch: int | None) -> EpochDraws:
    from dpe.corpus_run.lines import EpochDraws

    return EpochDraws(dropout=dropout or 0.0, seed=1 if seed is None else seed, epoch=epoch or 0)


def _text(
    segmenter: Path, source: Path | None, target: Path | None, *, source_dropout: float | None
) -> CorpusText:
    """The text to read; a source must be given if, and only if, the segmenter was trained with one."""
    from dpe.corpus_run.run import CorpusText
    from dpe.model.checkpoint import read_settings

    has_source = bool(read_settings(segmenter, "segmenter")["source"])
    if source is not None and not has_source:
        raise UserError(f"{segmenter} was trained without a source; leave --source out.")
    if source is None and target is not None and has_source:
        raise UserError(f"{segmenter} was trained with a source; give --source too.")
    if source is not None and target is None:
        raise UserError("The target is missing; give --target too, or both sides on standard input.")
    if source_dropout and not has_source:
        raise UserError(f"{segmenter} was trained without a source, so there is no source dropout.")
    return CorpusText(source, target, has_source)


def _run(
    progress: Progress,
    answerer: Callable[..., Answerer],
    segmenter: Path,
    asked: Mapping[str, Any],
    *,
    text: CorpusText,
    out: Path | None,
    batch_characters: int | None,
    workers: int | None,
    device: str,
    force: bool,
) -> Mapping[str, float]:
    """Ask about every line; gives the sums over all lines. `asked` says in a record what was asked."""
    from dpe.corpus_run.output import partial_file
    from dpe.corpus_run.run import CorpusRun
    from dpe.model.device import choose_device
    from dpe.segmenter.segmenter import BATCH_CHARACTERS, fingerprint
    from dpe.version import __version__

    for place in (out, out and partial_file(out)):
        refuse_overwriting(place, text.source, text.target, *model_files(segmenter))
    chosen = choose_device(device)
    budget = batch_characters or BATCH_CHARACTERS
    configuration = {
        **asked,
        "version": __version__,
        "segmenter": fingerprint(segmenter),
        "batch_characters": budget,
        "device": chosen.type,
    }
    run = CorpusRun(answerer, device=chosen, workers=workers, batch_characters=budget, progress=progress)
    return run.write(text, out, configuration, force=force).totals


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
    from dpe.segmenter.training import SegmenterSettings
    from dpe.segmenter.training import train_segmenter as train
    from dpe.text.text_file import ParallelText
    from dpe.text.vocabulary import Vocabulary
    from dpe.training.settings import SEGMENTER_PRESETS

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
