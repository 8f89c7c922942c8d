"""Segmentations against gold morphemes: are the cuts inside a word where its morphemes meet?

An evaluated word is a run of letters and marks; punctuation and the word marker beside it are not part of
it, so a word's two ends, and with them the boundary after a lone marker, never count. A word that the gold
does not list is skipped. Recall alone rewards cutting everywhere: read it beside precision and pieces per
word.

Several systems are scored on the words that occur in every system's text, so that all answer the same
question. The words are scored three times: all of them; those that the gold splits; and, for *matched
fertility*, those that all systems cut into equally many pieces (on average over the word's tokens). On the
last the systems differ in where they cut and not in how often, so recall cannot be bought by cutting more.

Intervals are 95 % percentile bootstrap intervals over word types: a resampled type brings all its tokens.
The systems share the resamples, so the interval of a difference is paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.evaluation.plots import draw_bars
from dpe.evaluation.segmented_text import Cuts, read_pieces, words_with_cuts
from dpe.evaluation.tables import Table, short_names
from dpe.text.corpus import read_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOOTSTRAP_SAMPLES = 1000
SEED = 1
SHARES = ("precision", "recall", "f1", "morph_f1", "exact_match")  # fields of `BoundaryScores`
ALL, SPLIT, MATCHED = "all words", "words that the gold splits", "words that all cut into equally many pieces"
NOTE = (
    "Brackets: 95 % bootstrap intervals over word types. Recall alone rewards cutting everywhere. "
    "With a gold of derivations only, recall alone has a meaning."
)
Array = NDArray[np.float64]


@dataclass(frozen=True)
class WordTally:
    """How one word type was cut: sums over its tokens, and the number of boundaries in its gold."""

    word: str
    boundaries: int
    tokens: int
    cuts: int
    right_cuts: int
    right_morphs: int  # both ends are the gold's, with nothing between
    exact: int  # tokens whose cuts are exactly the gold's


@dataclass(frozen=True)
class BoundaryScores:
    """Boundary scores of a set of words, pooled: a word with more boundaries weighs more.

    Each type has weight 1 or its number of tokens; over types, one with several segmentations counts each by
    its share of the type's tokens. A type is a word as written: `Talo` and `talo` are two. A share of nothing
    is 1: a system that never cuts makes no wrong cut, and its F1 is 0 all the same.
    """

    words: int
    precision: float
    recall: float
    f1: float
    pieces_per_word: float
    exact_match: float
    morph_f1: float  # of whole morphs instead of boundaries: both ends right, nothing between


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of the bootstrap."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Array) -> Interval:
        low, high = np.percentile(values, [2.5, 97.5])
        return cls(float(low), float(high))

    def __str__(self) -> str:
        """In percent: `[12.0, 34.5]`."""
        return f"[{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class SystemScores:
    """One system on one set of words. `f1_gain` is its F1 minus the first system's; None for the first."""

    name: str
    scores: BoundaryScores
    intervals: dict[str, Interval]
    f1_gain: float | None
    f1_gain_interval: Interval | None


@dataclass(frozen=True)
class Selection:
    """All systems on one set of words, over types or over tokens."""

    words: str
    unit: str  # types or tokens
    systems: list[SystemScores]


def read_gold(path: Path) -> dict[str, Cuts]:
    """The boundaries of each word in a file of lines `word TAB morphs separated by spaces`."""
    gold: dict[str, Cuts] = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, tab, analysis = line.partition("\t")
        morphs, where = analysis.split(" "), f"{path}, line {number}"
        if not (word and tab and all(morphs)) or "\t" in analysis:
            raise UserError(f"{where}: Expected a word, a tab, and its morphs separated by single spaces.")
        if "".join(morphs) != word:
            raise UserError(
                f"{where}: The morphs {analysis!r} do not join to the word {word!r}; correct one."
            )
        cuts = frozenset(accumulate(len(morph) for morph in morphs[:-1]))
        if gold.setdefault(word, cuts) != cuts:
            raise UserError(f"{where}: {word!r} has a second analysis; keep one per word.")
    return gold


def gold_cuts(word: str, gold: Mapping[str, Cuts]) -> Cuts | None:
    """The word's boundaries, found as written or in lower case."""
    lower = word.lower()
    if word not in gold and len(lower) != len(word):  # offsets would not carry over (İ becomes two)
        return None
    return gold.get(word, gold.get(lower))


def tally(lines: Iterable[Sequence[str]], gold: Mapping[str, Cuts]) -> list[WordTally]:
    """How each word type of the segmented lines was cut, for the words in the gold."""
    ways: dict[str, Counter[Cuts]] = {}
    for pieces in lines:
        for word, cuts in words_with_cuts(pieces):
            ways.setdefault(word, Counter())[cuts] += 1
    found = ((word, gold_cuts(word, gold), counts) for word, counts in ways.items())
    return [_tally_word(word, right, counts) for word, right, counts in found if right is not None]


def _tally_word(word: str, right: Cuts, counts: Counter[Cuts]) -> WordTally:
    def morphs(cuts: Cuts) -> set[tuple[int, int]]:
        return set(pairwise((0, *sorted(cuts), len(word))))

    return WordTally(
        word=word,
        boundaries=len(right),
        tokens=counts.total(),
        cuts=sum(len(cuts) * count for cuts, count in counts.items()),
        right_cuts=sum(len(cuts & right) * count for cuts, count in counts.items()),
        right_morphs=sum(len(morphs(cuts) & morphs(right)) * count for cuts, count in counts.items()),
        exact=counts[right],
    )


def count_matrix(tallies: Sequence[WordTally], *, by_type: bool) -> Array:
    """What the scores pool, one row per word, which weighs 1 (`by_type`) or its number of tokens.

    [word, (tokens, boundaries, cuts, right cuts, right morphs, exact)]
    """
    rows = [
        (w.tokens, w.boundaries * w.tokens, w.cuts, w.right_cuts, w.right_morphs, w.exact) for w in tallies
    ]
    matrix = np.array(rows, dtype=np.float64).reshape(-1, 6)
    return matrix / matrix[:, :1] if by_type else matrix


def pooled_scores(sums: Array) -> dict[str, Array]:
    """The fields of `BoundaryScores` from rows of a `count_matrix` added up; any leading axes."""
    words, boundaries, cuts, right, right_morphs, exact = np.moveaxis(sums, -1, 0)

    def share(part: Array, whole: Array) -> Array:
        return np.divide(part, whole, out=np.ones_like(whole), where=whole > 0)

    return {
        "words": words,
        "precision": share(right, cuts),
        "recall": share(right, boundaries),
        "f1": share(2 * right, cuts + boundaries),
        "pieces_per_word": 1 + cuts / words,
        "exact_match": exact / words,
        "morph_f1": 2 * right_morphs / (cuts + boundaries + 2 * words),
    }


def boundary_scores(tallies: Sequence[WordTally], *, by_type: bool) -> BoundaryScores:
    """Scores of at least one word, each weighing 1 (`by_type`) or its number of tokens."""
    scores = pooled_scores(count_matrix(tallies, by_type=by_type).sum(axis=0))
    shares = {field: float(value) for field, value in scores.items() if field != "words"}
    return BoundaryScores(words=round(float(scores["words"])), **shares)


def score_morphology(
    paths: Sequence[Path],
    gold: Path,
    *,
    format: SegmentedFormat | None = None,
    samples: int = BOOTSTRAP_SAMPLES,
    seed: int = SEED,
) -> list[Selection]:
    """Score segmented files, named by file."""
    known = read_gold(gold)
    tallies = {}
    for path, name in zip(paths, short_names(paths), strict=True):
        tallies[name] = tally(read_pieces(path, format), known)
        if not tallies[name]:
            raise UserError(f"{path} has no word of {gold}; check that both are the same language.")
    return evaluate_systems(tallies, samples=samples, seed=seed)


def evaluate_systems(
    tallies: Mapping[str, Sequence[WordTally]], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = SEED
) -> list[Selection]:
    """Score systems, given as what `tally` counted of each, on the words that they share."""
    systems = {name: {word.word: word for word in found} for name, found in tallies.items()}
    shared = sorted(set.intersection(*(set(words) for words in systems.values())))
    if not shared:
        raise UserError(
            "No word of the gold is in every segmented text; check that all are the same language."
        )
    rows = [[words[word] for words in systems.values()] for word in shared]  # [word][system]
    chosen = {ALL: rows}
    split = [row for row in rows if row[0].boundaries]
    if len(split) < len(shared):
        chosen[SPLIT] = split
    if len(systems) > 1:  # equally many cuts per token in all systems
        chosen[MATCHED] = [row for row in rows if len({Fraction(w.cuts, w.tokens) for w in row}) == 1]
    return [
        _select(words, unit, dict(zip(systems, zip(*rows, strict=True), strict=True)), samples, seed)
        for words, rows in chosen.items()
        if rows
        for unit in ("types", "tokens")
    ]


def _select(
    words: str, unit: str, systems: Mapping[str, Sequence[WordTally]], samples: int, seed: int
) -> Selection:
    by_type = unit == "types"
    matrices = [count_matrix(found, by_type=by_type) for found in systems.values()]
    resampled = [pooled_scores(sums) for sums in resample(matrices, samples=samples, seed=seed)]
    scores = {name: boundary_scores(found, by_type=by_type) for name, found in systems.items()}
    first, first_f1 = resampled[0]["f1"], next(iter(scores.values())).f1
    return Selection(
        words=words,
        unit=unit,
        systems=[
            SystemScores(
                name=name,
                scores=scores[name],
                intervals={field: Interval.of(values[field]) for field in (*SHARES, "pieces_per_word")},
                f1_gain=scores[name].f1 - first_f1 if number else None,
                f1_gain_interval=Interval.of(values["f1"] - first) if number else None,
            )
            for number, (name, values) in enumerate(zip(systems, resampled, strict=True))
        ],
    )


def resample(matrices: Sequence[Array], *, samples: int, seed: int) -> list[Array]:
    """Sums over rows drawn with replacement, the same rows from every matrix: each [sample, column]."""
    generator = np.random.default_rng(seed)
    together = np.concatenate(matrices, axis=1)
    rows = len(together)
    sums = np.empty((samples, together.shape[1]))
    for number in range(samples):
        times_drawn = np.bincount(generator.integers(rows, size=rows), minlength=rows)
        sums[number] = times_drawn @ together
    return np.split(sums, len(matrices), axis=1)


def doubt(selections: Sequence[Selection]) -> str | None:
    """Why a difference between systems that were scored together may mean nothing; None if all is well."""
    over_tokens = next(one for one in selections if one.unit == "tokens")
    tokens = {one.name: one.scores.words for one in over_tokens.systems}
    if len(set(tokens.values())) == 1:
        return None
    counts = ", ".join(f"{count:,} in {name}" for name, count in tokens.items())
    return f"The same words of the gold occur {counts}: are these segmentations of one text?"


def morphology_tables(selections: Sequence[Selection]) -> list[Table]:
    """One table for each set of words and unit."""
    columns = ["system", "words", "precision", "recall", "F1", "morph F1", "exact", "pieces per word"]
    return [
        Table(
            f"Morphology: {selection.words}, over {selection.unit}",
            [*columns, "F1 gain"] if len(selection.systems) > 1 else columns,
            [_row(system, with_gain=len(selection.systems) > 1) for system in selection.systems],
            frozenset({"system"}),
            NOTE if selection is selections[-1] else "",
        )
        for selection in selections
    ]


def _row(system: SystemScores, *, with_gain: bool) -> list[str]:
    scores = system.scores
    cells = [f"{100 * vars(scores)[field]:.1f} {system.intervals[field]}" for field in SHARES]
    if scores.pieces_per_word == 1.0:
        cells[0] = "no cuts"  # precision is undefined
    row = [system.name, f"{scores.words:,}", *cells, f"{scores.pieces_per_word:.3f}"]
    gain = "" if system.f1_gain is None else f"{100 * system.f1_gain:+.1f} {system.f1_gain_interval}"
    return [*row, gain] if with_gain else row


def morphology_figures(selections: Sequence[Selection]) -> dict[str, Figure]:
    """Precision, recall and F1 over word types with intervals, a figure for each set, by file name."""
    fields = {"precision": "precision", "recall": "recall", "F1": "f1", "morph F1": "morph_f1"}
    names = {ALL: "morphology-all", SPLIT: "morphology-split", MATCHED: "morphology-matched"}
    figures = {}
    for selection in selections:
        if selection.unit == "types":
            heights, errors = {}, {}
            for system in selection.systems:
                heights[system.name] = [100 * vars(system.scores)[field] for field in fields.values()]
                ends = [system.intervals[field] for field in fields.values()]
                errors[system.name] = [(100 * one.low, 100 * one.high) for one in ends]
            xlabel = f"{selection.words} ({selection.systems[0].scores.words:,} types)"
            figure = draw_bars(list(fields), heights, xlabel=xlabel, ylabel="%", errors=errors)
            figures[names[selection.words]] = figure
    return figures
