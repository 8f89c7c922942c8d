"""Several systems against one gold, side by side, as `dpe morphology` shows them.

Only words that occur in every system's text are scored, so that all answer the same question. They are
scored three times: all of them; those that the gold splits; and, for *matched fertility*, those that all
systems cut into equally many pieces (on average over the word's tokens). On the last the systems differ in
where they cut and not in how often, so recall cannot be bought by cutting more.

Intervals are 95 % percentile bootstrap intervals over word types: a resampled type brings all its tokens.
The systems share the resamples, so the interval of a difference is paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.evaluation.morphology import (
    BoundaryScores,
    WordTally,
    boundary_scores,
    count_matrix,
    pooled_scores,
    read_gold,
    tally,
)
from dpe.evaluation.plots import draw_bars
from dpe.evaluation.segmented_text import read_pieces
from dpe.evaluation.tables import Table, short_names

BOOTSTRAP_SAMPLES = 1000
SEED = 1
WITH_INTERVALS = ("precision", "recall", "f1", "morph_f1", "exact_match", "pieces_per_word")
ALL, SPLIT, MATCHED = "all words", "words that the gold splits", "words that all cut into equally many pieces"
NOTE = (
    "Brackets: 95 % bootstrap intervals over word types. Recall alone rewards cutting everywhere. "
    "With a gold of derivations only, recall alone has a meaning."
)


@dataclass(frozen=True)
class Interval:
    """The middle 95 % of the bootstrap."""

    low: float
    high: float


@dataclass(frozen=True)
class SystemScores:
    """One system on one set of words. `f1_gain` is its F1 minus the first system's; none for the first."""

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
    try:
        return evaluate_systems(tallies, samples=samples, seed=seed)
    except UserError as error:
        raise UserError(f"{gold}: {error}") from error


def doubt(selections: Sequence[Selection]) -> str | None:
    """What is odd about systems that were scored together: then their difference says nothing."""
    over_tokens = next(one for one in selections if one.unit == "tokens")
    tokens = {one.name: one.scores.words for one in over_tokens.systems}
    if len(set(tokens.values())) == 1:
        return None
    counts = ", ".join(f"{count:,} in {name}" for name, count in tokens.items())
    return f"the same words of the gold occur {counts}: are these cuts of one text?"


def evaluate_systems(
    tallies: Mapping[str, Sequence[WordTally]], *, samples: int = BOOTSTRAP_SAMPLES, seed: int = SEED
) -> list[Selection]:
    """Score systems, given as what `tally` counted of each, on the words that they share."""
    systems = {name: {word.word: word for word in found} for name, found in tallies.items()}
    shared = sorted(set.intersection(*(set(words) for words in systems.values())))
    if not shared:
        raise UserError(
            "No word of the gold is in the segmented text; check that both are the same language."
        )
    aligned = {name: [words[word] for word in shared] for name, words in systems.items()}
    rows = list(zip(*aligned.values(), strict=True))
    chosen = {ALL: list(range(len(shared)))}
    split = [n for n, row in enumerate(rows) if row[0].boundaries]
    if len(split) < len(shared):
        chosen[SPLIT] = split
    if len(systems) > 1:
        chosen[MATCHED] = [n for n, row in enumerate(rows) if _is_matched(row)]
    return [
        _select(
            words, unit, {name: [found[n] for n in numbers] for name, found in aligned.items()}, samples, seed
        )
        for words, numbers in chosen.items()
        if numbers
        for unit in ("types", "tokens")
    ]


def _is_matched(row: Sequence[WordTally]) -> bool:
    """Whether all systems make equally many cuts per token of this word."""
    return len({Fraction(word.cuts, word.tokens) for word in row}) == 1


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
                intervals={field: _interval(values[field]) for field in WITH_INTERVALS},
                f1_gain=scores[name].f1 - first_f1 if number else None,
                f1_gain_interval=_interval(values["f1"] - first) if number else None,
            )
            for number, (name, values) in enumerate(zip(systems, resampled, strict=True))
        ],
    )


def resample(
    matrices: Sequence[NDArray[np.float64]], *, samples: int, seed: int
) -> list[NDArray[np.float64]]:
    """Sums over rows drawn with replacement, the same rows from every matrix: each [sample, column]."""
    generator = np.random.default_rng(seed)
    together = np.concatenate(matrices, axis=1)
    rows = len(together)
    sums = np.empty((samples, together.shape[1]))
    for number in range(samples):
        times_drawn = np.bincount(generator.integers(rows, size=rows), minlength=rows)
        sums[number] = times_drawn @ together
    return np.split(sums, len(matrices), axis=1)


def _interval(values: NDArray[np.float64]) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return Interval(float(low), float(high))


def morphology_tables(selections: Sequence[Selection]) -> list[Table]:
    """One table for each set of words and unit."""
    columns = [
        "system",
        "words",
        "precision",
        "recall",
        "F1",
        "morph F1",
        "exact",
        "pieces per word",
        "F1 gain",
    ]
    return [
        Table(
            f"Morphology: {selection.words}, over {selection.unit}",
            columns if len(selection.systems) > 1 else columns[:-1],
            [_row(system)[: len(columns) - (len(selection.systems) == 1)] for system in selection.systems],
            frozenset({"system"}),
            NOTE if selection is selections[-1] else "",
        )
        for selection in selections
    ]


def _row(system: SystemScores) -> list[str]:
    scores = system.scores
    shares = {
        "precision": scores.precision,
        "recall": scores.recall,
        "f1": scores.f1,
        "morph_f1": scores.morph_f1,
        "exact_match": scores.exact_match,
    }
    cells = [f"{100 * share:.1f} {_range(system.intervals[field])}" for field, share in shares.items()]
    if scores.pieces_per_word == 1.0:
        cells[0] = "no cuts"  # of nothing, no share is right
    row = [system.name, f"{scores.words:,}", *cells, f"{scores.pieces_per_word:.3f}"]
    if system.f1_gain is None or system.f1_gain_interval is None:
        return [*row, ""]
    return [*row, f"{100 * system.f1_gain:+.1f} {_range(system.f1_gain_interval)}"]


def _range(interval: Interval) -> str:
    return f"[{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def draw_morphology(selections: Sequence[Selection], directory: Path) -> list[Path]:
    """Precision, recall and F1 of each system over word types, with intervals, a figure for each set."""
    fields = {"precision": "precision", "recall": "recall", "F1": "f1", "morph F1": "morph_f1"}
    names = {ALL: "morphology-all", SPLIT: "morphology-split", MATCHED: "morphology-matched"}
    pictures = []
    for selection in selections:
        if selection.unit == "types":
            shares = [vars(system.scores) for system in selection.systems]
            pictures += draw_bars(
                list(fields),
                {
                    s.name: [100 * x[f] for f in fields.values()]
                    for s, x in zip(selection.systems, shares, strict=True)
                },
                directory / names[selection.words],
                xlabel=f"{selection.words} ({selection.systems[0].scores.words:,} types)",
                ylabel="%",
                errors={
                    s.name: [_ends(s.intervals[field]) for field in fields.values()]
                    for s in selection.systems
                },
            )
    return pictures


def _ends(interval: Interval) -> tuple[float, float]:
    return 100 * interval.low, 100 * interval.high
