"""What is left of the speed beside other busy processes, with three ways for threads to wait.

    python -m benchmarks.contention [--rounds 5] [--lines 300]

A segmenter and a translator of the preset tiny, trained for 40 steps on the built-in corpus: training steps
of both, segmenting and translating, all on every core. Each job runs in three processes: with OpenMP's
default (waiting threads spin), dpe's (they spin briefly, `dpe/__main__.py`) and passive (they never spin).
Each does the same work again and again, alone and beside one and two processes that never rest. They take
turns; speeds are relative to the same job with the default policy alone in the same round, and medians over
the rounds are printed. Nothing else may run on the machine.

The goals of dpe's policy on two cores: beside one busy process at least 0.4 of the speed alone, and alone
within 5 % of the default policy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.record import record
from benchmarks.steps import mixed_step, translation_step
from dpe.__main__ import SPIN_COUNT
from dpe.demo.grammar import generate
from dpe.model.batch_order import batches_by_length
from dpe.model.batching import MixedCollator, collate_translation, mixed_example, translation_example
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import SEGMENTER_PRESETS
from dpe.segmenter.training import train_segmenter
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.vocabulary import Vocabulary
from dpe.translator.settings import TRANSLATOR_PRESETS
from dpe.translator.training import train_translator
from dpe.translator.translator import Translator, load_model

BUSY = (0, 1, 2)  # processes beside the job
POLICIES: dict[str, dict[str, str]] = {
    "default": {},
    "dpe": {"GOMP_SPINCOUNT": SPIN_COUNT},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
}
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
STEPS, PAIRS, BATCH = 40, 2_000, (2_000, 2_000)


def text(lines: int) -> tuple[list[str], list[str]]:
    pairs = list(generate(lines, seed=1))
    return [pair.source for pair in pairs], [pair.target for pair in pairs]


def prepare(place: Path) -> None:
    """The two models."""
    sources, targets = text(PAIRS)
    given = {"vocabulary": learn_vocabulary([*sources, *targets], VocabularySettings(size=1_000))}
    texts = {"source": sources, "target": targets, "dev_source": sources[:20], "dev_target": targets[:20]}
    ending: dict[str, Any] = {"epochs": None, "steps": STEPS, "warmup": STEPS, "batch": BATCH[0]}
    segmenter, translator = SEGMENTER_PRESETS["tiny"], TRANSLATOR_PRESETS["tiny"]
    train_segmenter(place / "segmenter", **given, **texts, settings=replace(segmenter, **ending))
    train_translator(place / "translator", **given, **texts, settings=replace(translator, **ending))


def segmenter_steps(place: Path, lines: int) -> Callable[[], Any]:
    segmenter = Segmenter.load(place / "segmenter")
    pieces, collator = segmenter.vocabulary, MixedCollator(segmenter.vocabulary)
    pairs = enumerate(zip(*text(lines), strict=True))
    examples = (mixed_example(pieces, n, pieces.encode(source), target) for n, (source, target) in pairs)
    groups = batches_by_length(examples, lambda one: one.size, budget=BATCH)
    batches = [collator.collate(group, epoch=0) for group in groups]
    step = mixed_step(segmenter._model.requires_grad_(True))
    return lambda: [step.run(batch) for batch in batches]


def translator_steps(place: Path, lines: int) -> Callable[[], Any]:
    pieces = Vocabulary.load(place / "translator" / "vocab.model")
    pairs = enumerate(zip(*text(lines), strict=True))
    examples = (translation_example(pieces, n, *map(pieces.encode, pair)) for n, pair in pairs)
    groups = batches_by_length(examples, lambda one: one.size, budget=BATCH)
    batches = [collate_translation(group, pieces) for group in groups]
    step = translation_step(load_model(place / "translator"), own_loss=True)
    return lambda: [step.run(batch) for batch in batches]


def segmenting(place: Path, lines: int) -> Callable[[], Any]:
    segmenter = Segmenter.load(place / "segmenter")
    return lambda: segmenter.best(*text(2 * lines))


def translating(place: Path, lines: int) -> Callable[[], Any]:
    translator = Translator.load(place / "translator")
    return lambda: translator.translate(text(lines)[0])


JOBS = {
    "training a segmenter": segmenter_steps,
    "training a translator": translator_steps,
    "segmenting": segmenting,
    "translating": translating,
}


def work(job: str, place: Path, lines: int) -> None:
    """What a job's process does: its work once, then once again for every line of standard input."""
    run = JOBS[job](place, lines)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        run()
        print(time.perf_counter() - begin, flush=True)


@contextmanager
def started(job: str, policy: str, place: Path, lines: int) -> Iterator[Callable[[], float]]:
    """A job's process; calling it gives the seconds of its work."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    command = [sys.executable, "-m", "benchmarks.contention", "--job", job, str(place), "--lines", str(lines)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen(command, env=environment | POLICIES[policy], **pipes) as process:
        to_it: IO[str] = process.stdin
        from_it: IO[str] = process.stdout
        if from_it.readline() != "ready\n":
            sys.exit(f"{job} did not start.")

        def seconds() -> float:
            to_it.write("\n")
            return float(from_it.readline())

        yield seconds
        to_it.close()


@contextmanager
def busy(count: int) -> Iterator[None]:
    """This many processes that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5 if others else 0.0)  # until they have started
        yield
    finally:
        for other in others:
            other.terminate()
            other.wait()


def measure(rounds: int, lines: int) -> dict[str, dict[str, dict[str, float]]]:
    """By job, policy and number of busy processes: speed relative to the default policy alone."""
    keys = [(job, policy) for job in JOBS for policy in POLICIES]
    found: dict[tuple[str, str, int], list[float]] = {(*key, count): [] for key in keys for count in BUSY}
    with tempfile.TemporaryDirectory(prefix="dpe-contention-") as place, ExitStack() as stack:
        prepare(Path(place))
        jobs = {key: stack.enter_context(started(*key, Path(place), lines)) for key in keys}
        for _ in range(rounds):
            for count in BUSY:
                with busy(count):
                    for key, seconds in jobs.items():
                        found[*key, count].append(seconds())

    def relative(job: str, policy: str, count: int) -> float:
        both = zip(found[job, "default", 0], found[job, policy, count], strict=True)
        return median(alone / seconds for alone, seconds in both)

    return {
        job: {policy: {str(count): relative(job, policy, count) for count in BUSY} for policy in POLICIES}
        for job in JOBS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=300, help="of the text that each job works on")
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        work(arguments.job[0], Path(arguments.job[1]), arguments.lines)
        return
    speeds = measure(arguments.rounds, arguments.lines)
    print("| job | policy | alone | beside one | beside two |\n| --- | --- | --- | --- | --- |")
    for job, policies in speeds.items():
        for policy, by_count in policies.items():
            print(f"| {job} | {policy} | " + " | ".join(f"{by_count[str(c)]:.2f}" for c in BUSY) + " |")
    record("contention", {"rounds": arguments.rounds, "lines": arguments.lines, "relative_speeds": speeds})


if __name__ == "__main__":
    main()
