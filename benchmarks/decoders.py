"""The decoder over words against the decoder over characters: a training step, and MAP segmentation.

    python -m benchmarks.decoders                     at 8,000 pieces
    python -m benchmarks.decoders --vocabulary 32000
    python -m benchmarks.decoders --updates 20        a quick look: less trained models, fewer repetitions

Both models have 4 encoder and 4 decoder layers of width 256 (words: 4 over words, and 1 over characters), and
are trained for 300 updates first, because what a backward pass and a MAP segmentation skip depends on the
model. The translation model has the same size, and the loss that our trainer has; freed memory is kept, as
in our trainer. All take turns in one process, batch by batch; a ratio is that of one repetition, and the
table has the median and the quartiles of all.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from benchmarks.record import record
from benchmarks.steps import Step, interleaved, make_batches, medians, mixed_step, ratio, translation_step
from benchmarks.subjects import (
    DECODERS,
    NETWORK,
    TRAINED_STEPS,
    line_batches,
    saved_segmenter,
    text,
    trained_mixed,
    translation_model,
    vocabulary,
)
from dpe.model.device import keep_freed_memory
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import SegmenterSettings

BATCHES, REPETITIONS, LINES = 2, 15, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=8_000, metavar="PIECES")
    parser.add_argument("--updates", type=int, default=TRAINED_STEPS, help="before anything is measured")
    arguments = parser.parse_args()
    is_whole = arguments.updates >= TRAINED_STEPS
    networks = {name: replace(NETWORK, decoder=name, steps=arguments.updates) for name in DECODERS}
    keep_freed_memory()
    size, repetitions = arguments.vocabulary, REPETITIONS if is_whole else 3
    numbers = {
        "text": text().name,
        "vocabulary": size,
        "updates": arguments.updates,
        "training": training_times(networks, size, repetitions),
        "segmenting": segmenting_times(networks, size, repetitions),
    }
    print_table(numbers)
    if is_whole:
        record(f"decoders-{size}", numbers)


def training_times(
    networks: Mapping[str, SegmenterSettings], size: int, repetitions: int
) -> dict[str, dict[str, Any]]:
    """Seconds of a step (forward, backward, clip, Adam), and their ratios."""
    lines = line_batches(size, count=BATCHES)
    steps: dict[str, Step] = {
        name: mixed_step(trained_mixed(size, network)) for name, network in networks.items()
    }
    steps["translation"] = translation_step(translation_model(size), own_loss=True)
    batches = {name: make_batches(name, size, lines) for name in steps}
    seconds = interleaved(steps, batches, repetitions=repetitions)
    pairs = [("characters", "translation"), ("words", "translation"), ("words", "characters")]
    return {
        "seconds a step": medians(seconds, BATCHES),
        "ratios": {f"{one} / {other}": ratio(seconds, one, other) for one, other in pairs},
    }


class Segmenting:
    """MAP segmentation of lines, for `interleaved`."""

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter = segmenter

    def run(self, lines: Sequence[int]) -> None:
        encode = self._segmenter.vocabulary.encode
        examples = [
            self._segmenter.example(line, encode(text().sources[line]), text().targets[line])
            for line in lines
        ]
        self._segmenter.answers(examples, ScoredBatch.best)


def segmenting_times(
    networks: Mapping[str, SegmenterSettings], size: int, repetitions: int
) -> dict[str, dict[str, Any]]:
    """Seconds for the same lines in one thread, characters a second, and how many times as fast words are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pieces = vocabulary(size)
    works = {
        name: Segmenting(
            Segmenter.load(saved_segmenter(trained_mixed(size, network), pieces, network, source=True))
        )
        for name, network in networks.items()
    }
    seconds = interleaved(works, {name: [range(LINES)] for name in works}, repetitions=repetitions)
    torch.set_num_threads(threads)
    characters = sum(len(pieces.normalize(line)) for line in text().targets[:LINES])
    return {
        "characters a second": {name: characters / one for name, one in medians(seconds, 1).items()},
        "ratios": {"words / characters, speed": ratio(seconds, "characters", "words")},
    }


def print_table(numbers: Mapping[str, Any]) -> None:
    print(f"{numbers['text']}, {numbers['vocabulary']:,} pieces, after {numbers['updates']} updates\n")
    print("| what | median | quartiles |\n| --- | --- | --- |")
    for part in ("training", "segmenting"):
        for name, one in numbers[part]["ratios"].items():
            low, high = one["lower_quartile"], one["upper_quartile"]
            print(f"| {part}: {name} | {one['median']:.2f} | {low:.2f} to {high:.2f} |")
    for name, seconds in numbers["training"]["seconds a step"].items():
        print(f"| training: seconds a step, {name} | {seconds:.3f} | |")
    for name, speed in numbers["segmenting"]["characters a second"].items():
        print(f"| segmenting: characters a second, {name} | {speed:,.0f} | |")


if __name__ == "__main__":
    main()
