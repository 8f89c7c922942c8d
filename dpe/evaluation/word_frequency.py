"""F1 of translated words by their frequency in the training target: which system gets rare words right.

A word is a token of BLEU (`13a` unless another tokenizer is chosen), with its case. An output word matches a
word of its line's reference, each of which matches once, so in every line a word matches as often as it is in
both; compare-mt counts so too (Neubig et al., 2019). The precision of a band is matches over output words of
that frequency, the recall matches over reference words; both are pooled over the lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from dpe.evaluation.scores import SystemOutput
from dpe.evaluation.segmented_text import listed_counts
from dpe.evaluation.significance import SAMPLES, Array, Difference, difference_of, resamples
from dpe.text.corpus import read_lines

BANDS = {"0": 0, "1": 1, "2-5": 5, "6-20": 20, "21-100": 100}  # largest count by label; then there are more
LABELS = (*BANDS, "over 100")
_LIMITS = tuple(BANDS.values())


@dataclass(frozen=True)
class FrequencyBand:
    """The words of one band: how many the reference has, and F1 in percent by system."""

    label: str
    words: int
    f1: dict[str, float]


def count_tokens(lines: Iterable[str], tokenize: str | None = None) -> Counter[str]:
    """How often each word occurs in a text."""
    words = _words(tokenize)
    return Counter(word for line in lines for word in words(line))


def read_counts(path: Path, tokenize: str | None = None) -> Counter[str]:
    """From lines of word, tab, count; or of a text, which is not segmented."""
    listed = listed_counts(path)
    return count_tokens(read_lines(path), tokenize) if listed is None else listed


def f1_by_frequency(
    translations: Sequence[SystemOutput],
    reference: Sequence[str],
    frequency: Mapping[str, int],
    *,
    tokenize: str | None = None,
) -> list[FrequencyBand]:
    """F1 of each output in every band of which the reference has words."""
    counts = {
        one.name: _counts(one.lines, reference, frequency, tokenize).sum(axis=0) for one in translations
    }
    words = next(iter(counts.values()))[:, 2]  # of the reference, the same for all
    f1 = {name: _f1(sums) for name, sums in counts.items()}
    return [
        FrequencyBand(label, int(words[band]), {name: float(found[band]) for name, found in f1.items()})
        for band, label in enumerate(LABELS)
        if words[band]
    ]


def bootstrap_by_frequency(
    ours: Sequence[SystemOutput],
    baseline: Sequence[SystemOutput],
    reference: Sequence[str],
    frequency: Mapping[str, int],
    *,
    samples: int = SAMPLES,
    tokenize: str | None = None,
) -> list[Difference]:
    """One test for each of these bands, as `paired_bootstrap` tests BLEU."""
    weights, lines = resamples(len(reference), samples), len(reference)

    def scores(output: SystemOutput) -> Array:  # [band, 1 + sample]
        counts = _counts(output.lines, reference, frequency, tokenize)
        return _f1((weights @ counts.reshape(lines, -1)).reshape(-1, len(LABELS), 3)).T

    sides = [[scores(output) for output in seeds] for seeds in (ours, baseline)]
    words = _counts(reference, reference, frequency, tokenize).sum(axis=0)[:, 2]
    return [
        difference_of(metric_name(label), *([found[band] for found in side] for side in sides))
        for band, label in enumerate(LABELS)
        if words[band]
    ]


def metric_name(label: str) -> str:
    """What a test of a band calls its metric."""
    return f"F1 of {label}"


def _words(tokenize: str | None) -> Callable[[str], list[str]]:
    """What BLEU splits a line into."""
    split = BLEU(tokenize=tokenize).tokenizer
    return lambda line: split(line.rstrip()).split()


def _counts(
    lines: Sequence[str], reference: Sequence[str], frequency: Mapping[str, int], tokenize: str | None
) -> Array:
    """Matches, words of the output, words of the reference: [line, band, 3]."""
    found = np.zeros((len(reference), len(LABELS), 3))
    words = _words(tokenize)
    for number, (line, wanted) in enumerate(zip(lines, reference, strict=True)):
        ours, theirs = Counter(words(line)), Counter(words(wanted))
        for kind, counted in enumerate((ours & theirs, ours, theirs)):
            for word, count in counted.items():
                found[number, bisect_left(_LIMITS, frequency.get(word, 0)), kind] += count
    return found


def _f1(counts: Array) -> Array:
    """In percent; 0 where there are no words. # [..., 3] -> [...]"""
    matches, ours, theirs = np.moveaxis(counts, -1, 0)
    found: Array = np.divide(200 * matches, ours + theirs, out=np.zeros_like(matches), where=matches > 0)
    return found
