"""Commands that stand between other programs: cut-pairs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpe.choices import BadLines, PairMethod, PairMode
from dpe.commands import options
from dpe.commands.options import setting_option
from dpe.errors import refuse
from dpe.progress import QUIET, Progress
from dpe.segmenter.settings import SegmentSettings

if TYPE_CHECKING:
    from dpe.data import PairCutter


def cut_pairs(
    context: typer.Context,
    *,
    segmenter: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A directory that train-segmenter made.")
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A SentencePiece model, for methods by counts.")
    ] = None,
    source_vocab: options.SourceVocabulary = None,
    target_vocab: options.TargetVocabulary = None,
    target_method: Annotated[
        PairMethod, typer.Option(help="How targets are segmented: by the segmenter, or by counts.")
    ] = "dpe",
    source_dropout: Annotated[float, setting_option(SegmentSettings, "source_dropout")] = 0.0,
    seed: Annotated[int, setting_option(SegmentSettings, "seed")] = 1,
    epoch: Annotated[int, setting_option(SegmentSettings, "epoch")] = 0,
    first_line: Annotated[
        int,
        typer.Option(min=0, help="Number of the first line; a line is segmented by the draws of its own."),
    ] = 0,
    mode: Annotated[
        PairMode, typer.Option(help="For dpe: the best segmentation, or one drawn from the posterior.")
    ] = "best",
    temperature: Annotated[float, setting_option(SegmentSettings, "temperature")] = 1.0,
    dropout: options.DropoutOfCounts = 0.05,
    alpha: options.Alpha = None,
    skew: options.Skew = 0.0,
    format: options.Format = "pieces",
    bad_lines: Annotated[
        BadLines,
        typer.Option(help="Lines that are no pair are reported, and passed on as they are or dropped."),
    ] = "pass",
    batch_characters: Annotated[int, typer.Option(min=1, help="Target characters computed at once.")] = 4_000,
    workers: Annotated[int, typer.Option(min=1, help="Processes of one thread each.")] = 1,
    device: options.Device = "auto",
) -> None:
    """Segment both sides of a stream of pairs, from standard input to standard output, line by line.

    A line is source, tab, target; further fields behind another tab are passed on. Lines are written in order
    as soon as they are segmented, and none waits for lines that have not come. Each is segmented by the draws
    of its number, as `dpe encode` and `dpe segment` segment the same line of a file, so that an endless,
    shuffled stream works.

    Example: `dpe cut-pairs --segmenter segmenter --source-dropout 0.05 < train.tsv > train.pieces.tsv`
    """
    from dpe.corpus_run.pair_stream import PairStream, StreamCutter

    by_segmenter = target_method == "dpe"
    refuse(
        (
            (segmenter is not None) != by_segmenter
            or (by_segmenter and (vocab or source_vocab or target_vocab)),
            "Target method dpe needs --segmenter, and each other one needs --vocab in its place.",
        )
    )
    cutter: PairCutter
    if segmenter is not None:
        from dpe.segmenter.segmenter import OnTheFly, Segmenter

        loaded = Segmenter.load(segmenter, device=device, batch_characters=batch_characters)
        drawn = temperature if mode == "sample" else None
        cutter = OnTheFly(loaded, dropout=source_dropout, seed=seed, temperature=drawn)
    else:
        from dpe.data import CountPairs
        from dpe.text.segmenters import make_segmenter, source_segmenter
        from dpe.text.vocabulary import Vocabulary

        vocabulary = Vocabulary.of(*options.vocabularies(vocab, source_vocab, target_vocab))
        by_counts = make_segmenter(target_method, vocabulary, dropout=dropout, alpha=alpha, skew=skew)
        cutter = CountPairs(
            vocabulary, source_segmenter(vocabulary.source, source_dropout), by_counts, seed=seed
        )
    progress: Progress = context.obj
    stream = PairStream(
        sys.stdin.buffer,
        first_line=first_line,
        bad_lines=bad_lines,
        report=lambda text: progress.say(text, level=QUIET),
    )
    stream.cut(partial(StreamCutter, cutter, epoch=epoch, format=format), sys.stdout.buffer, workers=workers)
    progress.say(f"{stream.lines:,} lines, {stream.bad:,} without a pair")
