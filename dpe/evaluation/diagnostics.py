"""Is a segmenter sure of its cuts, and rightly? Entropy by frequency band, calibration against gold.

Reads what `dpe segment --format jsonl` writes: one object a line with `words`, each of which has `word`
(with its marker), `boundary_probabilities` (of a boundary after each of its characters) and `entropy` (of
its cuts, in nats). What is evaluated are the words and cuts of `segmented_text`: the inner positions of runs
of letters and marks.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from dpe.errors import UserError
from dpe.evaluation.comparison import BAND_LABELS, band_label
from dpe.evaluation.morphology import gold_cuts, read_gold
from dpe.evaluation.plots import draw_bars, draw_reliability
from dpe.evaluation.segmented_text import Cuts, count_words, word_spans
from dpe.evaluation.tables import Table, percent
from dpe.text.corpus import read_lines

CALIBRATION_BINS = 10


class PosteriorWord(NamedTuple):
    """A token as the segmenter sees it, marker and punctuation included."""

    text: str
    boundaries: tuple[float, ...]
    entropy: float

    def evaluated(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Its runs of letters and marks, each with the probability of a cut at 1, 2, ..., length - 1."""
        for start, end in word_spans(self.text):
            yield self.text[start:end], self.boundaries[start : end - 1]


@dataclass(frozen=True)
class EntropyBand:
    """Entropy in nats over the tokens of words of similar frequency."""

    label: str
    tokens: int
    mean: float
    median: float
    certain: float  # share below 0.01


@dataclass(frozen=True)
class CalibrationBin:
    """Positions whose probability of a boundary is similar, and the share that is one in the gold."""

    lowest: float
    highest: float
    positions: int
    mean_probability: float
    gold_share: float


@dataclass(frozen=True)
class Diagnostics:
    """`calibration` and `calibration_error` are for the words of the gold; none without a gold."""

    tokens: int
    entropy: list[EntropyBand]
    calibration: list[CalibrationBin]
    calibration_error: float | None


def read_posteriors(path: Path) -> Iterator[list[PosteriorWord]]:
    """The words of each line with their boundary probabilities."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield _words_of(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}, line {number}: is not an object about the words of a line; "
                "write it by 'dpe segment --format jsonl'."
            ) from error


def _words_of(record: Mapping[str, Any]) -> list[PosteriorWord]:
    """The one place that knows the names of the keys. Lengths that do not agree are a ValueError."""
    words = [
        PosteriorWord(part["word"], tuple(part["boundary_probabilities"]), part["entropy"])
        for part in record["words"]
    ]
    if any(len(word.text) != len(word.boundaries) for word in words):
        raise ValueError("there must be one boundary probability after each character")
    return words


def diagnose_file(
    posteriors: Path, *, gold: Path | None = None, train_counts: Path | None = None
) -> Diagnostics:
    """As `diagnose`, for files; refuses those that leave nothing to show."""
    result = diagnose(
        read_posteriors(posteriors),
        gold=read_gold(gold) if gold else None,
        train_counts=count_words(train_counts) if train_counts else None,
    )
    if not (result.entropy or result.calibration):
        raise UserError(
            f"{posteriors}: has no word to tell of; give lines that 'dpe segment --format jsonl' wrote."
        )
    if gold and not result.calibration:
        raise UserError(
            f"{gold}: No word of the gold that has two letters or more is in {posteriors}; "
            "check that both are the same language."
        )
    return result


def diagnose(
    lines: Iterable[list[PosteriorWord]],
    *,
    gold: Mapping[str, Cuts] | None = None,
    train_counts: Mapping[str, int] | None = None,
) -> Diagnostics:
    """Entropy by frequency, of the training text or else of this one, and calibration against gold cuts.

    A token counts for the entropy when it has exactly one run of letters and marks, whose frequency it
    takes. Every token of a gold word counts for the calibration, so frequent words weigh more.
    """
    tokens: Counter[str] = Counter()
    entropies: defaultdict[str, list[float]] = defaultdict(list)
    positions = _GoldPositions(gold or {})
    for word in chain.from_iterable(lines):
        runs = list(word.evaluated())
        tokens.update(run for run, _ in runs)
        if len(runs) == 1:
            entropies[runs[0][0]].append(word.entropy)
        positions.add(runs)
    bins = calibrate(positions)
    return Diagnostics(
        tokens=tokens.total(),
        entropy=_entropy_bands(entropies, tokens if train_counts is None else train_counts),
        calibration=bins,
        calibration_error=expected_calibration_error(bins) if bins else None,
    )


class _GoldPositions:
    """Probability and truth of a boundary at each position inside the words of the gold."""

    def __init__(self, gold: Mapping[str, Cuts]) -> None:
        self._gold = gold
        self._probabilities, self._truths = array("d"), array("b")  # small, because there are many

    def add(self, runs: Iterable[tuple[str, Sequence[float]]]) -> None:
        for run, probabilities in runs:
            cuts = gold_cuts(run, self._gold)
            if cuts is not None:
                self._probabilities.extend(probabilities)
                self._truths.extend(at in cuts for at in range(1, len(probabilities) + 1))

    def __iter__(self) -> Iterator[tuple[float, bool]]:
        return zip(self._probabilities, map(bool, self._truths), strict=True)


def calibrate(positions: Iterable[tuple[float, bool]]) -> list[CalibrationBin]:
    """Positions (probability, whether true) in bins of equal width; a bin that is empty is left out."""
    bins, counts = CALIBRATION_BINS, Counter[int]()
    sums: defaultdict[int, float] = defaultdict(float)
    trues = Counter[int]()
    for probability, is_true in positions:
        number = min(int(probability * bins), bins - 1)
        counts[number] += 1
        sums[number] += probability
        trues[number] += is_true
    return [
        CalibrationBin(
            lowest=number / bins,
            highest=(number + 1) / bins,
            positions=count,
            mean_probability=sums[number] / count,
            gold_share=trues[number] / count,
        )
        for number, count in sorted(counts.items())
    ]


def expected_calibration_error(bins: Iterable[CalibrationBin]) -> float:
    """Mean over positions of the distance between their bin's mean probability and its gold share."""
    found = list(bins)
    total = sum(part.positions for part in found)
    return sum(part.positions * abs(part.mean_probability - part.gold_share) for part in found) / total


def _entropy_bands(entropies: Mapping[str, list[float]], frequency: Mapping[str, int]) -> list[EntropyBand]:
    values_of: defaultdict[str, list[float]] = defaultdict(list)
    for word, values in entropies.items():
        values_of[band_label(frequency.get(word, 0))] += values
    return [
        EntropyBand(
            label, len(values), fmean(values), median(values), fmean(value < 0.01 for value in values)
        )
        for label in BAND_LABELS
        if (values := values_of[label])
    ]


def diagnostics_tables(result: Diagnostics) -> list[Table]:
    """Entropy by band and the reliability table, as far as there is anything to show."""
    tables = [_entropy_table(result.entropy)] if result.entropy else []
    if result.calibration_error is not None:
        tables.append(_calibration_table(result.calibration, result.calibration_error))
    return tables


def _entropy_table(bands: Iterable[EntropyBand]) -> Table:
    columns = ["frequency", "tokens", "mean entropy", "median", "below 0.01"]
    rows = [
        [band.label, f"{band.tokens:,}", f"{band.mean:.4f}", f"{band.median:.4f}", percent(band.certain)]
        for band in bands
    ]
    title = "Entropy of a word's cuts by its frequency, in nats"
    return Table(title, columns, rows, frozenset({"frequency"}))


def _calibration_table(bins: Iterable[CalibrationBin], error: float) -> Table:
    columns = ["probability", "positions", "mean probability", "gold boundaries"]
    rows = [
        [
            f"{part.lowest:.1f}-{part.highest:.1f}",
            f"{part.positions:,}",
            f"{part.mean_probability:.4f}",
            f"{part.gold_share:.4f}",
        ]
        for part in bins
    ]
    title = "Probability of a boundary against the gold"
    note = f"Expected calibration error: {error:.4f}"
    return Table(title, columns, rows, frozenset({"probability"}), note)


def draw_diagnostics(result: Diagnostics, directory: Path) -> list[Path]:
    """Entropy by band and the reliability diagram, each as PNG and SVG."""
    pictures = []
    if result.entropy:
        pictures += draw_bars(
            [f"{band.label}\n{band.tokens:,}" for band in result.entropy],
            {
                "mean": [band.mean for band in result.entropy],
                "median": [band.median for band in result.entropy],
            },
            directory / "entropy",
            xlabel="frequency of the word, and number of tokens",
            ylabel="entropy of its cuts, nats",
        )
    if result.calibration:
        points = [(part.mean_probability, part.gold_share, part.positions) for part in result.calibration]
        pictures += draw_reliability(points, directory / "calibration")
    return pictures
