"""How sure a segmenter is of its cuts, as `dpe diagnose` shows it: tables, figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpe.evaluation.diagnostics import CalibrationBin, Diagnostics, EntropyBand
from dpe.evaluation.plots import draw_bars, draw_reliability
from dpe.evaluation.tables import Table, percent


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
