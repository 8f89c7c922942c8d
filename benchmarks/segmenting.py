"""Segmenting: speed against a textbook segmenter and a training step, workers, batch sizes, memory.

    python -m benchmarks.segmenting [--lines N] [speed] [workers] [batches] [memory] [long]

The textbook segmenter does what one would write first: batches of 35 in the order of the file, the whole
log-softmax, and one loop in Python per sentence. It has the same model and text, with 8,000 pieces unless
another number is named. Speeds are by the processor time of one thread, which other processes disturb least;
those of workers by the clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.record import RESULTS, record
from benchmarks.steps import ratio, seconds_of_rounds
from benchmarks.subjects import (
    DECODERS,
    NETWORK,
    DecoderName,
    saved_segmenter,
    text,
    trained_mixed,
    vocabulary,
)
from dpe.corpus_run.lines import LineCutter
from dpe.corpus_run.pool import in_order
from dpe.corpus_run.run import NumberedPairs
from dpe.model.batch_order import epoch_batches
from dpe.model.batching import MixedCollator, MixedExample
from dpe.model.mixed import MixedTransformer
from dpe.model.word_decoder import WordDecoder
from dpe.segmenter.likelihood import batch_edge_scores, marginal_log_likelihood
from dpe.segmenter.scored_batch import Cut, ScoredBatch
from dpe.segmenter.segmenter import BATCH_CHARACTERS, Segmenter
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings, SegmentSettings
from dpe.text.corpus import Pair, write_lines
from dpe.text.vocabulary import Vocabulary

SIZE, ROUNDS, TEXTBOOK_BATCH = 8_000, 7, 35
PAPER_SIZE = 32_000
TRAINING_BATCH = 8_000
TINY = SegmenterSettings(width=16, heads=2, feed_forward=32, encoder_layers=1, decoder_layers=1, dropout=0.0)


@cache
def segmenter_directory(size: int = SIZE, *, decoder: DecoderName = "characters") -> Path:
    """The model after 300 steps, as a directory that a segmenter is loaded from."""
    network = replace(NETWORK, decoder=decoder)
    return saved_segmenter(trained_mixed(size, network), vocabulary(size), network, source=True)


def examples(segmenter: Segmenter, lines: int) -> list[MixedExample]:
    """The first lines of the text, in the order of the file."""
    pairs = zip(text().sources[:lines], text().targets[:lines], strict=True)
    encode = segmenter.vocabulary.encode
    return [segmenter.example(line, encode(source), target) for line, (source, target) in enumerate(pairs)]


@torch.inference_mode()
def textbook(model: MixedTransformer, pieces: Vocabulary, lines: Sequence[MixedExample]) -> list[list[str]]:
    """Alg. 2 sentence by sentence over the full log-softmax of 35 sentences."""
    cuts = []
    collator = MixedCollator(pieces)
    for begin in range(0, len(lines), TEXTBOOK_BATCH):
        rows = lines[begin : begin + TEXTBOOK_BATCH]
        batch = collator.collate(rows, epoch=0)
        states = model.states(batch).unflatten(0, batch.characters.shape)
        scores = _all_scores(model, states)  # [sentence, position, piece]
        cuts += [_textbook_cut(row.marked, scores[i], pieces) for i, row in enumerate(rows)]
    return cuts


def _all_scores(model: MixedTransformer, states: Tensor) -> Tensor:
    """Log-probability of every piece at every position. # [sentence, position, piece]"""
    weight = model.output_weight
    if not isinstance(model.decoder, WordDecoder):
        logits = states @ weight.T
        logits[..., list(model.excluded_pieces)] = float("-inf")
        return torch.log_softmax(logits, dim=-1)
    states, word_end = states[..., :-1], states[..., -1:]
    scores = states.new_full((*states.shape[:-1], len(weight)), float("-inf"))
    for pieces, sign in ((model.decoder.words, 1), (model.decoder.others, -1)):
        part = torch.log_softmax(states @ weight[pieces].T, dim=-1)
        scores[..., pieces] = part.add_(F.logsigmoid(sign * word_end))
    return scores


def _textbook_cut(marked: str, scores: Tensor, pieces: Vocabulary) -> list[str]:
    """The best cut of one sentence from its scores [position, piece]."""
    best, starts = [0.0], [0]
    for end in range(1, len(marked) + 1):
        candidates = []
        for start in range(max(0, end - pieces.max_span), end):
            piece = pieces.ids.get(marked[start:end], pieces.unk_id if end - start == 1 else None)
            if piece is not None:
                candidates.append((best[start] + float(scores[start, piece]), start))
        score, start = max(candidates)
        best.append(score)
        starts.append(start)
    cut, end = [], len(marked)
    while end:
        cut.append(marked[starts[end] : end])
        end = starts[end]
    return cut[::-1]


def training_steps(model: MixedTransformer, pieces: Vocabulary, lines: Sequence[MixedExample]) -> None:
    """Forward, backward and Adam over the lines, in batches of 8,000 characters."""
    model.train().requires_grad_(True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)
    collator = MixedCollator(pieces, unknown_rate=0.001)
    budget = (TRAINING_BATCH, TRAINING_BATCH)
    batches = epoch_batches(len(lines), lines.__getitem__, lambda e: e.size, budget=budget, seed=1, epoch=0)
    for members in batches:
        batch = collator.collate(members, epoch=0)
        optimizer.zero_grad()
        (-marginal_log_likelihood(batch_edge_scores(model, batch), batch).mean()).backward()
        optimizer.step()
    model.eval().requires_grad_(False)


def measure_speed(lines: int) -> dict[str, Any]:
    """Of both decoders: with two vocabularies after 300 steps, and of small models that were not trained."""
    torch.set_num_threads(1)
    numbers: dict[str, Any] = {"lines": lines}
    for size in (SIZE, PAPER_SIZE):
        trained = {name: Segmenter.load(segmenter_directory(size, decoder=name)) for name in DECODERS}
        numbers[f"width 256, 4 + 4 layers, 300 steps, {size:,} pieces"] = _speeds(trained, lines)
    numbers["width 128, 2 + 3 layers, untrained"] = _speeds(_untrained(SEGMENTER_PRESETS["tiny"]), lines)
    return numbers


def _untrained(settings: SegmenterSettings) -> dict[str, Segmenter]:
    """Segmenters of both decoders."""
    pieces, found = vocabulary(SIZE), {}
    for name in DECODERS:
        torch.manual_seed(1)
        own = replace(settings, decoder=name)
        network = MixedTransformer.of(own, pieces, source=True)
        found[name] = Segmenter.load(saved_segmenter(network, pieces, own, source=True))
    return found


def _speeds(segmenters: Mapping[str, Segmenter], lines: int) -> dict[str, Any]:
    """The time of ours, of the textbook's and of a training step, of each decoder on the same lines."""
    works: dict[str, Callable[[], Any]] = {}
    for name, segmenter in segmenters.items():
        rows, pieces, model = examples(segmenter, lines), segmenter.vocabulary, segmenter._model
        works[name] = partial(segmenter.answers, rows, ScoredBatch.best)
        works[f"textbook, {name}"] = partial(textbook, model, pieces, rows)
        works[f"training, {name}"] = partial(training_steps, model, pieces, rows)
    seconds, results = seconds_of_rounds(works, rounds=ROUNDS, warm_up=1, clock=time.process_time)
    numbers: dict[str, Any] = {}
    for name, segmenter in segmenters.items():
        # Ties, and unknown characters, which only we join.
        both = zip(results[name], results[f"textbook, {name}"], strict=True)
        numbers[name] = {
            "lines a second": lines / statistics.median(seconds[name]),
            "lines cut otherwise by the textbook": sum(list(cut.pieces) != other for cut, other in both),
            "share of positions looked at": _share_looked_at(segmenter, lines),
            "time per character relative to a training step": ratio(seconds, name, f"training, {name}"),
        }
        for other in (f"textbook, {name}", "textbook, characters", "characters"):
            numbers[name][f"times as fast as {other}"] = ratio(seconds, other, name)
    return numbers


def _share_looked_at(segmenter: Segmenter, lines: int) -> float:
    """Mean share of a batch's positions whose softmax is computed."""
    looked: list[float] = []

    def noted(batch: ScoredBatch) -> list[Cut]:
        cuts = batch.best()
        known = batch._given.known  # type: ignore[union-attr]
        looked.append(float(known[batch.lattice.edge_positions.unique()].double().mean()))
        return cuts

    segmenter.answers(examples(segmenter, lines), noted)
    return statistics.mean(looked)


def measure_workers(lines: int) -> dict[str, float]:
    """Lines a second of one worker and of two."""
    pairs = [Pair(*pair) for pair in zip(text().sources[:lines], text().targets[:lines], strict=True)]
    batches = epoch_batches(
        len(pairs), int, lambda i: (0, len(pairs[i].target) + 2),
        budget=(BATCH_CHARACTERS, BATCH_CHARACTERS), seed=0, epoch=0,
    )  # fmt: skip
    tasks = [NumberedPairs(batch, [pairs[i] for i in batch]) for batch in batches]
    make = partial(
        LineCutter, segmenter_directory(), SegmentSettings(), device="cpu", batch_characters=BATCH_CHARACTERS
    )
    speeds = {workers: _steady_speed(make, tasks, workers) for workers in (1, 2)}
    return {
        "one worker, lines a second": speeds[1],
        "two workers, lines a second": speeds[2],
        "ratio": speeds[2] / speeds[1],
    }


def _steady_speed(make: Callable[[], LineCutter], tasks: list[NumberedPairs], workers: int) -> float:
    """Lines a second, from what the second half takes: starting and loading count in both and cancel out."""

    def seconds(some: list[NumberedPairs]) -> float:
        begin = time.perf_counter()
        for _ in in_order(make, some, workers=workers):
            pass
        return time.perf_counter() - begin

    half = len(tasks) // 2
    lines = sum(len(task.numbers) for task in tasks[half:])
    return lines / (seconds(tasks) - seconds(tasks[:half]))


def measure_batches(lines: int) -> dict[str, float]:
    """How often another batch size changes a cut, and what it does to speed."""
    torch.set_num_threads(1)
    numbers: dict[str, float] = {"lines": lines}
    reference: list[tuple[str, ...]] = []
    for budget in (BATCH_CHARACTERS, 1_000, 16_000):
        segmenter = Segmenter.load(segmenter_directory(), batch_characters=budget)
        rows = examples(segmenter, lines)
        begin = time.process_time()
        cuts = [cut.pieces for cut in segmenter.answers(rows, ScoredBatch.best)]
        numbers[f"batches of {budget}: lines a second"] = lines / (time.process_time() - begin)
        reference = reference or cuts
        changed = sum(a != b for a, b in zip(cuts, reference, strict=True))
        numbers[f"batches of {budget}: lines cut otherwise than by {BATCH_CHARACTERS}"] = changed
    return numbers


def _tiny_language_model() -> Path:
    pieces = vocabulary(SIZE)
    network = MixedTransformer.of(TINY, pieces, source=False)
    return saved_segmenter(network, pieces, TINY, source=False)


def _peak(directory: Path, lines: Sequence[str], *, workers: int) -> tuple[float, float]:
    """Megabytes of the largest process, and seconds, of `dpe segment` on a text."""
    target = directory / "text"
    write_lines(target, lines)
    command = [
        sys.executable, "-m", "dpe", "-q", "segment", "--segmenter", str(directory), "--target", str(target),
        "--out", str(directory / "out"), "--force", "--workers", str(workers), "--device", "cpu",
    ]  # fmt: skip
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=RESULTS.parents[1])
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_maxrss / 1024, time.perf_counter() - begin


def measure_memory(_: int) -> dict[str, float]:
    """Peak memory of the whole command at 20,000 and at 200,000 short lines, with a tiny segmenter."""
    directory = _tiny_language_model()
    numbers: dict[str, float] = {}
    # The words of a text repeat, as those of a corpus ten times as long do not: so cut them differently.
    words = [word for line in text().targets for word in line.split()]
    for count in (20_000, 200_000):
        rows = [f"{words[i % len(words)]} {words[i * 7 % len(words)]} {i % 997}" for i in range(count)]
        peak, seconds = _peak(directory, rows, workers=1)
        numbers[f"{count} lines: peak megabytes"], numbers[f"{count} lines: seconds"] = peak, seconds
    large, small = (numbers[f"{count} lines: peak megabytes"] for count in (200_000, 20_000))
    return numbers | {"ratio of peaks": large / small}


def measure_long_lines(_: int) -> dict[str, float]:
    """Peak memory for one line of 2,000 and of 50,000 characters, as one word and as many."""
    directory = _tiny_language_model()
    numbers: dict[str, float] = {}
    for name, unit in (("one word", "ein"), ("many words", "ein Haus ")):
        for length in (2_000, 50_000):
            peak, seconds = _peak(directory, [(unit * length)[: length - 1]], workers=1)
            numbers[f"{name} of {length} characters: peak megabytes"] = peak
            numbers[f"{name} of {length} characters: seconds"] = seconds
    return numbers


MEASUREMENTS = {  # and how many lines of the text are used unless `--lines` says otherwise
    "speed": (measure_speed, 200),
    "workers": (measure_workers, 1_600),
    "batches": (measure_batches, 1_500),
    "memory": (measure_memory, 0),
    "long": (measure_long_lines, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", nargs="*", choices=[*MEASUREMENTS, []], help="all if none is named")
    parser.add_argument("--lines", type=int, help="of the text, for speed, workers and batches")
    arguments = parser.parse_args()
    for name in arguments.which or MEASUREMENTS:
        measure, lines = MEASUREMENTS[name]
        numbers = {"text": text().name} | measure(arguments.lines or lines)
        print_numbers(numbers)
        record(f"segmenting-{name}", numbers)


def print_numbers(numbers: Mapping[str, Any], title: str = "") -> None:
    """A number a line; a ratio with its quartiles."""
    for key, value in numbers.items():
        name = f"{title}{key}"
        if isinstance(value, dict) and "median" in value:
            median, low, high = (value[part] for part in ("median", "lower_quartile", "upper_quartile"))
            print(f"{name:110} {median:.3g} ({low:.3g} to {high:.3g})")
        elif isinstance(value, dict):
            print_numbers(value, f"{name}: ")
        else:
            print(f"{name:110} {value if isinstance(value, str) else format(value, '.4g')}")


if __name__ == "__main__":
    main()
