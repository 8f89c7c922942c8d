"""Distilling: the speed of the model beside the segmenter's, and the time of a fit.

    python -m benchmarks.distillation [speed] [fit] [--lines N]

`speed`: lines a second on one core, of SentencePiece with a distilled model and of the segmenter that it was
distilled from (8,000 pieces, 300 updates, both decoders). `fit`: the seconds of a fit to 100,000 word types.
Where the text has fewer, two of its words joined are another. The counts to be fitted are the mean of those
of two unigram models, so that no unigram model has them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch

from benchmarks.decoders import DECODERS
from benchmarks.record import record
from benchmarks.steps import median_seconds
from benchmarks.subjects import NETWORK, saved_segmenter, text, trained_mixed, vocabulary
from dpe.corpus_run.distillation import distill
from dpe.segmenter.distillation import PieceCounts, UnigramFit, expected_pieces
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import DistillSettings
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, split_words
from dpe.training.processes import Session

PIECES, TYPES, ROUNDS = 8_000, 100_000, 5
COUNTED = 500  # lines from which the model whose speed is measured is distilled


def measure_speed(lines: int) -> dict[str, Any]:
    """Both segment the same lines; SentencePiece also all others, which makes no difference to it."""
    torch.set_num_threads(1)
    numbers: dict[str, Any] = {"lines": lines}
    for decoder in DECODERS:
        network = replace(NETWORK, decoder=decoder)
        directory = saved_segmenter(trained_mixed(PIECES, network), vocabulary(PIECES), network, source=True)
        segmenter, processor = Segmenter.load(directory), distilled_processor(directory)
        sources, targets = text().sources[:lines], text().targets[:lines]
        works = {
            "segmenter": partial(segmenter.best, sources, targets),
            "sentencepiece": partial(processor.encode, text().targets, out_type=int, num_threads=1),
        }
        seconds, _ = median_seconds(works, rounds=ROUNDS, clock=time.process_time)
        slow, quick = lines / seconds["segmenter"], len(text().targets) / seconds["sentencepiece"]
        numbers |= {
            f"{decoder}: segmenter, lines a second": slow,
            f"{decoder}: sentencepiece, lines a second": quick,
            f"{decoder}: times as fast": quick / slow,
        }
    return numbers


def distilled_processor(directory: Path) -> Any:
    with tempfile.TemporaryDirectory() as place:
        distilled = distill(
            Path(place) / "distilled.model",
            segmenter=directory,
            source=text().sources[:COUNTED],
            target=text().targets[:COUNTED],
            session=Session(workers=1),
        )
    return sentencepiece.SentencePieceProcessor(model_proto=distilled.content)


def measure_fit(_: int) -> dict[str, Any]:
    """From the counts of all types to the scores, lattices included."""
    torch.set_num_threads(1)
    pieces, words = vocabulary(PIECES), word_types(vocabulary(PIECES), TYPES)
    expected = (noisy_counts(pieces, words, seed=1) + noisy_counts(pieces, words, seed=2)) / 2
    counts, settings = PieceCounts(expected, np.zeros(len(pieces))), DistillSettings()
    reports: list[str] = []
    begin, begin_busy = time.perf_counter(), time.process_time()
    fit = UnigramFit(pieces, words, counts, ridge=settings.ridge)
    fit.minimum(max_updates=settings.max_updates, report=reports.append)
    return {
        "word types": len(words),
        "pieces": len(pieces),
        "seconds": time.perf_counter() - begin,
        "processor seconds": time.process_time() - begin_busy,
        "evaluations": len(reports),
    }


def word_types(pieces: Vocabulary, count: int) -> Counter[str]:
    """The words of the text with their frequencies, and joined ones that occur once."""
    words = Counter(word for line in text().targets for word in split_words(pieces.normalize(line)))
    known, generator = sorted(words), random.Random(1)
    while len(words) < count:
        words[generator.choice(known) + generator.choice(known).removeprefix(MARKER)] = 1
    return words


def noisy_counts(pieces: Vocabulary, words: Counter[str], *, seed: int) -> np.ndarray[Any, Any]:
    """Expected pieces under a unigram model whose scores are those of longer pieces, with noise."""
    generator = np.random.default_rng(seed)
    scores = {piece: -8.0 + generator.normal() for piece in pieces.ids}
    return expected_pieces(pieces.as_unigram(scores), words)


MEASUREMENTS = {"speed": (measure_speed, 200), "fit": (measure_fit, 0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("which", nargs="*", choices=[*MEASUREMENTS, []], help="all if none is named")
    parser.add_argument("--lines", type=int, help="that the segmenter segments, for speed")
    arguments = parser.parse_args()
    for name in arguments.which or MEASUREMENTS:
        measure, lines = MEASUREMENTS[name]
        numbers = {"text": text().name} | measure(arguments.lines or lines)
        for key, value in numbers.items():
            print(f"{key:50} {value if isinstance(value, str) else format(value, '.4g')}")
        record(f"distillation-{name}", numbers)


if __name__ == "__main__":
    main()
