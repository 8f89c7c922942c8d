"""Segmenting on Ray: against processes on the same two cores, its costs, and larger clusters by simulation.

    python -m benchmarks.ray [--lines N] [overhead] [costs] [simulate]

`overhead` and `costs` are measured. `simulate` computes from them how long 100 million pairs would take on
clusters that we do not have, and writes docs/scaling.svg and the table of docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import torch

from benchmarks.record import RESULTS, record
from benchmarks.segmenting import segmenter_directory
from benchmarks.subjects import text
from dpe.choices import RAY_HERE
from dpe.corpus_run.cluster import Cluster, connected
from dpe.corpus_run.lines import LineCutter
from dpe.corpus_run.run import Answerer, Answers, CorpusRun, CorpusText, NumberedPairs
from dpe.evaluation.plots import draw_lines, to_svg
from dpe.files import whole_text_file
from dpe.pool import in_order
from dpe.progress import QUIET, Progress
from dpe.segmenter.segmenter import BATCH_CHARACTERS
from dpe.segmenter.settings import SegmentSettings
from dpe.text.corpus import Pair, write_lines

ROUNDS, WORKERS = 3, 2
PAGE = RESULTS.parents[1] / "docs" / "scale.md"
PAIRS, LOSSES_AN_HOUR, SIMULATED = 100_000_000, 1.0, (8, 64, 256, 1024)
AWAY = 300.0  # seconds until a lost machine is replaced: assumed
AHEAD = 16  # batches for each worker that the driver reads ahead, as in_order does


class Echo:
    """Answers at once with the target: what is left is the driver's work and Ray's."""

    def __init__(self, *, device: str, batch_characters: int) -> None:
        pass

    def __call__(self, lines: NumberedPairs) -> Answers:
        return Answers([pair.target for pair in lines.pairs], {})


class KilledOnce:
    """Segments; is killed at its third batch if that has not happened yet."""

    def __init__(self, directory: Path, mark: Path) -> None:
        self._cut, self._mark, self._batches = cutter(directory), mark, 0

    def __call__(self, lines: NumberedPairs) -> Answers:
        self._batches += 1
        if self._batches == 3 and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._cut(lines)


def cutter(directory: Path) -> LineCutter:
    settings = SegmentSettings()
    return LineCutter(directory, settings, device="cpu", batch_characters=BATCH_CHARACTERS)


def pairs(lines: int) -> Iterator[Pair]:
    """The first lines of the text, and from its beginning again where it has fewer."""
    rows = zip(text().sources, text().targets, strict=True)
    return (Pair(*row) for row in islice(cycle(rows), lines))


def run_seconds(place: Path, answerer: Callable[..., Answerer], cluster: Cluster | None) -> float:
    """Of a whole run over the text of a directory, with everything but connecting to the cluster."""
    run = CorpusRun(
        answerer,
        device=torch.device("cpu"),
        workers=WORKERS,
        batch_characters=BATCH_CHARACTERS,
        progress=Progress(QUIET),
        cluster=cluster,
    )
    begin = time.perf_counter()
    out = place / ("ray" if cluster else "processes")
    run.write(CorpusText(place / "source", place / "target", has_source=True), out, {}, force=True)
    return time.perf_counter() - begin


def write_text(place: Path, lines: int) -> None:
    write_lines(place / "source", (str(pair.source) for pair in pairs(lines)))
    write_lines(place / "target", (pair.target for pair in pairs(lines)))


def measure_overhead(lines: int) -> dict[str, Any]:
    """Whole runs of two workers over the same text, which take turns."""
    seconds: dict[str, list[float]] = {"processes": [], "ray": []}
    connecting = []
    answerer = partial(LineCutter, segmenter_directory(), SegmentSettings())
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_text(place, lines)
        for _ in range(ROUNDS):
            seconds["processes"].append(run_seconds(place, answerer, None))
            begin = time.perf_counter()
            with connected(RAY_HERE, cpus=WORKERS, progress=Progress(QUIET)) as cluster:
                connecting.append(time.perf_counter() - begin)
                seconds["ray"].append(run_seconds(place, answerer, cluster))
            assert (place / "ray").read_bytes() == (place / "processes").read_bytes()
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    ratios = [ray / pool for pool, ray in zip(*seconds.values(), strict=True)]
    return {
        "lines": lines,
        "processes, seconds": middle["processes"],
        "Ray, seconds": middle["ray"],
        "Ray relative to processes": statistics.median(ratios),
        "connecting, seconds": statistics.median(connecting),
        "lines a second of a worker": lines / middle["ray"] / WORKERS,
    }


def measure_costs(lines: int) -> dict[str, Any]:
    """What a simulation needs to know: a worker's batches, the driver's work, starts and losses."""
    rows = list(pairs(lines))
    run = CorpusRun(Echo, torch.device("cpu"), WORKERS, BATCH_CHARACTERS, Progress(QUIET))
    places = run._batches(rows)
    tasks = [NumberedPairs(one, [rows[place] for place in one]) for one in places]
    random.Random(1).shuffle(tasks)
    few = tasks[:60]
    cut, clock = cutter(segmenter_directory()), [time.perf_counter()]
    for task in few:
        cut(task)
        clock.append(time.perf_counter())
    took = [after - before for before, after in pairwise(clock)]
    numbers: dict[str, Any] = {
        "lines": lines,
        "lines a batch": lines / len(tasks),
        "seconds a batch": statistics.mean(took),
        "variation of the batches": statistics.stdev(took) / statistics.mean(took),
    }
    with connected(RAY_HERE, cpus=WORKERS, progress=Progress(QUIET)) as cluster:
        assert cluster is not None
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            write_text(place, lines)
            numbers["driver's seconds a batch"] = run_seconds(place, Echo, cluster) / len(tasks)
            numbers |= _starts_and_losses(cluster, few[:8], place / "killed")
    return numbers


def _starts_and_losses(cluster: Cluster, tasks: list[NumberedPairs], mark: Path) -> dict[str, float]:
    """Of one actor that is killed once: seconds to its first result, and those that the kill costs."""
    begin, moments = time.perf_counter(), []
    make, start = partial(KilledOnce, segmenter_directory(), mark), partial(cluster.actors, on_gpu=False)
    with closing(in_order(make, tasks, workers=1, start=start)) as results:
        for _ in results:
            moments.append(time.perf_counter())
    gaps = sorted(after - before for before, after in pairwise(moments))
    usual = statistics.median(gaps)
    return {"start, seconds": moments[0] - begin - usual, "loss, seconds": gaps[-1] - usual}


@dataclass(frozen=True)
class Costs:
    """Of a cluster whose workers are like the one measured."""

    lines: float  # a batch
    seconds: float  # a batch
    variation: float  # of these seconds: standard deviation by mean
    driver: float  # seconds a batch that the driver, which is one process, works for it
    start: float  # seconds until a worker begins
    away: float  # seconds that a lost worker is away

    @classmethod
    def measured(cls) -> Costs:
        numbers = json.loads((RESULTS / "ray-costs.json").read_text(encoding="utf-8"))["numbers"]
        return cls(
            lines=numbers["lines a batch"],
            seconds=numbers["seconds a batch"],
            variation=numbers["variation of the batches"],
            driver=numbers["driver's seconds a batch"],
            start=numbers["start, seconds"],
            away=AWAY + numbers["loss, seconds"],
        )


def simulated_seconds(
    costs: Costs, *, pairs: float, workers: int, losses_an_hour: float, seed: int = 1
) -> float:
    """From the start of one driver to its last line, batch by batch in the order of the text.

    The driver hands out a batch at a time, at most `AHEAD` for each worker before the first of them has
    ended. A batch goes to the worker that is free first. One whose worker is lost begins anew elsewhere.
    """
    draws = random.Random(seed)
    spread = math.sqrt(math.log(1 + costs.variation**2))
    free = [(costs.start, worker) for worker in range(workers)]
    heapify(free)
    pause = 3600 * workers / losses_an_hour if losses_an_hour else math.inf  # mean, of one worker
    lost_at = [_moment(draws, pause) for _ in range(workers)]
    under_way: deque[float] = deque()
    handed = written = 0.0
    for _ in range(math.ceil(pairs / costs.lines)):
        if len(under_way) == AHEAD * workers:
            handed = max(handed, under_way.popleft())
        handed += costs.driver
        seconds = costs.seconds * draws.lognormvariate(-spread * spread / 2, spread)
        earliest = handed
        while True:
            moment, worker = heappop(free)
            end = max(moment, earliest) + seconds
            if end <= lost_at[worker]:
                heappush(free, (end, worker))
                break
            earliest = max(earliest, lost_at[worker])
            back = max(moment, lost_at[worker]) + costs.away
            lost_at[worker] = back + _moment(draws, pause)
            heappush(free, (back, worker))
        written = max(written, end)
        under_way.append(written)
    return written


def _moment(draws: random.Random, mean: float) -> float:
    return math.inf if math.isinf(mean) else draws.expovariate(1 / mean)


def simulate(pairs: int) -> dict[str, Any]:
    """Hours by workers: by one driver for all of them, and by a driver for every 64, each with its shard."""
    costs = Costs.measured()
    rows = {}
    for workers in SIMULATED:
        drivers = max(1, workers // 64)
        ideal = pairs / costs.lines * costs.seconds / workers
        one = simulated_seconds(costs, pairs=pairs, workers=workers, losses_an_hour=LOSSES_AN_HOUR)
        several = simulated_seconds(
            costs,
            pairs=pairs / drivers,
            workers=workers // drivers,
            losses_an_hour=LOSSES_AN_HOUR / drivers,
        )
        rows[str(workers)] = {
            "workers alone, hours": ideal / 3600,
            "one driver, hours": one / 3600,
            "drivers": drivers,
            "a driver for 64 workers, hours": several / 3600,
        }
    full = costs.seconds / costs.driver
    return {"pairs": pairs, "costs": asdict(costs), "workers that one driver feeds": full, "workers": rows}


def write_page(numbers: dict[str, Any]) -> None:
    """The figure, and the table between two comments of the page."""
    rows = numbers["workers"]
    shares = {
        name: [row["workers alone, hours"] / row[f"{name}, hours"] for row in rows.values()]
        for name in ("one driver", "a driver for 64 workers")
    }
    figure = draw_lines(list(rows), shares, xlabel="workers", ylabel="share of the workers' own speed")
    figure.axes[0].set_ylim(0, 1.05)
    with whole_text_file(PAGE.with_name("scaling.svg")) as file:
        file.write(to_svg(figure))
    costs = numbers["costs"]
    table = [
        "| workers | their own speed, hours | one driver, hours | a driver for 64 workers, hours |",
        "| --- | --- | --- | --- |",
    ]
    for workers, row in rows.items():
        hours = [value for key, value in row.items() if key.endswith("hours")]
        table.append(f"| {workers} | {' | '.join(format(value, ',.1f') for value in hours)} |")
    said = (
        f"Measured: {costs['lines']:.0f} lines a batch, {costs['seconds']:.2f} s a batch by a worker of one "
        f"core, {1000 * costs['driver']:.1f} ms of the driver, {costs['start']:.0f} s to start a worker, "
        f"{costs['away'] - AWAY:.0f} s when one is killed. Assumed: a lost machine is replaced after "
        f"{AWAY:.0f} s. So one driver feeds about {numbers['workers that one driver feeds']:.0f} workers."
    )
    begin, end = "<!-- simulated by benchmarks.ray -->", "<!-- end of simulated -->"
    before, rest = PAGE.read_text(encoding="utf-8").split(begin)
    content = "\n".join(table)
    with whole_text_file(PAGE) as file:
        file.write(f"{before}{begin}\n\n{content}\n\n{said}\n\n{end}{rest.split(end)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", nargs="*", choices=["overhead", "costs", "simulate", []])
    parser.add_argument("--lines", type=int, default=20_000, help="of the text, for what is measured")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="for what is simulated")
    arguments = parser.parse_args()
    which = arguments.which or ["overhead", "costs", "simulate"]
    # Workers of a cluster find this module as the program does.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")])
    if "overhead" in which:
        show("ray-overhead", {"text": text().name} | measure_overhead(arguments.lines))
    if "costs" in which:
        show("ray-costs", {"text": text().name} | measure_costs(arguments.lines))
    if "simulate" in which:
        numbers = simulate(arguments.pairs)
        show("ray-simulation", numbers)
        write_page(numbers)


def show(name: str, numbers: dict[str, Any]) -> None:
    print(json.dumps(numbers, indent=1))
    record(name, numbers)


if __name__ == "__main__":
    main()
