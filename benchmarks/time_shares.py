"""Where the time of a mixed model's training step goes.

    python -m benchmarks.time_shares [8000]

The step is run part by part: the graph is cut between the parts, so each one's backward pass is timed alone.
Lattice and batching are means over the batches of an epoch's beginning, words seen for the first time
included. In training they run in a thread beside the step.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch
from torch import Tensor

from benchmarks.record import record
from benchmarks.steps import Step, mixed_step
from benchmarks.subjects import Collation, line_batches, text, trained_mixed
from dpe.lattice.lattice import LatticeBuilder
from dpe.model.batching import MixedBatch
from dpe.model.device import keep_freed_memory
from dpe.model.edge_scores import edge_scores
from dpe.model.mixed import MixedTransformer
from dpe.segmenter.likelihood import marginal_log_likelihood
from dpe.text.words import split_words

BATCHES, REPETITIONS, COLLATED = 2, 5, 60


class Clock:
    """Seconds by part; a part may be entered several times in a round."""

    def __init__(self) -> None:
        self.rounds: list[defaultdict[str, float]] = []

    def begin_round(self) -> None:
        self.rounds.append(defaultdict(float))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.rounds[-1][name] += time.perf_counter() - begin

    def medians(self) -> dict[str, float]:
        return {name: median(seconds[name] for seconds in self.rounds) for name in self.rounds[0]}


def main(arguments: list[str]) -> None:
    for size in map(int, arguments or ["8000", "32000"]):
        record(f"time-shares-{size}", time_shares(size))


def time_shares(size: int) -> dict[str, object]:
    """Milliseconds of each part of a step, and its share."""
    model = trained_mixed(size)
    step, clock, collation = mixed_step(model), Clock(), Collation(size)
    batches = [collation.mixed(lines) for lines in line_batches(size, count=BATCHES)]
    step.run(batches[0])
    for _ in range(REPETITIONS):
        clock.begin_round()
        for batch in batches:
            timed_step(step, model, batch, clock)
    seconds = {name: value / BATCHES for name, value in clock.medians().items()} | preparation(size)
    total = sum(seconds.values())
    return {
        "text": text().name,
        "vocabulary": size,
        "milliseconds": {name: 1000 * value for name, value in seconds.items()},
        "shares": {name: value / total for name, value in seconds.items()},
    }


def timed_step(step: Step, model: MixedTransformer, batch: MixedBatch, clock: Clock) -> None:
    """`Step.run`, with the graph cut between encoder, decoder, edge scores and dynamic program."""
    with clock.part("optimiser"):
        step.optimizer.zero_grad(set_to_none=True)
    with clock.part("encoder forward"):
        memory, mask = model.encoded(batch)
    assert memory is not None
    memory_leaf = _cut(memory)
    with clock.part("decoder forward"):
        states = model.decoded(batch, memory_leaf, mask)
    states_leaf = _cut(states)
    with clock.part("edge scores forward"):
        lattice = batch.lattice
        scores = edge_scores(
            states_leaf,
            model.output_weight,
            lattice.edge_positions,
            lattice.edge_pieces,
            excluded=model.excluded_pieces,
        )
    scores_leaf = _cut(scores)
    with clock.part("dynamic program"):
        (-marginal_log_likelihood(scores_leaf, batch).sum()).backward()  # type: ignore[no-untyped-call]
    with clock.part("edge scores backward"):
        scores.backward(scores_leaf.grad)  # type: ignore[no-untyped-call]
    with clock.part("decoder backward"):
        states.backward(states_leaf.grad)
    with clock.part("encoder backward"):
        memory.backward(memory_leaf.grad)
    with clock.part("optimiser"):
        step.update(batch.character_count)


def _cut(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def preparation(size: int) -> dict[str, float]:
    """Mean seconds that the lattice of a batch takes, and the rest of making the batch.

    Cutting the source is not counted: `benchmarks.dropout` measures that.
    """
    collation = Collation(size)
    vocabulary, lattices = collation.vocabulary, LatticeBuilder(collation.vocabulary)
    lattice_seconds = all_seconds = 0.0
    for lines in line_batches(size, count=COLLATED):
        examples = collation.mixed_examples(lines)
        begin = time.perf_counter()
        collation.collator.collate(examples, epoch=0)
        all_seconds += time.perf_counter() - begin
        sentences = [split_words(example.marked) for example in examples]
        stride = max(len(example.marked) for example in examples) + 1
        begin = time.perf_counter()
        lattices.batch(sentences, stride=stride, end_piece=vocabulary.eos_id)
        lattice_seconds += time.perf_counter() - begin
    return {"lattice": lattice_seconds / COLLATED, "batching": (all_seconds - lattice_seconds) / COLLATED}


if __name__ == "__main__":
    torch.manual_seed(1)
    keep_freed_memory()
    main(sys.argv[1:])
