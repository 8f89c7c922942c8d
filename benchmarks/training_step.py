"""A training step of the mixed model, against a translation model's and against the textbook's.

    python -m benchmarks.training_step                    everything
    python -m benchmarks.training_step time 8000          seconds a step, interleaved, at one vocabulary size
    python -m benchmarks.training_step memory 8000        peak memory, each contender in a process of its own

Time is that of forward, backward, clipping and Adam on batches that are ready. The contenders take turns,
each in a process of its own, with torch's defaults; three more keep freed memory, as our trainer lets them.
Memory is the peak of the resident memory of the process (Linux only), and its growth over what was held
before the first step, when the interpreter, the text, the model and the optimiser's state were there.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from benchmarks.record import record
from benchmarks.steps import (
    CONTENDERS,
    KEEPING,
    OWN_LAYERS,
    OWN_LOSS,
    WORDS,
    Step,
    interleaved,
    make_batches,
    make_step,
    medians,
    ratio,
)
from benchmarks.subjects import (
    BATCH_CHARACTERS,
    DECODERS,
    NETWORK,
    line_batches,
    text,
    trained_mixed,
    vocabulary,
)
from benchmarks.textbook import Table, textbook_log_likelihood
from dpe.lattice.dynamic_program import edge_marginals
from dpe.model.batching import MixedBatch
from dpe.model.edge_scores import DEFAULT_THRESHOLD
from dpe.model.mixed import MixedTransformer
from dpe.segmenter.likelihood import batch_edge_scores, marginal_log_likelihood

SIZES = (8_000, 32_000)
BATCHES, REPETITIONS = 2, 5
KEPT = tuple(name + KEEPING for name in ("mixed", "translation", OWN_LOSS))


def main(arguments: list[str]) -> None:
    what = arguments[0] if arguments else None
    if what == "steps":  # a process that `OwnProcess` starts
        run_steps_asked_for(arguments[1], int(arguments[2]))
        return
    if what == "peak":  # a process that `in_own_process` starts
        contender, pieces, characters = arguments[1:]
        print(json.dumps(peak_memory(contender, int(pieces), characters=int(characters))))
        return
    if what in (None, "time"):
        for size in map(int, arguments[1:] or SIZES):
            record(f"training-step-time-{size}", step_times(size))
    if what in (None, "memory"):
        for size in map(int, arguments[1:] or SIZES):
            record(f"training-step-memory-{size}", memory_of_all(size))


def step_times(size: int) -> dict[str, Any]:
    """Median seconds of a step of each contender on the same sentences, and their ratios."""
    lines = line_batches(size, count=BATCHES)
    batches = {name: make_batches(name, size, lines) for name in CONTENDERS}
    trained_mixed(size)  # so that no process has to train it
    with ExitStack() as stack:
        names = (*CONTENDERS, OWN_LAYERS, OWN_LOSS, *KEPT)
        steps = {name: stack.enter_context(OwnProcess(name, size)) for name in names}
        seconds = interleaved(steps, dict.fromkeys(names, range(BATCHES)), repetitions=REPETITIONS)
    return {
        "text": text().name,
        "vocabulary": len(vocabulary(size)),
        "threads": torch.get_num_threads(),
        "batches": [list(batch.characters.shape) for batch in batches["mixed"]],  # [sentence, position]
        "target_pieces": [batch.token_count for batch in batches["translation"]],
        "seconds_a_step": medians(seconds, BATCHES),
        "seconds_of_each_repetition": seconds,
        "mixed_over_translation": ratio(seconds, "mixed", "translation"),
        "textbook_over_translation": ratio(seconds, "textbook", "translation"),
        "textbook_over_mixed": ratio(seconds, "textbook", "mixed"),
        "textbook_with_our_layers_over_mixed": ratio(seconds, OWN_LAYERS, "mixed"),
        "our_loss_over_translation": ratio(seconds, OWN_LOSS, "translation"),
        "keeping_freed_memory": {
            "mixed_over_translation": ratio(seconds, *KEPT[:2]),
            "mixed_over_translation_with_our_loss": ratio(seconds, KEPT[0], KEPT[2]),
            **{name: ratio(seconds, name + KEEPING, name) for name in ("mixed", "translation", OWN_LOSS)},
        },
        "largest_relative_difference_of_textbook": _difference(size, batches["textbook"]),
        "active_positions": active_share(
            [start_probabilities(trained_mixed(size), batch) for batch in batches["mixed"]]
        ),
    }


class OwnProcess:
    """Steps of a contender in another process, on the batches of `step_times` by their number."""

    def __init__(self, contender: str, size: int) -> None:
        self._command = [sys.executable, "-m", "benchmarks.training_step", "steps", contender, f"{size}"]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, batch: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{batch}\n")
        self._answer()

    def _answer(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"


def run_steps_asked_for(contender: str, size: int) -> None:
    """The other side of `OwnProcess`."""
    step = make_step(contender, size)
    batches = make_batches(contender, size, line_batches(size, count=BATCHES))
    print("ready", flush=True)
    for line in sys.stdin:
        step.run(batches[int(line)])
        print("ready", flush=True)


@torch.no_grad()
def _difference(size: int, items: list[tuple[MixedBatch, Table]]) -> float:
    """Between a sentence's log-likelihood done in our way and in the textbook's, without dropout."""
    model = trained_mixed(size).eval()
    differences = []
    for batch, edges in items:
        ours = marginal_log_likelihood(batch_edge_scores(model, batch), batch)
        theirs = textbook_log_likelihood(model, batch, edges)
        differences.append(float(((ours - theirs) / theirs).abs().max()))
    return max(differences)


@torch.no_grad()
def start_probabilities(model: MixedTransformer, batch: MixedBatch) -> Tensor:
    """The posterior probability that a piece starts at each position that has edges. # [position]"""
    lattice, scores = batch.lattice, batch_edge_scores(model, batch)
    posterior = torch.zeros_like(scores)
    posterior[lattice.end_edges] = 1.0
    for bucket in lattice.buckets:
        marginals = edge_marginals(bucket.scatter(scores), bucket.lengths)
        posterior[bucket.edges] = marginals.flatten()[bucket.cells]
    positions, rows = torch.unique_consecutive(lattice.edge_positions, return_inverse=True)
    return scores.new_zeros(len(positions)).index_add_(0, rows, posterior)


def active_share(probabilities: Sequence[Tensor], *, threshold: float = DEFAULT_THRESHOLD) -> float:
    """Share of the positions whose softmax the backward pass makes again."""
    active = sum(int((batch > threshold * batch.max()).sum()) for batch in probabilities)
    return active / sum(map(len, probabilities))


def memory_of_all(size: int) -> dict[str, Any]:
    """Peak memory of each contender, and the ratios between them."""
    for decoder in DECODERS:
        trained_mixed(size, replace(NETWORK, decoder=decoder))  # so that no process has to train it
    names = (*CONTENDERS, OWN_LOSS, *KEPT, WORDS, WORDS + KEEPING)
    peaks: dict[str, Any] = {name: in_own_process(name, size) for name in names}
    mixed, translation, textbook = (peaks[name]["peak_mb"] for name in CONTENDERS)
    return peaks | {
        "mixed_over_translation": mixed / translation,
        "mixed_over_textbook": mixed / textbook,
        "words_over_mixed": peaks[WORDS]["peak_mb"] / mixed,
        "mixed_over_textbook_without_rest": peaks["mixed"]["step_mb"] / peaks["textbook"]["step_mb"],
    }


def in_own_process(contender: str, size: int, *, characters: int = BATCH_CHARACTERS) -> dict[str, float]:
    """`peak_memory` in a new process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.training_step",
        "peak",
        contender,
        f"{size}",
        f"{characters}",
    ]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    numbers: dict[str, float] = json.loads(finished.stdout)
    return numbers


def peak_memory(contender: str, size: int, *, characters: int) -> dict[str, float]:
    """Peak resident memory of steps, in MB: in all, and above the model and its optimiser at rest."""
    batches = make_batches(contender, size, line_batches(size, count=BATCHES, characters=characters))
    step = make_step(contender, size)
    _make_optimizer_state(step)
    gc.collect()
    _reset_peak()
    at_rest = _peak()
    for batch in batches:
        step.run(batch)
    return {"peak_mb": _peak(), "at_rest_mb": at_rest, "step_mb": _peak() - at_rest}


def _make_optimizer_state(step: Step) -> None:
    """Adam's two moments exist from its first step on, so they are part of the model at rest."""
    for parameter in step.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    step.optimizer.step()
    step.optimizer.zero_grad(set_to_none=True)


def _reset_peak() -> None:
    """Linux forgets the peak so far; what loading the text and the weights took is not a step's."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak() -> float:
    """The kernel's high-water mark of resident memory, in MB (getrusage's cannot be reset)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
