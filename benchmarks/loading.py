"""Loading the lines of a training: lines a second by a thread of the training, and by worker processes.

    python -m benchmarks.loading [--lines 60000] [--workers 2]

The lines are read, their sources segmented by BPE dropout, and put into batches, as for a segmenter. The time
runs from the first fifth of the lines to the last, so that starting the workers is not in it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from itertools import cycle, islice

from benchmarks.record import record
from benchmarks.subjects import text, vocabulary
from dpe.model.batch_order import epoch_windows
from dpe.pool import in_order
from dpe.segmenter.settings import SegmenterSettings
from dpe.segmenter.training import SegmenterLines
from dpe.text.segmenters import source_segmenter
from dpe.text.text_file import ParallelText

SIZE, DROPOUT, BUDGET, WINDOW, ROUNDS = 8_000, 0.05, (8_000, 8_000), 2_000, 3


def lines_of_text(count: int) -> SegmenterLines:
    """So many lines; the text is repeated as often as that takes."""
    sides = [list(islice(cycle(lines), count)) for lines in (text().sources, text().targets)]
    pieces = vocabulary(SIZE)
    cut_source = source_segmenter(pieces, DROPOUT)
    return SegmenterLines(ParallelText.open(*sides), pieces, cut_source, SegmenterSettings())


def speed(lines: SegmenterLines, workers: int) -> float:
    """Lines a second."""
    count, load = len(lines.text), partial(in_order, partial(partial, lines), workers=workers)
    windows = epoch_windows(count, load, lambda e: e.size, budget=BUDGET, seed=1, epoch=0, window=WINDOW)
    first = count // WINDOW // 5
    for _ in islice(windows, first):
        pass
    begin = time.perf_counter()
    for _ in windows:
        pass
    return (count - first * WINDOW) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description="Lines a second that a training can load.")
    parser.add_argument("--lines", type=int, default=60_000)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    lines = lines_of_text(arguments.lines)
    rounds = [(speed(lines, 1), speed(lines, arguments.workers)) for _ in range(ROUNDS)]  # in turns
    one, many = (statistics.median(found) for found in zip(*rounds, strict=True))
    print(f"{text().name}, {arguments.lines:,} lines, BPE dropout {DROPOUT}, median of {ROUNDS} rounds")
    print(f"the training itself: {one:,.0f} lines a second")
    print(f"{arguments.workers} workers: {many:,.0f} lines a second, {many / one:.2f} times as many")
    about = {"text": text().name, "lines": arguments.lines, "vocabulary": SIZE, "dropout": DROPOUT}
    about |= {"workers": arguments.workers, "rounds": ROUNDS}
    numbers = {
        "one_lines_a_second": round(one),
        "workers_lines_a_second": round(many),
        "ratio": round(many / one, 3),
    }
    print(record("loading", about | numbers))


if __name__ == "__main__":
    main()
