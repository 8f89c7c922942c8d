"""How much of a segmenter is in the model distilled from it: words cut alike, boundary probabilities, gold.

Words and cuts are those of `segmented_text`, as in `comparison`. A rule that reads words alone cuts a word
the same way wherever it stands. At best it cuts each as the segmenter does most often: the *ceiling*, a share
of tokens. Probabilities are those of a boundary at every position inside a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpe.evaluation import html_page
from dpe.evaluation.comparison import Comparison, PairCounts, compare, top_table
from dpe.evaluation.diagnostics import calibrate, expected_calibration_error
from dpe.evaluation.morphology import (
    Selection,
    evaluate_systems,
    morphology_figures,
    morphology_tables,
    tally,
)
from dpe.evaluation.plots import draw_reliability
from dpe.evaluation.segmented_text import Cuts, word_spans, words_with_cuts
from dpe.evaluation.tables import Table, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEGMENTER, DISTILLED = "segmenter", "distilled"


@dataclass(frozen=True)
class AgreementBin:
    """Positions at which the distilled model's probability of a boundary is similar."""

    lowest: float
    highest: float
    positions: int
    distilled: float  # mean probability
    segmenter: float  # mean probability


@dataclass(frozen=True)
class BoundaryAgreement:
    """The posterior probabilities of boundaries of both, which is what sampling at alpha = 1 draws from."""

    positions: int
    mean_difference: float  # absolute
    correlation: float | None  # None where one of both is always the same
    calibration_error: float  # mean over positions of the distance of their bin's means
    bins: list[AgreementBin]


@dataclass(frozen=True)
class Agreement:
    """All that the report of a distillation says."""

    lines: int
    comparison: Comparison  # a: the segmenter, b: the distilled model
    ceiling: float
    boundaries: BoundaryAgreement
    lines_a_second: dict[str, float]
    morphology: list[Selection]  # empty without a gold

    @property
    def tokens_alike(self) -> float:
        return 1 - self.comparison.different_tokens / max(self.comparison.tokens, 1)

    @property
    def types_alike(self) -> float:
        return 1 - self.comparison.different_types / max(self.comparison.types, 1)


def measure_agreement(
    systems: Mapping[str, Sequence[Sequence[str]]],
    probabilities: Iterable[tuple[str, Sequence[float], Sequence[float]]],
    *,
    lines_a_second: dict[str, float],
    gold: Mapping[str, Cuts] | None = None,
) -> Agreement:
    """From the pieces of each line by `SEGMENTER`, `DISTILLED`, and others that are only held against a gold.

    Probabilities come token by token: the word with its marker, and the probability of a boundary after each
    of its characters by the segmenter and by the distilled model.
    """
    sides = (map(list, map(words_with_cuts, systems[name])) for name in (SEGMENTER, DISTILLED))
    counts = PairCounts(zip(*sides, strict=True))
    tokens = sum(ways.total() for ways in counts.a.values())
    most = sum(max(ways.values()) for ways in counts.a.values())
    return Agreement(
        lines=len(systems[SEGMENTER]),
        comparison=compare(counts),
        ceiling=most / max(tokens, 1),
        boundaries=compare_boundaries(probabilities),
        lines_a_second=lines_a_second,
        morphology=[]
        if gold is None
        else evaluate_systems({name: tally(lines, gold) for name, lines in systems.items()}),
    )


def compare_boundaries(
    probabilities: Iterable[tuple[str, Sequence[float], Sequence[float]]],
) -> BoundaryAgreement:
    """Over the positions inside the runs of letters and marks of each token."""
    of_segmenter: list[float] = []
    of_distilled: list[float] = []
    for word, segmenter, distilled in probabilities:
        for start, end in word_spans(word):
            of_segmenter += segmenter[start : end - 1]
            of_distilled += distilled[start : end - 1]
    theirs, ours = np.array(of_segmenter), np.array(of_distilled)
    bins = calibrate(zip(of_distilled, of_segmenter, strict=True))
    return BoundaryAgreement(
        positions=len(ours),
        mean_difference=float(np.abs(theirs - ours).mean()) if len(ours) else 0.0,
        correlation=_correlation(theirs, ours),
        calibration_error=expected_calibration_error(bins) if bins else 0.0,
        bins=[
            AgreementBin(one.lowest, one.highest, one.positions, one.mean_probability, one.gold_share)
            for one in bins
        ],
    )


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    if len(one) < 2 or not (one.std() and other.std()):
        return None
    return float(np.corrcoef(one, other)[0, 1])


def agreement_tables(result: Agreement) -> list[Table]:
    """What is cut alike, boundary probabilities, gold boundaries, and words that are cut differently."""
    return [
        _summary_table(result),
        _boundary_table(result.boundaries),
        *morphology_tables(result.morphology),
        *([top_table(result.comparison, SEGMENTER, DISTILLED)] if result.comparison.top else []),
    ]


def agreement_figures(result: Agreement) -> dict[str, Figure]:
    """The probabilities of boundaries against each other, and gold boundaries, by file name."""
    figures = dict(list(morphology_figures(result.morphology).items())[:1])
    if points := [(one.distilled, one.segmenter, one.positions) for one in result.boundaries.bins]:
        figures["boundaries"] = draw_reliability(points, ylabel="by the segmenter", label="distilled")
    return figures


def agreement_sections(result: Agreement) -> list[html_page.Section]:
    """The report's page."""
    captions = {
        "boundaries": "The probability of a boundary at the positions inside words, by the distilled model, "
        "which reads the word alone, and by the segmenter, with the number of positions.",
        "morphology-all": "Boundaries against gold morphemes, with 95 % intervals.",
    }
    drawn = [
        html_page.figure(drawing, name=name, caption=captions[name])
        for name, drawing in agreement_figures(result).items()
    ]
    summary, *others = agreement_tables(result)
    return [
        html_page.Section("What is kept", [html_page.block("tables", [summary])]),
        html_page.Section("Details", [*drawn, html_page.block("tables", others)]),
    ]


def _summary_table(result: Agreement) -> Table:
    comparison, speeds = result.comparison, result.lines_a_second
    rows = [
        ["lines", f"{result.lines:,}"],
        ["tokens cut alike", f"{percent(result.tokens_alike)} of {comparison.tokens:,}"],
        ["  at best, if every word is always cut alike", percent(result.ceiling)],
        ["word types cut alike", f"{percent(result.types_alike)} of {comparison.types:,}"],
        ["pieces per word, segmenter", f"{comparison.pieces_per_word_a:.3f}"],
        ["pieces per word, distilled", f"{comparison.pieces_per_word_b:.3f}"],
        *([f"lines a second, {name}", f"{speed:,.0f}"] for name, speed in speeds.items()),
    ]
    return Table("The segmenter and the distilled model", ["", "value"], rows, frozenset({""}))


def _boundary_table(boundaries: BoundaryAgreement) -> Table:
    rows = [
        [
            f"{one.lowest:.1f}-{one.highest:.1f}",
            f"{one.positions:,}",
            f"{one.distilled:.4f}",
            f"{one.segmenter:.4f}",
        ]
        for one in boundaries.bins
    ]
    correlation = "" if boundaries.correlation is None else f", correlation {boundaries.correlation:.4f}"
    note = (
        f"{boundaries.positions:,} positions: mean absolute difference {boundaries.mean_difference:.4f}"
        f"{correlation}, calibration error {boundaries.calibration_error:.4f}."
    )
    columns = ["probability", "positions", "distilled", "segmenter"]
    return Table("Mean probability of a boundary", columns, rows, frozenset({"probability"}), note)
