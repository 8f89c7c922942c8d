"""Where the time goes, of a mixed model's training step and of MAP segmentation, for either decoder.

    python -m benchmarks.time_shares                            characters, 8,000 and 32,000 pieces
    python -m benchmarks.time_shares --decoder words 8000

The step is run part by part: the graph is cut between the parts, so each one's backward pass is timed alone.
Lattice and batching are means over the batches of an epoch's beginning, words seen for the first time
included. In training they run in a thread beside the step. Segmentation runs in one thread; a part's time is
without that of the parts within it. Shares are medians over repetitions, with quartiles.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from statistics import median, quantiles
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.record import record
from benchmarks.segmenting import examples, print_numbers, segmenter_directory
from benchmarks.steps import Step, mixed_step
from benchmarks.subjects import (
    DECODERS,
    NETWORK,
    Collation,
    DecoderName,
    line_batches,
    text,
    trained_mixed,
)
from dpe.lattice import dynamic_program
from dpe.lattice.lattice import LatticeBuilder
from dpe.model.batching import MixedBatch
from dpe.model.device import keep_freed_memory
from dpe.model.mixed import LazyStates, MixedTransformer
from dpe.model.word_decoder import WordDecoder
from dpe.segmenter.likelihood import marginal_log_likelihood
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.segmenter import Segmenter
from dpe.text.words import split_words

BATCHES, REPETITIONS, COLLATED, LINES = 2, 9, 60, 300


class Clock:
    """Seconds by part, without those of the parts within it; a part may be entered many times in a round."""

    def __init__(self) -> None:
        self.rounds: list[defaultdict[str, float]] = []
        self._within: list[float] = []  # of each part that is entered: seconds of the parts within it

    def begin_round(self) -> None:
        self.rounds.append(defaultdict(float))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        self._within.append(0.0)
        yield
        seconds = time.perf_counter() - begin
        self.rounds[-1][name] += seconds - self._within.pop()
        if self._within:
            self._within[-1] += seconds

    def timed(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, as a part."""

        def run(*arguments: Any, **options: Any) -> Any:
            with self.part(name):
                return work(*arguments, **options)

        return run

    def summary(self, also: dict[str, float], *, batches: int = 1) -> dict[str, Any]:
        """Milliseconds and shares of the parts of a batch, and of others that take these seconds."""
        rounds = [{name: s / batches for name, s in one.items()} | also for one in self.rounds]
        shares = {name: [one[name] / sum(one.values()) for one in rounds] for name in rounds[0]}
        return {
            "milliseconds": {name: 1000 * median(one[name] for one in rounds) for name in rounds[0]},
            "shares": {
                name: dict(
                    zip(("lower_quartile", "median", "upper_quartile"), quantiles(of_rounds), strict=True)
                )
                for name, of_rounds in shares.items()
            },
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pieces", nargs="*", type=int, default=[8_000, 32_000])
    parser.add_argument("--decoder", choices=DECODERS, default="characters")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    arguments = parser.parse_args()
    for size in arguments.pieces:
        numbers = {
            "text": text().name,
            "vocabulary": size,
            "decoder": arguments.decoder,
            "training": training_shares(size, arguments.decoder, arguments.repetitions),
            "segmenting": segmenting_shares(size, arguments.decoder, arguments.repetitions),
        }
        print_numbers(numbers)
        if arguments.repetitions >= REPETITIONS:
            infix = "" if arguments.decoder == "characters" else f"{arguments.decoder}-"
            record(f"time-shares-{infix}{size}", numbers)


def training_shares(size: int, decoder: DecoderName, repetitions: int) -> dict[str, Any]:
    """Of a step, and of preparing its batch."""
    model = trained_mixed(size, replace(NETWORK, decoder=decoder))
    step, clock, collation = mixed_step(model), Clock(), Collation(size)
    batches = [collation.mixed(lines) for lines in line_batches(size, count=BATCHES)]
    step.run(batches[0])
    for _ in range(repetitions):
        clock.begin_round()
        for batch in batches:
            timed_step(step, model, batch, clock)
    return clock.summary(preparation(size), batches=BATCHES)


def segmenting_shares(size: int, decoder: DecoderName, repetitions: int) -> dict[str, Any]:
    """Of the best segmentations of the same lines, sources already segmented."""
    segmenter, clock = Segmenter.load(segmenter_directory(size, decoder=decoder)), Clock()
    rows, model = examples(segmenter, LINES), segmenter._model
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    segmenter.answers(rows, ScoredBatch.best)
    with timed_parts(model, clock):
        for _ in range(repetitions):
            clock.begin_round()
            with clock.part("batches and text"):
                segmenter.answers(rows, ScoredBatch.best)
    torch.set_num_threads(threads)
    return clock.summary({})


@contextmanager
def timed_parts(model: MixedTransformer, clock: Clock) -> Iterator[None]:
    """Inside, a model and the dynamic program tell the clock what they do."""
    decoded = model.decoded

    def decoded_in_parts(*arguments: Any) -> LazyStates:
        with clock.part("decoder, the rest"):
            return clock.timed("last feed-forward, where asked for", decoded(*arguments))

    parts: list[tuple[Any, str, Callable[..., Any]]] = [
        (model, "decoded", decoded_in_parts),
        (model, "encoded", clock.timed("encoder", model.encoded)),
        (model, "edge_scores", clock.timed("softmax", model.edge_scores)),
        (dynamic_program, "best", clock.timed("dynamic program", dynamic_program.best)),
    ]
    if isinstance(model.decoder, WordDecoder):
        for name in ("word_layers", "character_layers"):
            layers = getattr(model.decoder, name)
            parts.append((layers, "forward", clock.timed(name.replace("_", " "), layers.forward)))
    with ExitStack() as stack:
        for owner, name, timed in parts:
            stack.enter_context(patch.object(owner, name, timed))
        yield


def timed_step(step: Step, model: MixedTransformer, batch: MixedBatch, clock: Clock) -> None:
    """`Step.run`, with the graph cut between encoder, decoder, edge scores and dynamic program."""
    with clock.part("optimiser"):
        step.optimizer.zero_grad(set_to_none=True)
    with clock.part("encoder forward"):
        memory, mask = model.encoded(batch)
    assert memory is not None
    memory_leaf = _cut(memory)
    with clock.part("decoder forward"):
        states = model.decoded(batch, memory_leaf, mask)(None)
    states_leaf = _cut(states)
    with clock.part("edge scores forward"):
        lattice = batch.lattice
        scores = model.edge_scores(states_leaf, lattice.edge_positions, lattice.edge_pieces)
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
    main()
