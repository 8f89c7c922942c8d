"""BLEU and chrF2 by sacreBLEU, with signatures: over seeds, by length, and paired bootstrap tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from dpe.errors import UserError
from dpe.evaluation.significance import SAMPLES, Array, Difference, difference_of, resamples
from dpe.text.corpus import read_lines
from dpe.text.preparation import Moses

METRICS = ("BLEU", "chrF2")
LENGTH_LIMITS = (10, 20, 30, 40, 50)


@dataclass(frozen=True)
class SystemOutput:
    """A system's output by name, line for line beside the reference."""

    name: str
    lines: list[str]


@dataclass(frozen=True)
class Scores:
    """One output against the reference."""

    name: str
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    lowercase_bleu: float  # for comparison with the literature
    lowercase_signature: str
    brevity_penalty: float  # a factor of BLEU: below 1 for an output that is shorter than the reference
    length_ratio: float  # tokens of the output for each of the reference


@dataclass(frozen=True)
class Summary:
    """Several seeds: the mean, and the standard deviation of a sample (n - 1), None for a single seed."""

    seeds: int
    bleu: float
    bleu_deviation: float | None
    chrf: float
    chrf_deviation: float | None


@dataclass(frozen=True)
class LengthBin:
    """Corpus BLEU over the lines whose reference has `shortest` to `longest` words; None is no limit."""

    shortest: int
    longest: int | None
    lines: int
    bleu: dict[str, float]  # by system

    @property
    def label(self) -> str:
        return f"over {self.shortest - 1}" if self.longest is None else f"{self.shortest}-{self.longest}"


def read_reference(path: Path) -> list[str]:
    """The reference; one without lines cannot be scored against."""
    lines = list(read_lines(path))
    if not lines:
        raise UserError(f"{path} is empty; give the reference translation.")
    return lines


def score(translation: SystemOutput, reference: Sequence[str], tokenize: str | None = None) -> Scores:
    """BLEU and chrF2 with sacreBLEU's defaults; `tokenize` may set what BLEU takes for a token."""
    bleu, chrf, lowercase = BLEU(tokenize=tokenize), CHRF(), BLEU(tokenize=tokenize, lowercase=True)
    found = bleu.corpus_score(translation.lines, [list(reference)])
    lowercase_bleu = lowercase.corpus_score(translation.lines, [list(reference)]).score
    return Scores(
        name=translation.name,
        bleu=found.score,
        chrf=chrf.corpus_score(translation.lines, [list(reference)]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        lowercase_bleu=lowercase_bleu,
        lowercase_signature=str(lowercase.get_signature()),
        brevity_penalty=found.bp,
        length_ratio=found.sys_len / max(found.ref_len, 1),
    )


def dev_bleu(
    *, moses: tuple[str, str] | None = None, tokenize: str | None = None
) -> Callable[[Sequence[str], Sequence[str]], tuple[float, float]]:
    """BLEU of development translations, by which epochs are chosen, and their length ratio.

    `tokenize` is sacreBLEU's.

    `moses` are the languages of a text tokenised by Moses' rules, which is undone on both sides.
    """
    detokenize = Moses(moses[1]).detokenize if moses else str

    def scored(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
        undone = [list(map(detokenize, lines)) for lines in (hypotheses, references)]
        found = BLEU(tokenize=tokenize).corpus_score(undone[0], [undone[1]])
        return float(found.score), found.sys_len / max(found.ref_len, 1)

    return scored


def summarise(scores: Sequence[Scores]) -> Summary:
    """Mean and standard deviation over the outputs of several seeds."""
    bleu, chrf = [one.bleu for one in scores], [one.chrf for one in scores]
    several = len(scores) > 1
    return Summary(
        seeds=len(scores),
        bleu=fmean(bleu),
        bleu_deviation=stdev(bleu) if several else None,
        chrf=fmean(chrf),
        chrf_deviation=stdev(chrf) if several else None,
    )


def bleu_by_length(
    translations: Sequence[SystemOutput],
    reference: Sequence[str],
    limits: Sequence[int] = LENGTH_LIMITS,
    *,
    tokenize: str | None = None,
) -> list[LengthBin]:
    """BLEU of each output over lines of similar length: words, between spaces, of the reference.

    Bins without a line are left out. A corpus score of few lines is noisy: show `lines` beside it.
    """
    bins = []
    for before, longest in zip((-1, *limits), (*limits, None), strict=True):
        numbers = [
            number
            for number, line in enumerate(reference)
            if before < len(line.split()) and (longest is None or len(line.split()) <= longest)
        ]
        if numbers:
            wanted, metric = [reference[number] for number in numbers], BLEU(tokenize=tokenize)
            bleu = {
                one.name: metric.corpus_score([one.lines[number] for number in numbers], [wanted]).score
                for one in translations
            }
            bins.append(LengthBin(max(before + 1, 1), longest, len(numbers), bleu))
    return bins


def paired_bootstrap(
    ours: Sequence[SystemOutput],
    baseline: Sequence[SystemOutput],
    reference: Sequence[str],
    *,
    samples: int = SAMPLES,
    tokenize: str | None = None,
) -> list[Difference]:
    """One test for each of METRICS. Every output is one seed's; the systems may have different numbers."""
    weights = resamples(len(reference), samples)
    found = []
    for metric, scores in (("BLEU", partial(_bleu_scores, tokenize=tokenize)), ("chrF2", _chrf_scores)):
        sides = [[scores(output.lines, reference, weights) for output in seeds] for seeds in (ours, baseline)]
        found.append(difference_of(metric, *sides))
    return found


def _bleu_scores(
    lines: Sequence[str], reference: Sequence[str], weights: Array, *, tokenize: str | None
) -> Array:
    """BLEU of each weighting of the lines, [weighting, line]."""
    bleu = BLEU(tokenize=tokenize)
    by_line = [bleu.corpus_score([line], [[wanted]]) for line, wanted in zip(lines, reference, strict=True)]
    counts = [[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in by_line]
    sums = weights @ np.array(counts, dtype=np.float64)  # [weighting, count]
    order = bleu.max_ngram_order
    scores = [
        BLEU.compute_bleu(
            correct=one[2 : 2 + order],
            total=one[2 + order :],
            sys_len=int(one[0]),
            ref_len=int(one[1]),
            smooth_method=bleu.smooth_method,
        ).score
        for one in sums.tolist()
    ]
    return np.array(scores)


def _chrf_scores(lines: Sequence[str], reference: Sequence[str], weights: Array) -> Array:
    """chrF2 of each weighting of the lines, [weighting, line].

    sacreBLEU does not give its counts of chrF, so both they and the score are computed here, by its
    definition: the F-score of the mean precision and the mean recall over the orders that both texts have.
    """
    counts = [
        (ours.total() if theirs else 0, theirs.total(), (ours & theirs).total())
        for pair in zip(lines, reference, strict=True)
        for ours, theirs in zip(*(extract_all_char_ngrams(x, CHRF.CHAR_ORDER) for x in pair), strict=True)
    ]
    by_line = np.array(counts, dtype=np.float64).reshape(len(lines), -1)
    sums = (weights @ by_line).reshape(len(weights), -1, 3)  # [weighting, order, count]
    ours, theirs, both = np.moveaxis(sums, -1, 0)
    used = (ours > 0) & (theirs > 0)
    precision, recall = (
        np.divide(both, whole, out=np.zeros_like(both), where=used).sum(axis=1)
        / np.maximum(used.sum(axis=1), 1)
        for whole in (ours, theirs)
    )
    weight = CHRF.BETA**2
    score, whole = (1 + weight) * precision * recall, weight * precision + recall
    f_scores: Array = np.divide(score, whole, out=np.zeros_like(score), where=whole > 0)
    return 100 * f_scores
