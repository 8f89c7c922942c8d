"""How the cost of a training step grows: with the length of the sentences, and with the vocabulary.

    python -m benchmarks.scaling length          50 to 800 characters, at 8,000 pieces
    python -m benchmarks.scaling vocabulary      2,000 to 64,000 pieces

Every batch has about as many characters. The sentences of the first are lines of the text joined and cut to
that length. The second uses untrained models, which spares six trainings: even they are sure enough of a cut
with few pieces that most positions are skipped, and the share that is not is recorded. Peak memory is
measured in processes of their own.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import torch

from benchmarks.record import record
from benchmarks.steps import interleaved, make_batches, make_step, medians, ratio
from benchmarks.subjects import Collation, line_batches, text, untrained_mixed
from benchmarks.training_step import active_share, in_own_process, start_probabilities
from dpe.model.batching import collate_translation, mixed_example, translation_example

LENGTHS = (50, 100, 200, 400, 800)
SIZES = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
CONTENDERS = ("mixed", "translation")
CHARACTERS = 4_000  # of every batch
REPETITIONS = 5


def main(arguments: list[str]) -> None:
    what = arguments[0] if arguments else None
    if what in (None, "length"):
        record("scaling-length", {"text": text().name, "vocabulary": 8_000, "lengths": by_length(8_000)})
    if what in (None, "vocabulary"):
        sizes = {str(size): at_size(size) for size in map(int, arguments[1:] or SIZES)}
        record("scaling-vocabulary", {"text": text().name, "vocabularies": sizes})


def by_length(size: int) -> dict[str, dict[str, float]]:
    """Milliseconds a step of both models by sentence length, batches of as many characters."""
    steps = {name: make_step(name, size) for name in CONTENDERS}
    rows = {}
    for length in LENGTHS:
        batches = _batches_of_length(size, length)
        seconds = interleaved(steps, batches, repetitions=REPETITIONS)
        rows[str(length)] = _row(seconds, batches["mixed"])
    return rows


def _batches_of_length(size: int, length: int) -> dict[str, list[Any]]:
    """One batch for each model, of sentences of that many characters on the target side."""
    collation = Collation(size)
    pieces = collation.vocabulary
    pairs = list(itertools.islice(_long_pairs(length), CHARACTERS // length))
    mixed = [mixed_example(pieces, i, pieces.encode(s), t) for i, (s, t) in enumerate(pairs)]
    translation = [
        translation_example(pieces, i, pieces.encode(s), pieces.encode(t)) for i, (s, t) in enumerate(pairs)
    ]
    return {
        "mixed": [collation.collator.collate(mixed, epoch=0)],
        "translation": [collate_translation(translation, pieces)],
    }


def _long_pairs(length: int) -> Any:
    """Pairs with targets of exactly that many characters, and sources that grow with them."""
    lines = zip(text().sources, text().targets, strict=True)
    while True:
        source = target = ""
        while len(target) < length:
            next_source, next_target = next(lines)
            source, target = f"{source} {next_source}".strip(), f"{target} {next_target}".strip()
        yield source[: len(source) * length // len(target)], target[:length]


def at_size(size: int) -> dict[str, float]:
    """Milliseconds a step and peak memory of both models at one vocabulary size."""
    lines = line_batches(size, count=1, characters=CHARACTERS)
    names = {"mixed": "untrained", "translation": "translation"}
    steps = {name: make_step(contender, size) for name, contender in names.items()}
    batches = {name: make_batches(name, size, lines) for name in CONTENDERS}
    seconds = interleaved(steps, batches, repetitions=REPETITIONS)
    probabilities = [start_probabilities(untrained_mixed(size), batch) for batch in batches["mixed"]]
    row = _row(seconds, batches["mixed"]) | {"active_positions": active_share(probabilities)}
    for name, contender in names.items():
        memory = in_own_process(contender, size, characters=CHARACTERS)
        row |= {f"{name}_{key}": value for key, value in memory.items()}
    return row | {"mixed_weights_mb": sum(p.numel() for p in steps["mixed"].model.parameters()) * 4 / 2**20}


def _row(seconds: dict[str, list[float]], batches: list[Any]) -> dict[str, float]:
    characters = sum(batch.character_count for batch in batches)
    middle = medians(seconds, 1)
    return {
        "mixed_ms": 1000 * middle["mixed"],
        "translation_ms": 1000 * middle["translation"],
        "ratio": ratio(seconds, "mixed", "translation")["median"],
        "mixed_microseconds_a_character": 1e6 * middle["mixed"] / characters,
    }


if __name__ == "__main__":
    torch.manual_seed(1)
    main(sys.argv[1:])
