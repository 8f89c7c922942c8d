"""Commands that read text and show numbers: evaluate, compare, morphology, diagnose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpe.choices import SegmentedFormat
from dpe.commands.options import AsJson, AsMarkdown, BleuTokenize, Seed, require_files
from dpe.errors import UserError
from dpe.files import whole_text_file
from dpe.progress import Progress

if TYPE_CHECKING:
    from dpe.evaluation.tables import Table


RESULTS = "results.json"
# What tells the results of these commands apart: a key of the object, or of the first object of a list.
_TELLING_KEYS = {
    "evaluate": "hypotheses",
    "compare": "comparison",
    "morphology": "unit",
    "diagnose": "calibration",
}


def _refuse_other_results(context: typer.Context, out: Path | None) -> Path | None:
    """`results.json` is the name of the results of a run, and of each command here."""
    from dpe.experiment.results import PLAN

    if out and (out / PLAN).exists():
        raise UserError(f"{out} is the directory of a run, whose results.json would be lost; give another.")
    if out and (out / RESULTS).is_file() and not _is_result_of(out / RESULTS, str(context.info_name)):
        raise UserError(f"{out / RESULTS} was not written by dpe {context.info_name}; give another --out.")
    return out


def _is_result_of(path: Path, command: str) -> bool:
    try:
        result = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    first = result[0] if isinstance(result, list) and result else result
    return isinstance(first, dict) and _TELLING_KEYS[command] in first


OutDirectory = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        callback=_refuse_other_results,
        help="Also write results.json and any figures (PNG, SVG) here.",
    ),
]
Format = Annotated[
    SegmentedFormat | None,
    typer.Option(
        help="How pieces are written. [default: pieces if most lines have a U+2581, else subword-nmt]"
    ),
]
GoldFile = Annotated[
    Path | None,
    typer.Option(
        "--gold", metavar="FILE", help="Gold: word, tab, morphs separated by blanks; may be .gz or .xz."
    ),
]
TrainCounts = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Training text, segmented or not, or lines of word, tab, count."),
]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command("evaluate")(evaluate)
    app.command("compare")(compare)
    app.command("morphology")(morphology)
    app.command("diagnose")(diagnose)


def evaluate(
    context: typer.Context,
    *,
    hypothesis: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A translation; repeat it for several seeds.")
    ],
    reference: Annotated[Path, typer.Option(metavar="FILE", help="The reference translation; one only.")],
    baseline: Annotated[
        list[Path],
        typer.Option(metavar="FILE", help="Test each hypothesis against this translation; may be repeated."),
    ] = [],  # noqa: B006
    by_length: Annotated[
        bool, typer.Option("--by-length", help="BLEU by length of the reference too.")
    ] = False,
    tokenize: BleuTokenize = "13a",
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Score translations by sacreBLEU: BLEU and chrF2, with signatures, and paired bootstrap tests.

    Several hypotheses are seeds of one system, whose mean and standard deviation are shown. Text must be
    detokenised, line for line as in the reference.

    Example: `dpe evaluate --hypothesis dpe.fi --baseline bpe.fi --reference test.fi --by-length`
    """
    from dpe.evaluation.score_report import draw_bleu_by_length, evaluation_tables, score_translations

    result = score_translations(hypothesis, reference, baseline, by_length=by_length, tokenize=tokenize)
    progress: Progress = context.obj
    for doubt in result.doubts:
        progress.say(doubt)
    pictures = draw_bleu_by_length(result, out) if out and by_length else []
    tables = evaluation_tables(result)
    _show(context, result, tables, as_json=json, as_markdown=markdown, out=out, pictures=pictures)


def compare(
    context: typer.Context,
    *,
    a: Annotated[Path, typer.Option("--a", metavar="FILE", help="A segmented text.")],
    b: Annotated[Path, typer.Option("--b", metavar="FILE", help="The same text, segmented otherwise.")],
    train_counts: TrainCounts = None,
    gold: GoldFile = None,
    source: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Source of the text: shows which source words go with which cut."),
    ] = None,
    format: Format = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(min=2, help="|V| of the Renyi efficiency. [default: the pieces that occur]"),
    ] = None,
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Show where two segmentations of one text disagree, whoever made them.

    A word is a run of letters and marks. Its ends, and the cut after a lone word marker, do not count.
    The frequency of words is that of --train-counts, or else of the text itself.

    Example: `dpe compare --a bpe.pieces --b dpe.pieces --source train.en --out comparison`
    """
    from dpe.evaluation.comparison_report import compare_files, comparison_tables, draw_comparison
    from dpe.evaluation.morphology_report import morphology_tables, score_morphology

    require_files(a, b, train_counts, source)
    result = compare_files(
        a, b, train_counts=train_counts, source=source, format=format, vocabulary_size=vocab_size
    )
    _say_what_is_not_cut(context, a, b)
    tables = comparison_tables(result)
    everything: dict[str, Any] = {"comparison": result}
    if gold:
        everything["morphology"] = systems = score_morphology([a, b], gold, format=format)
        tables += morphology_tables(systems)
    pictures = draw_comparison(result, out) if out else []
    _show(context, everything, tables, as_json=json, as_markdown=markdown, out=out, pictures=pictures)


def morphology(
    context: typer.Context,
    *,
    pieces: Annotated[
        list[Path], typer.Option(metavar="FILE", help="A segmented text; repeat it to compare systems.")
    ],
    gold: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="Lines of word, tab, morphs separated by blanks; may be .gz or .xz."
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

    A word is a run of letters and marks. Its ends, and the cut after a lone word marker, do not count.
    Several systems are also compared on the words that all cut into equally many pieces.

    Example: `dpe morphology --pieces bpe.pieces --pieces dpe.pieces --gold gold.tsv`
    """
    from dpe.evaluation.morphology_report import doubt, draw_morphology, morphology_tables, score_morphology

    require_files(*pieces)
    result = score_morphology(pieces, gold, format=format, samples=samples, seed=seed)
    _say_what_is_not_cut(context, *pieces)
    if strange := doubt(result):
        progress: Progress = context.obj
        progress.say(strange)
    pictures = draw_morphology(result, out) if out else []
    tables = morphology_tables(result)
    _show(context, result, tables, as_json=json, as_markdown=markdown, out=out, pictures=pictures)


def diagnose(
    context: typer.Context,
    *,
    posteriors: Annotated[
        Path, typer.Option("--jsonl", metavar="FILE", help="Made by `dpe segment --format jsonl`.")
    ],
    gold: GoldFile = None,
    train_counts: TrainCounts = None,
    json: AsJson = False,
    markdown: AsMarkdown = False,
    out: OutDirectory = None,
) -> None:
    """Show how sure a segmenter is of its cuts, and with --gold whether rightly.

    Example: `dpe diagnose --jsonl test.jsonl --gold gold.tsv --train-counts train.fi`
    """
    from dpe.evaluation.diagnostics import diagnose_file, diagnostics_tables, draw_diagnostics

    require_files(train_counts)
    result = diagnose_file(posteriors, gold=gold, train_counts=train_counts)
    pictures = draw_diagnostics(result, out) if out else []
    tables = diagnostics_tables(result)
    _show(context, result, tables, as_json=json, as_markdown=markdown, out=out, pictures=pictures)


def _say_what_is_not_cut(context: typer.Context, *texts: Path) -> None:
    from dpe.evaluation.segmented_text import has_cuts

    progress: Progress = context.obj
    for path in texts:
        if not has_cuts(path):
            progress.say(f"{path} is not segmented, it seems: it has neither U+2581 nor @@")


def _show(
    context: typer.Context,
    result: object,
    tables: list[Table],
    *,
    as_json: bool,
    as_markdown: bool,
    out: Path | None,
    pictures: list[Path],
) -> None:
    """The result on standard output; with `out` also as a file, beside the pictures."""
    from dpe.evaluation.tables import show, to_json

    if out:  # first, because whoever reads the tables may stop reading
        with whole_text_file(out / RESULTS) as file:
            file.write(to_json(result) + "\n")
    show(result, tables, as_json=as_json, as_markdown=as_markdown)
    if out:
        progress: Progress = context.obj
        progress.say(f"{out}: {', '.join([RESULTS, *(picture.name for picture in pictures)])}")
