"""BLEU and chrF2 by sacreBLEU, with signatures, over seeds and by length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dpe.errors import UserError
from dpe.evaluation.segmented_text import is_cut
from dpe.evaluation.tables import short_names
from dpe.text.corpus import read_lines
from dpe.text.preparation import Moses

_SAMPLES = 1000
_SEED = 12345  # as sacreBLEU's
_ROUNDING = 1e-9  # of mean scores, which depends on the order of the seeds


@dataclass(frozen=True)
class Difference:
    """The mean score of one system minus the other's: 95 % interval, and two-sided p of no difference."""

    metric: str
    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    ours: Sequence[SystemOutput],
    baseline: Sequence[SystemOutput],
    reference: Sequence[str],
    *,
    samples: int = _SAMPLES,
    tokenize: str | None = None,
) -> list[Difference]:
    """Every translation is one seed's; the two systems may have different numbers of seeds."""
    counts = _resampled_counts(len(reference), samples)
    found = []
    for name, metric in metrics(tokenize).items():
        means = [
            np.mean([_scores(metric, one.lines, reference, counts) for one in seeds], axis=0)
            for seeds in (ours, baseline)
        ]
        found.append(_summary(name, means[0] - means[1]))
    return found


def _resampled_counts(lines: int, samples: int) -> NDArray[np.float64]:
    """How often each resample takes each line; the first row is the text itself."""  # [1 + sample, line]
    drawn = np.random.default_rng(_SEED).choice(lines, size=(samples, lines), replace=True)
    counts = [np.bincount(sample, minlength=lines) for sample in drawn]
    return np.array([np.ones(lines), *counts])


def _summary(metric: str, differences: NDArray[np.float64]) -> Difference:
    """Of the difference on the text itself, which comes first, and on its resamples."""
    real, resampled = float(differences[0]), differences[1:]
    low, high = np.percentile(resampled, [2.5, 97.5])
    as_far = np.abs(resampled - resampled.mean()) >= abs(real) - _ROUNDING
    p_value = (int(as_far.sum()) + 1) / (len(resampled) + 1)
    return Difference(metric, real, float(low), float(high), p_value)


def _scores(
    metric: Metric, lines: Sequence[str], reference: Sequence[str], counts: NDArray[np.float64]
) -> list[float]:
    """The corpus score of every resample, from sums of sacreBLEU's counts by line."""
    by_line = metric._extract_corpus_statistics(lines, [reference])  # what its own bootstrap calls
    sums = counts @ np.array(by_line, dtype=np.float64)  # [1 + sample, statistic]
    return [cast(Any, metric._compute_score_from_stats(one)).score for one in sums.tolist()]


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
    brevity_penalty: float  # a factor of BLEU: below 1 for an output that is shorter than the reference
    length_ratio: float  # tokens of the output for each of the reference


@dataclass(frozen=True)
class Summary:
    """Several seeds: the mean, and the standard deviation of a sample (n - 1); none of a single seed."""

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


def read_translations(
    paths: Sequence[Path], reference: Sequence[str], reference_path: Path
) -> list[SystemOutput]:
    """Outputs named by their files, short where that is enough; each must have the reference's length."""
    translations = []
    for path, name in zip(paths, short_names(paths), strict=True):
        lines = list(read_lines(path))
        if len(lines) != len(reference):
            raise UserError(
                f"{path} has {len(lines)} lines but {reference_path} has {len(reference)}; "
                "a translation needs one line for each of the reference."
            )
        translations.append(SystemOutput(name, lines))
    return translations


def doubt(lines: Sequence[str]) -> str | None:
    """What is odd about a text that is to be scored; BLEU of such text compares with nobody else's."""
    if 2 * sum(map(is_cut, lines)) > len(lines):
        return "is cut into pieces, it seems; join them by dpe decode"
    ends = [line for line in lines if line.endswith(".")]
    if 2 * sum(line.endswith(" .") for line in ends) > len(ends):
        return "is tokenised, it seems (there are blanks before full stops); detokenise it"
    return None


def read_reference(path: Path) -> list[str]:
    """The reference; one without lines cannot be scored against."""
    lines = list(read_lines(path))
    if not lines:
        raise UserError(f"{path} is empty; give the reference translation.")
    return lines


def metrics(tokenize: str | None) -> dict[str, Metric]:
    """sacreBLEU's, with its defaults but for what BLEU takes for a token, if that is given."""
    return dict(zip(METRICS, (BLEU(tokenize=tokenize), CHRF()), strict=True))


def score(translation: SystemOutput, reference: Sequence[str], tokenize: str | None = None) -> Scores:
    """BLEU and chrF2 as sacreBLEU defines them by default."""
    bleu, chrf = BLEU(tokenize=tokenize), CHRF()
    found = bleu.corpus_score(translation.lines, [list(reference)])
    return Scores(
        name=translation.name,
        bleu=found.score,
        chrf=chrf.corpus_score(translation.lines, [list(reference)]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        brevity_penalty=found.bp,
        length_ratio=found.sys_len / max(found.ref_len, 1),
    )


def dev_bleu(
    *, moses: tuple[str, str] | None = None, tokenize: str | None = None
) -> Callable[[Sequence[str], Sequence[str]], float]:
    """BLEU of development translations, by which epochs are chosen; `tokenize` is sacreBLEU's.

    `moses` are the languages of a text tokenised by Moses' rules, which is undone on both sides.
    """
    detokenize = Moses(moses[1]).detokenize if moses else str

    def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
        undone = [list(map(detokenize, lines)) for lines in (hypotheses, references)]
        return float(BLEU(tokenize=tokenize).corpus_score(undone[0], [undone[1]]).score)

    return bleu


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
    """BLEU of each output over lines of similar length: words, between blanks, of the reference.

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
