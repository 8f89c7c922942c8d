"""A large text on one machine: memory and time of each step, at several numbers of lines.

    python -m benchmarks.large [1000000 10000000]

The lines are generated: three to eight of 20,000 made-up words. Each step is a command of its own with a
network of next to no size, so what is measured is how dpe handles lines: learning a vocabulary from a sample,
segmenting by BPE dropout, a training from its start to its first save (with the indexing of both sides), and
the same training killed within its first epoch and resumed.

Memory is the largest resident size of the process. It includes the pages of the mapped line index that were
read, which the system may take back. By how much it grows with a line tells what a larger text will need.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.record import record
from dpe.model.checkpoint import LAST, load_tensors

LINES = (1_000_000, 10_000_000)
WORDS, SAMPLE, CHUNK, DEV, LATER = 20_000, 200_000, 100_000, 100, 40
NETWORK = {"width": 8, "heads": 1, "feed_forward": 8, "encoder_layers": 1, "decoder_layers": 1}


class Cost(NamedTuple):
    """What a process took."""

    seconds: float
    megabytes: float


def write_lines(path: Path, count: int, seed: int) -> None:
    """Generated lines, a chunk at a time."""
    random = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = np.array(["".join(random.choice(syllables, size=random.integers(1, 5))) for _ in range(WORDS)])
    with path.open("w", encoding="utf-8") as file:
        for first in range(0, count, CHUNK):
            lengths = random.integers(3, 9, size=min(CHUNK, count - first))
            drawn = words[(WORDS * random.random(int(lengths.sum())) ** 3).astype(int)].tolist()  # some often
            bounds = np.cumsum([0, *lengths]).tolist()
            file.writelines(" ".join(drawn[begin:end]) + "\n" for begin, end in pairwise(bounds))


def cost_of(*arguments: object, until: Callable[[], bool] = lambda: False) -> Cost:
    """A command from its start to its end, or until something is so, when it is killed."""
    command = [sys.executable, "-m", "dpe", "--quiet", *map(str, arguments)]
    begin, peak, seconds = time.perf_counter(), 0, 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None and not until():
            seconds = time.perf_counter() - begin
            if found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8")):
                peak = int(found[1])
            time.sleep(0.02)
        process.kill()
    if process.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"dpe {arguments[0]} failed.")
    return Cost(seconds, peak / 1024)


def steps(place: Path, count: int) -> Iterator[tuple[str, Cost]]:
    """The commands in turn, each with what it took."""
    texts = {side: place / f"train.{side}" for side in ("source", "target")}
    for seed, (side, path) in enumerate(texts.items()):
        write_lines(path, count, seed)
        write_lines(place / f"dev.{side}", DEV, seed + 2)
    both = ("--source", texts["source"], "--target", texts["target"])
    vocab, model = place / "vocab.model", place / "model"
    yield "vocabulary", cost_of("vocab", *both, "--size", 500, "--sample-lines", SAMPLE, "--out", vocab)
    encode = ("encode", "--vocab", vocab, "--method", "bpe-dropout", texts["target"])
    yield "encode", cost_of(*encode, "--out", place / "pieces")
    dev = ("--dev-source", place / "dev.source", "--dev-target", place / "dev.target")
    changes = [part for key, value in NETWORK.items() for part in ("--set", f"{key}={value}")]
    training = (
        "train-segmenter", "--vocab", vocab, *both, *dev, "--preset", "tiny", "--batch-characters", 3_000,
        "--epochs", 9, "--save-minutes", 0, "--threads", 1, "--device", "cpu", *changes, "--out", model,
    )  # fmt: skip
    yield "training, to its first save", cost_of(*training, until=lambda: step_of(model) >= 1)
    cost_of(*training, until=lambda: step_of(model) >= LATER)
    there = step_of(model)
    yield "training, resumed", cost_of(*training, until=lambda: step_of(model) > there)


def step_of(model: Path) -> int:
    """How far the last save of a training is."""
    return int(load_tensors(model / LAST)[1]["step"]) if (model / LAST).exists() else 0


def main() -> None:
    counts = list(map(int, sys.argv[1:])) or list(LINES)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="dpe-large-") as place:
            for name, cost in steps(Path(place), count):
                print(
                    f"{count:>12,} lines, {name}: {cost.seconds:.1f} s, {cost.megabytes:.0f} MB", flush=True
                )
                numbers = {"seconds": round(cost.seconds, 1), "megabytes": round(cost.megabytes)}
                found.setdefault(name, {})[str(count)] = numbers
    few, many = min(counts), max(counts)
    growth = {}
    for name, costs in found.items():
        if few < many:
            more = costs[str(many)]["megabytes"] - costs[str(few)]["megabytes"]
            growth[name] = round(more * 2**20 / (many - few), 1)
            print(f"{name}: {growth[name]} bytes for each line more")
    print(record("large", {"vocabulary_sample": SAMPLE, "steps": found, "bytes_for_a_line_more": growth}))


if __name__ == "__main__":
    main()
