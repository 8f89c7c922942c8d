"""Translations against a reference, as `dpe evaluate` shows them: scores, tests, by length and frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from dpe.errors import UserError
from dpe.evaluation.plots import draw_lines
from dpe.evaluation.scores import (
    LengthBin,
    Scores,
    Summary,
    SystemOutput,
    bleu_by_length,
    paired_bootstrap,
    read_reference,
    score,
    summarise,
)
from dpe.evaluation.segmented_text import is_cut
from dpe.evaluation.significance import Difference
from dpe.evaluation.tables import Table, short_names
from dpe.evaluation.word_frequency import (
    FrequencyBand,
    bootstrap_by_frequency,
    f1_by_frequency,
    read_counts,
)
from dpe.text.corpus import read_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEAN = "mean of seeds"
_WORDS = "words in the reference"
FREQUENCY = "count in training"
BANDS_NOTE = (
    "Words are BLEU's tokens with their case, those counted are the reference's. Output words match words of "
    "their line's reference, each once."
)


@dataclass(frozen=True, kw_only=True)
class NamedDifference(Difference):
    """One hypothesis, or the mean of several, against one baseline."""

    system: str
    baseline: str


@dataclass(frozen=True)
class Evaluation:
    """The outputs of one system's seeds, the baselines, and how they differ."""

    hypotheses: list[Scores]
    summary: Summary
    baselines: list[Scores]
    significance: list[NamedDifference]
    by_length: list[LengthBin]
    by_frequency: list[FrequencyBand]
    doubts: list[str]  # about the text itself


def score_translations(
    hypotheses: Sequence[Path],
    reference: Path,
    baselines: Sequence[Path] = (),
    *,
    by_length: bool = False,
    by_frequency: Path | None = None,
    tokenize: str | None = None,
) -> Evaluation:
    """Score files. Several hypotheses are seeds of one system; each baseline is a system of its own.

    `by_frequency` is the training target, or a list of its words with their counts.
    """
    lines = read_reference(reference)
    frequency = read_counts(by_frequency, tokenize) if by_frequency else None
    outputs = _read_translations([*hypotheses, *baselines], lines, reference)
    paths, texts = [reference, *hypotheses, *baselines], [lines, *(one.lines for one in outputs)]
    seeds, others = outputs[: len(hypotheses)], outputs[len(hypotheses) :]
    scores = [score(one, lines, tokenize) for one in seeds]
    tested = {one.name: [one] for one in seeds} | ({MEAN: seeds} if len(seeds) > 1 else {})

    def differences(translations: list[SystemOutput], baseline: SystemOutput) -> list[Difference]:
        found = paired_bootstrap(translations, [baseline], lines, tokenize=tokenize)
        if frequency is not None:
            found += bootstrap_by_frequency(translations, [baseline], lines, frequency, tokenize=tokenize)
        return found

    return Evaluation(
        hypotheses=scores,
        summary=summarise(scores),
        baselines=[score(one, lines, tokenize) for one in others],
        significance=[
            NamedDifference(**asdict(found), system=name, baseline=baseline.name)
            for baseline in others
            for name, translations in tested.items()
            for found in differences(translations, baseline)
        ],
        by_length=bleu_by_length(outputs, lines, tokenize=tokenize) if by_length else [],
        by_frequency=[]
        if frequency is None
        else f1_by_frequency(outputs, lines, frequency, tokenize=tokenize),
        doubts=[
            f"{path} {odd}; scores of such text are not comparable."
            for path, text in zip(paths, texts, strict=True)
            if (odd := _doubt(text))
        ],
    )


def _read_translations(
    paths: Sequence[Path], reference: Sequence[str], reference_path: Path
) -> list[SystemOutput]:
    """Outputs named by their files; each must have as many lines as the reference."""
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


def _doubt(lines: Sequence[str]) -> str | None:
    """Why the scores of a text may not be comparable with anybody else's; None if all is well."""
    if 2 * sum(map(is_cut, lines)) > len(lines):
        return "seems to be segmented; join the pieces with dpe decode"
    ends = [line for line in lines if line.endswith(".")]
    if 2 * sum(line.endswith(" .") for line in ends) > len(ends):
        return "seems to be tokenised (there are spaces before full stops); detokenise it"
    return None


def evaluation_tables(evaluation: Evaluation) -> list[Table]:
    """Scores with signatures, tests, BLEU by length, F1 by frequency, as far as there are any."""
    lengths = [bins_table(_shown_bins(evaluation), "BLEU by length")] if evaluation.by_length else []
    bands = [replace(band, f1=_shown(evaluation, band.f1)) for band in evaluation.by_frequency]
    tests = [_significance_table(evaluation.significance)] if evaluation.significance else []
    return [_scores_table(evaluation), *tests, *lengths, *([bands_table(bands)] if bands else [])]


def evaluation_figures(evaluation: Evaluation) -> dict[str, Figure]:
    """The paper's last figure, by file name; seeds are shown by their mean."""
    return {"bleu-by-length": draw_bins(_shown_bins(evaluation))} if evaluation.by_length else {}


def draw_bins(bins: Sequence[LengthBin]) -> Figure:
    """BLEU over the length of the reference, a line for each system of the bins."""
    labels = [f"{part.label}\n{part.lines:,}" for part in bins]
    systems = {name: [part.bleu[name] for part in bins] for name in bins[0].bleu}
    return draw_lines(labels, systems, xlabel=f"{_WORDS}, and number of lines", ylabel="BLEU")


def bins_table(bins: Sequence[LengthBin], title: str) -> Table:
    """BLEU by length as a table, a column for each system."""
    rows = [[part.label, f"{part.lines:,}", *(f"{bleu:.2f}" for bleu in part.bleu.values())] for part in bins]
    return Table(title, [_WORDS, "lines", *bins[0].bleu], rows, frozenset({_WORDS}))


def bands_table(bands: Sequence[FrequencyBand], title: str = "F1 of words by frequency") -> Table:
    """F1 by frequency as a table, a column for each system."""
    rows = [[band.label, f"{band.words:,}", *(f"{f1:.2f}" for f1 in band.f1.values())] for band in bands]
    return Table(title, [FREQUENCY, "words", *bands[0].f1], rows, frozenset({FREQUENCY}), BANDS_NOTE)


def _scores_table(evaluation: Evaluation) -> Table:
    def cells(scores: Scores) -> list[str]:
        numbers = (f"{scores.bleu:.2f}", f"{scores.lowercase_bleu:.2f}", f"{scores.chrf:.2f}")
        return [*numbers, f"{scores.length_ratio:.3f}", f"{scores.brevity_penalty:.3f}"]

    rows = [[one.name, *cells(one)] for one in evaluation.hypotheses]
    summary = evaluation.summary
    if summary.bleu_deviation is not None and summary.chrf_deviation is not None:
        bleu = f"{summary.bleu:.2f} ± {summary.bleu_deviation:.2f}"
        chrf = f"{summary.chrf:.2f} ± {summary.chrf_deviation:.2f}"
        lengths = fmean(one.length_ratio for one in evaluation.hypotheses)
        lowercase = fmean(one.lowercase_bleu for one in evaluation.hypotheses)
        penalties = fmean(one.brevity_penalty for one in evaluation.hypotheses)
        rows.append([MEAN, bleu, f"{lowercase:.2f}", chrf, f"{lengths:.3f}", f"{penalties:.3f}"])
    rows += [[f"{one.name} (baseline)", *cells(one)] for one in evaluation.baselines]
    first = evaluation.hypotheses[0]
    note = (
        f"BLEU: {first.bleu_signature}\nlowercased: {first.lowercase_signature}\n"
        f"chrF2: {first.chrf_signature}\n"
        "length: of the output for each token of the reference; BLEU has the brevity penalty as a factor"
    )
    columns = ["system", "BLEU", "lowercased", "chrF2", "length", "brevity penalty"]
    return Table("Scores", columns, rows, frozenset({"system"}), note)


def _significance_table(tests: Sequence[NamedDifference]) -> Table:
    rows = []
    for test in tests:
        difference = f"{test.difference:+.2f} [{test.low:.2f}, {test.high:.2f}]"
        rows.append([test.system, test.baseline, test.metric, difference, f"{test.p_value:.4f}"])
    columns = ["system", "baseline", "metric", "difference", "p"]
    note = "In brackets 95 % intervals over the lines; p is two-sided."
    return Table("Paired bootstrap", columns, rows, frozenset(columns[:3]), note)


def _shown_bins(evaluation: Evaluation) -> list[LengthBin]:
    return [replace(part, bleu=_shown(evaluation, part.bleu)) for part in evaluation.by_length]


def _shown(evaluation: Evaluation, scores: Mapping[str, float]) -> dict[str, float]:
    """Of the hypothesis, or the mean of its seeds, and of each baseline."""
    seeds = [one.name for one in evaluation.hypotheses]
    name = seeds[0] if len(seeds) == 1 else MEAN
    others = {one.name: scores[one.name] for one in evaluation.baselines}
    return {name: fmean(scores[seed] for seed in seeds)} | others
