"""Figures by matplotlib, in colours that colour-blind people can tell apart (Okabe and Ito's).

A function takes numbers and returns a figure: `save_figures` writes figures as PNG and SVG files, and
`to_svg` gives the SVG as a string, for a page.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpe.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"  # with the colours, so that lines are told apart in print too


@dataclass(frozen=True)
class TrainingCurve:
    """A measure over the steps. Curves of one `group` have one colour; `rough` ones are dashed and thin."""

    name: str
    points: Sequence[tuple[float, float]]
    group: int
    rough: bool = False


def draw_training_curve(records: Sequence[Mapping[str, Any]], picture: Path) -> None:
    """Write a PNG: bits per character (or token) against the step, in training and on dev."""
    figure, axes = _new_figure(xlabel="step", ylabel="bits")
    for key, colour, marker in (("train_bits", BLUE, "."), ("dev_bits", ORANGE, "o")):
        points = [(record["step"], record[key]) for record in records if record.get(key) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, label=key.replace("_", ", "))
    axes.legend()
    axes.grid(alpha=0.3)
    with whole_file(picture) as file:
        figure.savefig(file, format="png", dpi=150)


def draw_training_curves(curves: Sequence[TrainingCurve], *, ylabel: str) -> Figure:
    """Several trainings; curves of one name are in the legend once."""
    figure, axes = _new_figure(xlabel="step", ylabel=ylabel, size=(6.4, 3.6))
    for curve in curves:
        style = {"linestyle": "--", "linewidth": 1.0} if curve.rough else {"marker": MARKERS[curve.group % 7]}
        steps, values = zip(*curve.points, strict=True)
        axes.plot(steps, values, color=COLOURS[curve.group % 7], label=curve.name, markersize=4, **style)
    axes.locator_params(axis="x", integer=True)
    return _with_legend(figure, axes, columns=2)


def draw_bars(
    labels: Sequence[str],
    heights: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    errors: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> Figure:
    """Groups of bars, one group per label, one bar in each per series; `errors` are lower and upper ends."""
    figure, axes = _new_figure(xlabel=xlabel, ylabel=ylabel)
    width = 0.8 / len(heights)
    for number, (name, values) in enumerate(heights.items()):
        places = [at + (number - (len(heights) - 1) / 2) * width for at in range(len(labels))]
        axes.bar(places, values, width * 0.92, color=COLOURS[number % len(COLOURS)], label=name)
        if errors is not None:
            ends = zip(values, errors[name], strict=True)
            reach = [(max(value - low, 0.0), max(high - value, 0.0)) for value, (low, high) in ends]
            axes.errorbar(
                places, values, yerr=list(zip(*reach, strict=True)), fmt="none", ecolor="black", capsize=2
            )
    axes.set_xticks(range(len(labels)), labels)
    axes.set_axisbelow(True)
    return _with_legend(figure, axes, columns=len(heights), grid="y")


def draw_lines(
    labels: Sequence[str], heights: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str
) -> Figure:
    """One line with marked points per series over named places, as BLEU over bins of length."""
    figure, axes = _new_figure(xlabel=xlabel, ylabel=ylabel)
    for number, (name, values) in enumerate(heights.items()):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        axes.plot(range(len(labels)), values, color=colour, marker=marker, label=name)
    axes.set_xticks(range(len(labels)), labels)
    return _with_legend(figure, axes, columns=len(heights))


def draw_histograms(histograms: Mapping[str, Mapping[int, int]], *, xlabel: str, ylabel: str) -> Figure:
    """Outlines of several histograms of whole numbers, as shares, up to where 99.9 % of all lie."""
    figure, axes = _new_figure(xlabel=xlabel, ylabel=ylabel)
    last = max(_quantile(histogram, 0.999) for histogram in histograms.values())
    for number, (name, histogram) in enumerate(histograms.items()):
        total = max(sum(histogram.values()), 1)
        shares = [histogram.get(value, 0) / total for value in range(last + 1)]
        edges = [value - 0.5 for value in range(last + 2)]
        colour, style = COLOURS[number % len(COLOURS)], ("-", "--", ":", "-.")[number % 4]
        axes.stairs(shares, edges, color=colour, linestyle=style, linewidth=1.8, label=name)
    axes.set_ylim(bottom=0)
    return _with_legend(figure, axes, columns=len(histograms))


def draw_reliability(
    points: Sequence[tuple[float, float, int]],
    *,
    ylabel: str = "share that is a gold boundary",
    label: str = "this segmenter",
) -> Figure:
    """Calibration: (mean probability, share that is true, count) of each bin against the diagonal."""
    from matplotlib.patheffects import withStroke  # noqa: PLC0415

    figure, axes = _new_figure(xlabel="probability of a boundary", ylabel=ylabel, size=(5.0, 5.0))
    axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="perfectly calibrated")
    probabilities, shares, _ = zip(*points, strict=True)
    axes.plot(probabilities, shares, color=BLUE, marker="o", label=label)
    outline = [withStroke(linewidth=3, foreground="white")]  # over the line, so that numbers can be read
    for x, y, count in points:
        axes.annotate(
            f"{count:,}", (x, y), xytext=(0, 7), textcoords="offset points",
            fontsize=7, ha="center", path_effects=outline,
        )  # fmt: skip
    axes.set(xlim=(-0.08, 1.08), ylim=(-0.08, 1.08), aspect="equal")
    return _with_legend(figure, axes, columns=2)


def save_figures(figures: Mapping[str, Figure], directory: Path) -> list[Path]:
    """Write each figure as NAME.png and NAME.svg, and return the paths."""
    pictures = []
    for name, figure in figures.items():
        for suffix, metadata in (("png", None), ("svg", {"Date": None})):
            pictures.append(directory / f"{name}.{suffix}")
            with whole_file(pictures[-1]) as file:
                figure.savefig(file, format=suffix, dpi=150, metadata=metadata)
    return pictures


def to_svg(figure: Figure) -> str:
    """A figure as SVG; equal figures give equal strings."""
    content = io.StringIO()
    figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def _new_figure(*, xlabel: str, ylabel: str, size: tuple[float, float] = (6.4, 4.0)) -> tuple[Figure, Axes]:
    import matplotlib as mpl  # noqa: PLC0415  (slow to import, and needed at the end only)
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "dpe"  # equal figures are equal files
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot(xlabel=xlabel, ylabel=ylabel)


def _with_legend(figure: Figure, axes: Axes, *, columns: int, grid: Literal["both", "y"] = "both") -> Figure:
    """A legend above the axes, where it hides nothing, each name once; long names one below the other."""
    axes.grid(axis=grid, alpha=0.3)
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    columns = columns if sum(len(name) + 6 for name in once) < 70 else 1
    figure.legend(list(once.values()), list(once), loc="outside upper center", ncols=columns, frameon=False)
    return figure


def _quantile(histogram: Mapping[int, int], share: float) -> int:
    """The smallest value that this share of a histogram does not exceed."""
    wanted, reached = share * sum(histogram.values()), 0
    for value in sorted(histogram):
        reached += histogram[value]
        if reached >= wanted:
            return value
    return 0
