"""Two segmented files side by side, as `dpe compare` shows them: tables, figures, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.evaluation.comparison import Comparison, PairCounts, compare
from dpe.evaluation.piece_statistics import RENYI_ALPHA, Statistics, collect_statistics
from dpe.evaluation.plots import draw_bars, draw_histograms
from dpe.evaluation.segmented_text import (
    CutWord,
    count_words,
    read_cut_tokens,
    read_pieces,
    read_two_segmentations,
)
from dpe.evaluation.tables import Table, percent, short_names
from dpe.evaluation.varying_words import VaryingWord, count_ways, describe_varying_words, most_varying
from dpe.text.corpus import read_lines

SHOWN_WAYS = 4  # of cutting a word; results.json has all


@dataclass(frozen=True)
class Side:
    """One of the two files: its numbers, and its words that are cut in several ways."""

    name: str
    statistics: Statistics
    varying_words: int
    varying_tokens: int
    varying: list[VaryingWord]


@dataclass(frozen=True)
class FileComparison:
    """Everything `dpe compare` says, but for the morphology."""

    comparison: Comparison
    a: Side
    b: Side


def compare_files(
    a: Path,
    b: Path,
    *,
    train_counts: Path | Mapping[str, int] | None = None,
    source: Path | None = None,
    format: SegmentedFormat | None = None,
    vocabulary_size: int | None = None,
) -> FileComparison:
    """Compare two segmentations of one text. `source` has the source line of each line.

    Reads each file several times, so standard input will not do.
    """
    counts = PairCounts.of(read_two_segmentations(a, b, format))
    if not counts.a:
        raise UserError(f"{a} has no words; give a segmented text.")
    frequencies = count_words(train_counts) if isinstance(train_counts, Path) else train_counts
    names = short_names([a, b])
    sides = [
        _side(path, name, source, format, vocabulary_size) for path, name in zip((a, b), names, strict=True)
    ]
    return FileComparison(compare(counts, train_counts=frequencies), *sides)


def _side(
    path: Path, name: str, source: Path | None, format: SegmentedFormat | None, vocabulary_size: int | None
) -> Side:
    ways = count_ways(read_cut_tokens(path, format))
    return Side(
        name=name,
        statistics=collect_statistics(read_pieces(path, format), vocabulary_size=vocabulary_size),
        varying_words=len(ways),
        varying_tokens=sum(cuts.total() for cuts in ways.values()),
        varying=describe_varying_words(most_varying(ways), ways, _with_source(path, source, format)),
    )


def comparison_tables(result: FileComparison) -> list[Table]:
    """The tables in the order of the paper, then the numbers of each side."""
    return [
        _top_table(result),
        _band_table(result.comparison),
        _statistics_table(result),
        *(_varying_table(side) for side in (result.a, result.b) if side.varying),
    ]


def draw_comparison(result: FileComparison, directory: Path) -> list[Path]:
    """Disagreement by frequency band, piece lengths and line lengths, each as PNG and SVG."""
    bands, sides = result.comparison.bands, (result.a, result.b)
    return [
        *draw_bars(
            [f"{band.label}\n{band.types:,}" for band in bands],
            {
                "word types": [100 * band.type_share for band in bands],
                "tokens": [100 * band.token_share for band in bands],
            },
            directory / "disagreement",
            xlabel="frequency of the word, and number of types",
            ylabel="cut differently, %",
        ),
        *draw_histograms(
            {side.name: side.statistics.piece_lengths for side in sides},
            directory / "piece-lengths",
            xlabel="characters in a piece",
            ylabel="share of pieces in the text",
        ),
        *draw_histograms(
            {side.name: side.statistics.line_lengths for side in sides},
            directory / "line-lengths",
            xlabel="pieces in a line",
            ylabel="share of lines",
        ),
    ]


def _with_source(
    path: Path, source: Path | None, format: SegmentedFormat | None
) -> Iterator[tuple[list[CutWord], str | None]]:
    """The words of each line beside its source line; nothing at all without a source."""
    if source is None:
        return
    for number, (words, line) in enumerate(
        zip_longest(read_cut_tokens(path, format), read_lines(source)), start=1
    ):
        if words is None or line is None:
            short, long = (path, source) if words is None else (source, path)
            raise UserError(
                f"{short} ends after {number - 1} lines but {long} goes on; "
                "give the source of the compared text, line by line."
            )
        yield words, line


def _top_table(result: FileComparison) -> Table:
    comparison = result.comparison
    columns = ["frequency", "word", result.a.name, result.b.name]
    rows = [[f"{one.frequency:,}", one.word, one.a, one.b] for one in comparison.top]
    note = (
        f"{comparison.different_types:,} of {comparison.types:,} word types "
        f"({percent(comparison.different_types / comparison.types)}) and "
        f"{comparison.different_tokens:,} of {comparison.tokens:,} tokens "
        f"({percent(comparison.different_tokens / comparison.tokens)}) are cut differently."
    )
    title = f"The {len(rows)} most frequent words that are cut differently"
    return Table(title, columns, rows, frozenset(columns[1:]), note)


def _band_table(comparison: Comparison) -> Table:
    columns = ["frequency", "types", "cut differently", "tokens", "tokens cut differently"]
    rows = [
        [
            band.label,
            f"{band.types:,}",
            percent(band.type_share),
            f"{band.tokens:,}",
            percent(band.token_share),
        ]
        for band in comparison.bands
    ]
    return Table("Disagreement by frequency of the word", columns, rows, frozenset({"frequency"}))


def _statistics_table(result: FileComparison) -> Table:
    comparison = result.comparison
    per_word = (comparison.pieces_per_word_a, comparison.pieces_per_word_b)
    cells = [
        _statistics_cells(side, pieces) for side, pieces in zip((result.a, result.b), per_word, strict=True)
    ]
    rows = [[name, cells[0][name], cells[1][name]] for name in cells[0]]
    return Table("Numbers", ["", result.a.name, result.b.name], rows, frozenset({""}))


def _statistics_cells(side: Side, pieces_per_word: float) -> dict[str, str]:
    numbers = side.statistics
    lengths = numbers.pieces_per_line
    return {
        "lines": f"{numbers.lines:,}",
        "words (between blanks)": f"{numbers.words:,}",
        "pieces": f"{numbers.pieces:,}",
        "fertility (pieces per word)": f"{numbers.fertility:.3f}",
        "pieces per run of letters": f"{pieces_per_word:.3f}",
        "different pieces": f"{numbers.distinct:,}",
        "pieces that occur once": f"{numbers.used_once:,}",
        "most frequent pieces that make 95 %": f"{numbers.covering:,}",
        f"Renyi efficiency (alpha {RENYI_ALPHA})": f"{numbers.renyi_efficiency:.4f}",
        "characters per piece": f"{numbers.characters_per_piece:.3f}",
        "pieces per line, mean": f"{lengths.mean:.2f}",
        "pieces per line, median": f"{lengths.median:g}",
        "pieces per line, 95 % below": f"{lengths.percentile_95:g}",
        "pieces per line, most": f"{lengths.longest:,}",
        "different words cut in several ways": f"{side.varying_words:,}",
        "how often these occur": f"{side.varying_tokens:,}",
    }


def _varying_table(side: Side) -> Table:
    columns = ["word", "cut", "count", "source words that go with it", "source line"]
    rows = []
    for word in side.varying:
        for number, way in enumerate(word.ways[:SHOWN_WAYS]):
            clues = ", ".join(
                f"{clue.word} ({percent(clue.share)}, else {percent(clue.share_elsewhere)})"
                for clue in way.clues
            )
            examples = way.examples or [""]
            rows.append([word.word if number == 0 else "", way.cut, f"{way.count:,}", clues, examples[0]])
            rows += [["", "", "", "", example] for example in examples[1:]]
    if not any(row[-1] for row in rows):  # no source was given
        columns, rows = columns[:3], [row[:3] for row in rows]
    left = frozenset(columns) - {"count"}
    return Table(f"Words that {side.name} cuts in several ways", columns, rows, left)
