"""Is a segmenter sure of its segmentations, and rightly? Entropy by frequency band, calibration against gold.

Reads the output of `dpe segment --format jsonl`: one object a line with `words`, each of which has `word`
(with its marker), `boundary_probabilities` (of a boundary after each of its characters) and `entropy` (of
its segmentations, in nats). The words and cuts evaluated are those of `segmented_text`: the inner positions
of runs of letters and marks.
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
from typing import TYPE_CHECKING, NamedTuple

from dpe.errors import UserError
from dpe.evaluation.comparison import BANDS, band_label
from dpe.evaluation.morphology import gold_cuts, read_gold
from dpe.evaluation.plots import draw_bars, draw_reliability
from dpe.evaluation.segmented_text import Cuts, count_words, word_spans
from dpe.evaluation.tables import Table, percent
from dpe.text.corpus import read_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    """Positions with a similar probability of a boundary, and the share that is a gold boundary."""

    lowest: float
    highest: float
    positions: int
    mean_probability: float
    gold_share: float


@dataclass(frozen=True)
class Diagnostics:
    """`calibration` and `calibration_error` are for the words of the gold; empty and None without a gold."""

    tokens: int
    entropy: list[EntropyBand]
    calibration: list[CalibrationBin]
    calibration_error: float | None


def read_posteriors(path: Path) -> Iterator[list[PosteriorWord]]:
    """The words of each line with their boundary probabilities."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            words = [
                PosteriorWord(part["word"], tuple(part["boundary_probabilities"]), part["entropy"])
                for part in json.loads(line)["words"]
            ]
            if any(len(word.text) != len(word.boundaries) for word in words):
                raise ValueError("there must be one boundary probability after each character")
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path}, line {number}: Expected a JSON object with the words of a line; "
                "make the file with 'dpe segment --format jsonl'."
            ) from error
        yield words


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
        raise UserError(f"{posteriors} has no words; make the file with 'dpe segment --format jsonl'.")
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
    probabilities, truths = array("d"), array("b")  # of each position in gold words; small: there are many
    for word in chain.from_iterable(lines):
        runs = list(word.evaluated())
        tokens.update(run for run, _ in runs)
        if len(runs) == 1:
            entropies[runs[0][0]].append(word.entropy)
        for run, boundaries in runs:
            if (cuts := gold_cuts(run, gold or {})) is not None:
                probabilities.extend(boundaries)
                truths.extend(at in cuts for at in range(1, len(run)))
    bins = calibrate(zip(probabilities, map(bool, truths), strict=True))
    return Diagnostics(
        tokens=tokens.total(),
        entropy=_entropy_bands(entropies, tokens if train_counts is None else train_counts),
        calibration=bins,
        calibration_error=expected_calibration_error(bins) if bins else None,
    )


def calibrate(positions: Iterable[tuple[float, float]]) -> list[CalibrationBin]:
    """Positions (probability, 1 if true) in bins of equal width; empty bins are left out.

    The truth may be a probability too.
    """
    bins = CALIBRATION_BINS
    counts, trues, sums = Counter[int](), defaultdict[int, float](float), defaultdict[int, float](float)
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


def expected_calibration_error(bins: Sequence[CalibrationBin]) -> float:
    """Mean over positions of the distance between their bin's mean probability and its gold share."""
    total = sum(part.positions for part in bins)
    return sum(part.positions * abs(part.mean_probability - part.gold_share) for part in bins) / total


def _entropy_bands(entropies: Mapping[str, list[float]], frequency: Mapping[str, int]) -> list[EntropyBand]:
    values_of: defaultdict[str, list[float]] = defaultdict(list)
    for word, values in entropies.items():
        values_of[band_label(frequency.get(word, 0))] += values
    return [
        EntropyBand(
            label, len(values), fmean(values), median(values), fmean(value < 0.01 for value in values)
        )
        for label in BANDS
        if (values := values_of[label])
    ]


def diagnostics_tables(result: Diagnostics) -> list[Table]:
    """Entropy by band and the reliability table, as far as there is anything to show."""
    entropy = Table(
        "Entropy of a word's cuts by its frequency, in nats",
        ["frequency", "tokens", "mean entropy", "median", "below 0.01"],
        [
            [band.label, f"{band.tokens:,}", f"{band.mean:.4f}", f"{band.median:.4f}", percent(band.certain)]
            for band in result.entropy
        ],
        frozenset({"frequency"}),
    )
    calibration = Table(
        "Probability of a boundary against the gold",
        ["probability", "positions", "mean probability", "gold boundaries"],
        [
            [
                f"{part.lowest:.1f}-{part.highest:.1f}",
                f"{part.positions:,}",
                f"{part.mean_probability:.4f}",
                f"{part.gold_share:.4f}",
            ]
            for part in result.calibration
        ],
        frozenset({"probability"}),
        f"Expected calibration error: {result.calibration_error or 0:.4f}",
    )
    return [table for table in (entropy, calibration) if table.rows]


def diagnostics_figures(result: Diagnostics) -> dict[str, Figure]:
    """Entropy by band and the reliability diagram, by file name."""
    figures = {}
    if result.entropy:
        figures["entropy"] = draw_bars(
            [f"{band.label}\n{band.tokens:,}" for band in result.entropy],
            {
                "mean": [band.mean for band in result.entropy],
                "median": [band.median for band in result.entropy],
            },
            xlabel="frequency of the word, and number of tokens",
            ylabel="entropy of its cuts, nats",
        )
    if result.calibration:
        points = [(part.mean_probability, part.gold_share, part.positions) for part in result.calibration]
        figures["calibration"] = draw_reliability(points)
    return figures
