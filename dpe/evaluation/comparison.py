"""Where two segmentations of one text disagree: by word, and by frequency (the paper's table and figure).

Words and cuts are those of `segmented_text`. An occurrence of a word (a *token*) is cut differently when the
two sides' cuts are not at the same positions. A word *type* is cut differently when its most frequent
segmentation on one side is not that of the other; ties are broken by `by_frequency`, on both sides alike, so
that a tie is not a disagreement.

A word's frequency is its count in the training text where that is given, else in the compared text.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.evaluation.plots import draw_bars, draw_histograms
from dpe.evaluation.segmented_text import Cuts, CutWord, count_words, read_two_segmentations
from dpe.evaluation.tables import Table, percent, short_names
from dpe.evaluation.text_profile import RENYI_ALPHA, TextProfile, by_frequency, profile_text, varying_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BANDS = {  # largest frequency by label, in order
    "0": 0, "1": 1, "2": 2, "3-5": 5, "6-10": 10, "11-20": 20, "21-100": 100, "over 100": math.inf
}  # fmt: skip
TOP_WORDS = 50


@dataclass(frozen=True)
class Disagreement:
    """A word whose most frequent segmentations differ: carts, `car+ts` and `cart+s`."""

    word: str
    frequency: int
    tokens: int
    different_tokens: int
    a: str
    b: str


@dataclass(frozen=True)
class Band:
    """Words of similar frequency, and how many of them are cut differently."""

    label: str
    types: int
    different_types: int
    tokens: int
    different_tokens: int

    @property
    def type_share(self) -> float:
        return self.different_types / self.types

    @property
    def token_share(self) -> float:
        return self.different_tokens / self.tokens


@dataclass(frozen=True)
class Comparison:
    """Two segmentations of one text side by side; `bands` has those that contain a word."""

    types: int
    different_types: int
    tokens: int
    different_tokens: int
    pieces_per_word_a: float
    pieces_per_word_b: float
    bands: list[Band]
    top: list[Disagreement]


@dataclass(frozen=True)
class FileComparison:
    """Everything `dpe compare` shows, except the morphology."""

    comparison: Comparison
    a: TextProfile
    b: TextProfile


class PairCounts:
    """How often each word has each segmentation on either side; all that a comparison needs of a text."""

    def __init__(self, lines: Iterable[tuple[list[CutWord], list[CutWord]]]) -> None:
        self.a: defaultdict[str, Counter[Cuts]] = defaultdict(Counter)
        self.b: defaultdict[str, Counter[Cuts]] = defaultdict(Counter)
        self.different: Counter[str] = Counter()
        for line in lines:
            for left, right in zip(*line, strict=True):
                self.a[left.word][left.cuts] += 1
                self.b[right.word][right.cuts] += 1
                if left.cuts != right.cuts:
                    self.different[left.word] += 1


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
    counts = PairCounts(read_two_segmentations(a, b, format))
    if not counts.a:
        raise UserError(f"{a} has no words; give a segmented text.")
    frequencies = count_words(train_counts) if isinstance(train_counts, Path) else train_counts
    one, other = (
        profile_text(path, name, source=source, format=format, vocabulary_size=vocabulary_size)
        for path, name in zip((a, b), short_names([a, b]), strict=True)
    )
    return FileComparison(compare(counts, train_counts=frequencies), one, other)


def compare(
    counts: PairCounts, *, train_counts: Mapping[str, int] | None = None, top: int = TOP_WORDS
) -> Comparison:
    """Shares of types and tokens cut differently, overall and by band, and the most frequent such words."""
    tokens = Counter({word: ways.total() for word, ways in counts.a.items()})
    frequency = tokens if train_counts is None else train_counts
    best_a, best_b = (
        {word: by_frequency(ways)[0] for word, ways in side.items()} for side in (counts.a, counts.b)
    )
    different = {word for word in tokens if best_a[word] != best_b[word]}
    order = sorted(different, key=lambda word: (-frequency.get(word, 0), -tokens[word], word))
    members: defaultdict[str, list[str]] = defaultdict(list)
    for word in tokens:
        members[band_label(frequency.get(word, 0))].append(word)
    return Comparison(
        types=len(tokens),
        different_types=len(different),
        tokens=tokens.total(),
        different_tokens=counts.different.total(),
        pieces_per_word_a=_pieces_per_word(counts.a),
        pieces_per_word_b=_pieces_per_word(counts.b),
        bands=[
            Band(
                label=label,
                types=len(words),
                different_types=sum(word in different for word in words),
                tokens=sum(tokens[word] for word in words),
                different_tokens=sum(counts.different[word] for word in words),
            )
            for label in BANDS
            if (words := members[label])
        ],
        top=[
            Disagreement(
                word=word,
                frequency=frequency.get(word, 0),
                tokens=tokens[word],
                different_tokens=counts.different[word],
                a=str(CutWord(word, best_a[word])),
                b=str(CutWord(word, best_b[word])),
            )
            for word in order[:top]
        ],
    )


def band_label(frequency: int) -> str:
    """The band of a frequency."""
    return next(label for label, largest in BANDS.items() if frequency <= largest)


def _pieces_per_word(ways_of: Mapping[str, Counter[Cuts]]) -> float:
    """Pieces per evaluated word, over tokens: cuts + 1."""
    tokens = sum(ways.total() for ways in ways_of.values())
    pieces = sum((len(cuts) + 1) * count for ways in ways_of.values() for cuts, count in ways.items())
    return pieces / max(tokens, 1)


def comparison_tables(result: FileComparison) -> list[Table]:
    """The tables in the order of the paper, then the numbers of each side."""
    return [
        top_table(result.comparison, result.a.name, result.b.name),
        _band_table(result.comparison.bands),
        _statistics_table(result),
        *(varying_table(side) for side in (result.a, result.b) if side.varying),
    ]


def comparison_figures(result: FileComparison) -> dict[str, Figure]:
    """Disagreement by frequency band, piece lengths and line lengths, by file name."""
    bands, sides = result.comparison.bands, (result.a, result.b)
    return {
        "disagreement": draw_bars(
            [f"{band.label}\n{band.types:,}" for band in bands],
            {
                "word types": [100 * band.type_share for band in bands],
                "tokens": [100 * band.token_share for band in bands],
            },
            xlabel="frequency of the word, and number of types",
            ylabel="cut differently, %",
        ),
        "piece-lengths": draw_histograms(
            {side.name: side.statistics.piece_lengths for side in sides},
            xlabel="characters in a piece",
            ylabel="share of pieces in the text",
        ),
        "line-lengths": draw_histograms(
            {side.name: side.statistics.line_lengths for side in sides},
            xlabel="pieces in a line",
            ylabel="share of lines",
        ),
    }


def top_table(comparison: Comparison, a: str, b: str) -> Table:
    """The most frequent words that are cut differently by `a` and `b`."""
    columns = ["frequency", "word", a, b]
    rows = [[f"{one.frequency:,}", one.word, one.a, one.b] for one in comparison.top]
    note = (
        f"{comparison.different_types:,} of {comparison.types:,} word types "
        f"({percent(comparison.different_types / comparison.types)}) and "
        f"{comparison.different_tokens:,} of {comparison.tokens:,} tokens "
        f"({percent(comparison.different_tokens / comparison.tokens)}) are cut differently."
    )
    title = f"The {len(rows)} most frequent words that are cut differently"
    return Table(title, columns, rows, frozenset(columns[1:]), note)


def _band_table(bands: Sequence[Band]) -> Table:
    columns = ["frequency", "types", "cut differently", "tokens", "tokens cut differently"]
    rows = [
        [one.label, f"{one.types:,}", percent(one.type_share), f"{one.tokens:,}", percent(one.token_share)]
        for one in bands
    ]
    return Table("Disagreement by frequency of the word", columns, rows, frozenset({"frequency"}))


def _statistics_table(result: FileComparison) -> Table:
    comparison = result.comparison
    one = _statistics_cells(result.a, comparison.pieces_per_word_a)
    other = _statistics_cells(result.b, comparison.pieces_per_word_b)
    rows = [[name, one[name], other[name]] for name in one]
    return Table("Numbers", ["", result.a.name, result.b.name], rows, frozenset({""}))


def _statistics_cells(side: TextProfile, pieces_per_word: float) -> dict[str, str]:
    numbers = side.statistics
    lengths = numbers.pieces_per_line
    return {
        "lines": f"{numbers.lines:,}",
        "words (between spaces)": f"{numbers.words:,}",
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
