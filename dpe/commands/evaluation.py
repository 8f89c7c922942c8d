"""Commands that read text and show numbers: evaluate, compare, morphology, diagnose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpe.choices import SegmentedFormat
from dpe.commands.options import AsJson, AsMarkdown, BleuTokenize, GoldFile, Seed, require_files
from dpe.files import whole_text_file
from dpe.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OutDirectory = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Also write the numbers (COMMAND.json) and any figures (PNG, SVG) here."
    ),
]
Format = Annotated[
    SegmentedFormat | None,
    typer.Option(
        help="How pieces are written. [default: pieces if most lines have a U+2581, else subword-nmt]"
    ),
]
TrainCounts = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Training text, segmented or not, or lines of word, tab, count."),
]


def evaluate(
    context: typer.Context,
    *,
    hypothesis: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A translation; repeat the option for several seeds.")
    ],
    reference: Annotated[Path, typer.Option(metavar="FILE", help="The reference translation.")],
    baseline: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Test each hypothesis against this translation; repeatable."),
    ] = [],  # noqa: B006
    by_length: Annotated[
        bool, typer.Option("--by-length", help="Also show BLEU by length of the reference.")
    ] = False,
    by_frequency: Annotated[
        Path | None,
        typer.Option(
            metavar="COUNTS",
            help="Also show F1 of words by frequency in a training target, or in lines of word, tab, count.",
        ),
    ] = None,
    tokenize: BleuTokenize = "13a",
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Score translations with sacreBLEU: BLEU and chrF2, with signatures, and paired bootstrap tests.

    Several hypotheses are seeds of one system, whose mean and standard deviation are shown. Text must be
    detokenised, line for line as in the reference.

    Example: `dpe evaluate --hypothesis dpe.fi --baseline bpe.fi --reference test.fi --by-length`
    """
    from dpe.evaluation.tables import show
    from dpe.evaluation.translations import evaluation_figures, evaluation_tables, score_translations

    require_files(by_frequency)
    result = score_translations(
        hypothesis, reference, baseline, by_length=by_length, by_frequency=by_frequency, tokenize=tokenize
    )
    progress: Progress = context.obj
    for doubt in result.doubts:
        progress.say(doubt)
    _save(context, out, result, lambda: evaluation_figures(result))
    show(result, evaluation_tables(result), as_json=json, as_markdown=markdown)


def compare(
    context: typer.Context,
    *,
    a: Annotated[Path, typer.Option("--a", metavar="FILE", help="A segmented text.")],
    b: Annotated[Path, typer.Option("--b", metavar="FILE", help="Another segmentation of the same text.")],
    train_counts: TrainCounts = None,
    gold: GoldFile = None,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Source of the text, to show which source words go with which segmentation."
        ),
    ] = None,
    format: Format = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=2, help="|V| of the Renyi efficiency. [default: the pieces that occur]")
    ] = None,
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Show where two segmentations of one text disagree, whichever tools made them.

    A word is a run of letters and marks. Its ends, and the boundary after a lone word marker, do not count.
    Word frequencies are those of --train-counts, or else of the text itself.

    Example: `dpe compare --a bpe.pieces --b dpe.pieces --source train.en --out comparison`
    """
    from dpe.evaluation.comparison import compare_files, comparison_figures, comparison_tables
    from dpe.evaluation.morphology import morphology_tables, score_morphology
    from dpe.evaluation.tables import show

    require_files(a, b, train_counts, source)
    result = compare_files(
        a, b, train_counts=train_counts, source=source, format=format, vocabulary_size=vocab_size
    )
    _warn_if_unsegmented(context, a, b)
    tables = comparison_tables(result)
    everything: dict[str, Any] = {"comparison": result}
    if gold:
        everything["morphology"] = systems = score_morphology([a, b], gold, format=format)
        tables += morphology_tables(systems)
    _save(context, out, everything, lambda: comparison_figures(result))
    show(everything, tables, as_json=json, as_markdown=markdown)


def morphology(
    context: typer.Context,
    *,
    pieces: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="A segmented text; repeat the option to compare systems."),
    ],
    gold: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Lines of word, tab, morphs separated by spaces; may be .gz, .xz or .zst."
        ),
    ],
    format: Format = None,
    samples: Annotated[int, typer.Option(min=1, max=1_000_000, help="Resamples of the bootstrap.")] = 1000,
    seed: Seed = 1,
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Score segmentations against gold morphemes: boundaries, whole morphs, exact matches.

    A word is a run of letters and marks. Its ends, and the boundary after a lone word marker, do not count.
    Several systems are also compared on the words that all segment into equally many pieces.

    Example: `dpe morphology --pieces bpe.pieces --pieces dpe.pieces --gold gold.tsv`
    """
    from dpe.evaluation.morphology import doubt, morphology_figures, morphology_tables, score_morphology
    from dpe.evaluation.tables import show

    require_files(*pieces)
    result = score_morphology(pieces, gold, format=format, samples=samples, seed=seed)
    _warn_if_unsegmented(context, *pieces)
    if warning := doubt(result):
        progress: Progress = context.obj
        progress.say(warning)
    _save(context, out, result, lambda: morphology_figures(result))
    show(result, morphology_tables(result), as_json=json, as_markdown=markdown)


def diagnose(
    context: typer.Context,
    *,
    posteriors: Annotated[
        Path, typer.Option("--jsonl", metavar="FILE", help="Output of `dpe segment --format jsonl`.")
    ],
    gold: GoldFile = None,
    train_counts: TrainCounts = None,
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Show how certain a segmenter is of its segmentations, and with --gold whether it is calibrated.

    Example: `dpe diagnose --jsonl test.jsonl --gold gold.tsv --train-counts train.fi`
    """
    from dpe.evaluation.diagnostics import diagnose_file, diagnostics_figures, diagnostics_tables
    from dpe.evaluation.tables import show

    require_files(train_counts)
    result = diagnose_file(posteriors, gold=gold, train_counts=train_counts)
    _save(context, out, result, lambda: diagnostics_figures(result))
    show(result, diagnostics_tables(result), as_json=json, as_markdown=markdown)


def _warn_if_unsegmented(context: typer.Context, *texts: Path) -> None:
    from dpe.evaluation.segmented_text import LINES_TO_DETECT, is_cut
    from dpe.text.corpus import read_lines

    progress: Progress = context.obj
    for path in texts:
        if not any(map(is_cut, islice(read_lines(path), LINES_TO_DETECT))):
            progress.say(f"{path} seems not to be segmented: it has neither U+2581 nor @@")


def _save(
    context: typer.Context, out: Path | None, result: object, figures: Callable[[], Mapping[str, Figure]]
) -> None:
    """Write a result as COMMAND.json beside its figures, if `out` is given.

    Before the tables are printed, because their reader may stop reading.
    """
    from dpe.evaluation.plots import save_figures
    from dpe.evaluation.tables import to_json

    if out:
        path = out / f"{context.info_name}.json"
        with whole_text_file(path) as file:
            file.write(to_json(result) + "\n")
        progress: Progress = context.obj
        progress.say(f"{out}: {', '.join(one.name for one in [path, *save_figures(figures(), out)])}")
