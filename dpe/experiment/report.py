"""The report of a run: what its directory holds, as one page; what is not made yet is named as such."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dpe.errors import UserError
from dpe.evaluation.comparison_report import compare_files, comparison_tables, draw_comparison
from dpe.evaluation.html_page import (
    ExampleCuts,
    Html,
    Section,
    example_cuts,
    figure,
    html_table,
    missing,
    paragraph,
    preformatted,
    words_of,
    write_report,
)
from dpe.evaluation.lattice_picture import LEAST_DRAWN, Arc, WordArcs, lattice_picture
from dpe.evaluation.morphology import read_gold, tally
from dpe.evaluation.morphology_report import draw_morphology, evaluate_systems, morphology_tables
from dpe.evaluation.plots import TrainingCurve, draw_training_curves
from dpe.evaluation.score_report import draw_bins
from dpe.evaluation.segmented_text import read_pieces
from dpe.evaluation.tables import Table
from dpe.experiment.outputs import pieces_file, training_counts
from dpe.experiment.results import (
    P_VALUES,
    SIGNIFICANT,
    Metric,
    Results,
    SystemResult,
    collect_results,
    verdict_on_means,
)
from dpe.experiment.systems import SEGMENTER_TITLES
from dpe.experiment.tables import (
    METRIC_NAMES,
    baseline_of,
    length_tables,
    mean_bins,
    mean_score,
    paper_tables,
)
from dpe.experiment.texts import Texts, vocabulary_path
from dpe.experiment.writing import recipe_toml
from dpe.model.checkpoint import CURVE
from dpe.segmenter.lattice_edges import WordEdges, sentence_edges
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.segmenter import Segmenter
from dpe.text.corpus import read_lines
from dpe.text.words import MARKER
from dpe.training.log import read_curve

REPORT = "report.html"
_SENTENCES = 8  # shown with their cuts
_SHORT = 90  # characters of a sentence whose lattice is shown, where there is such a one
_CAPTIONS = {
    "disagreement": "Words that {0} and {1} cut differently, by their frequency in the training text.",
    "piece-lengths": "Lengths of the pieces of {0} and {1}.",
    "line-lengths": "Pieces in a line, cut by {0} and {1}.",
}


class RunReport:
    """The sections of a run's report; each says what it lacks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = collect_results(root)
        self.recipe = self.results.recipe
        self.texts = Texts.of_run(root, self.recipe)

    def write(self, out: Path) -> None:
        """Write all sections into one file."""
        parts = {
            "Results": lambda: score_blocks(self.results),
            "Training": self.training,
            "Cuts": self.segmentations,
            "Morphology": self.morphology,
            "Examples": self.examples,
            "A lattice": self.lattice,
            "BLEU by length": self.lengths,
            "How to reproduce": self.reproduction,
        }
        sections = [Section(title, blocks) for title, part in parts.items() if (blocks := part())]
        recipe = self.recipe
        write_report(out, f"{recipe.name}: {recipe.pair}", recipe.about, sections)

    def training(self) -> list[Html]:
        """Curves of the segmenters and translators, finished or not."""
        segmenters, bits, bleu = [], [], []
        for group, (name, title) in enumerate(SEGMENTER_TITLES.items()):
            records = read_curve(self.root / "segmenters" / name / CURVE)
            segmenters += _curve(records, "train_bits", f"{title}, training", group, rough=True)
            segmenters += _curve(records, "dev_bits", f"{title}, dev", group)
        for group, system in enumerate(self.recipe.systems):
            for seed in self.recipe.seeds:
                directory = self.root / "translators" / system.name / f"seed-{seed}"
                records = read_curve(directory / CURVE)
                bits += _curve(records, "dev_bits", self.results.titles[system.name], group)
                bleu += _curve(records, "dev_bleu", self.results.titles[system.name], group)
        figures = [
            (
                "segmenters",
                "Segmenters: bits per character over the steps.",
                "bits per character",
                segmenters,
            ),
            (
                "translators",
                "Translators: bits per token of dev in the vocabulary's own cut, each seed a line.",
                "bits per token",
                bits,
            ),
            ("dev-bleu", "Translators: BLEU on dev, each seed a line.", "BLEU on dev", bleu),
        ]
        blocks = [
            figure(draw_training_curves(curves, ylabel=ylabel), name=name, caption=caption)
            for name, caption, ylabel, curves in figures
            if curves
        ]
        return blocks or [missing("No model has been trained yet.")]

    @cached_property
    def _cut(self) -> dict[str, Path]:
        """The text that was cut for analyses, by the title of who cut it; BPE first."""
        file = pieces_file(self.recipe.cut[0])
        titles = {"bpe": "BPE"} | SEGMENTER_TITLES
        stages = {title: f"segmentations/{name}" for name, title in titles.items()}
        done = self.results.stages
        return {title: self.root / stage / file for title, stage in stages.items() if stage in done}

    @property
    def _compared(self) -> list[str]:
        """The titles of the segmenters whose cuts can be compared with BPE's."""
        return [title for title in self._cut if title != "BPE"] if "BPE" in self._cut else []

    def segmentations(self) -> list[Html]:
        """Each segmenter against BPE: figures, then tables."""
        if not self._compared:
            return [missing("No segmenter has cut a text yet, so there is nothing to compare with BPE.")]
        counts = training_counts(vocabulary_path(self.root, "bpe"), self.texts)
        return [block for title in self._compared for block in self._comparison(title, counts)]

    def _comparison(self, title: str, counts: Mapping[str, int]) -> Iterator[Html]:
        result = compare_files(self._cut["BPE"], self._cut[title], train_counts=counts)
        result = replace(result, a=replace(result.a, name="BPE"), b=replace(result.b, name=title))
        with TemporaryDirectory() as directory:
            draw_comparison(result, Path(directory))
            for name, caption in _CAPTIONS.items():
                svg = (Path(directory) / f"{name}.svg").read_text(encoding="utf-8")
                own = f"{name}-{title.replace(' ', '-')}"
                yield figure(svg, name=own, caption=caption.format("BPE", title))
        top, bands, numbers = comparison_tables(result)[:3]
        yield from map(html_table, (bands, numbers, *([top] if top.rows else [])))

    def morphology(self) -> list[Html]:
        """Boundaries against the gold morphemes of the built-in corpus; nothing for other corpora."""
        if not self._compared or self.texts.gold is None:
            return []
        gold = read_gold(self.texts.gold)
        tallies = {title: tally(read_pieces(file, "pieces"), gold) for title, file in self._cut.items()}
        found = [one for one in evaluate_systems(tallies) if one.unit == "types"]
        with TemporaryDirectory() as directory:
            drawn = (path for path in draw_morphology(found, Path(directory)) if path.suffix == ".svg")
            caption = "Boundaries against gold morphemes, with 95 % intervals."
            svg = next(drawn).read_text(encoding="utf-8")
        return [figure(svg, name="morphology", caption=caption), *map(html_table, morphology_tables(found))]

    @cached_property
    def _sentences(self) -> list[ExampleCuts]:
        """The first sentences that a segmenter cuts otherwise than BPE does."""
        if not self._compared:
            return []
        sources = read_lines(self.texts.prepared(self.recipe.cut[0], self.texts.source))
        lines = zip(sources, *(read_pieces(path, "pieces") for path in self._cut.values()), strict=True)
        rows = (ExampleCuts(source, dict(zip(self._cut, cuts, strict=True))) for source, *cuts in lines)
        return list(islice((row for row in rows if _differs(row)), _SENTENCES))

    def examples(self) -> list[Html]:
        """Sentences cut side by side."""
        if not self._compared:
            return [missing("No segmenter has cut a text yet.")]
        if not self._sentences:
            return [paragraph("Every sentence is cut alike.")]
        shown = f"The first sentences of {self.recipe.cut[0]} that are cut differently"
        return [paragraph(f"{shown}; the words that differ are marked."), example_cuts(self._sentences)]

    def lattice(self) -> list[Html]:
        """All cuts of one sentence with their probabilities."""
        name = next((name for name in SEGMENTER_TITLES if f"segmenters/{name}" in self.results.stages), None)
        if name is None:
            return [missing("No segmenter has been trained to its end yet.")]
        pair = self._shown_pair()
        if pair is None:
            return [missing("The text is empty, so there is no sentence to show.")]
        source, target = pair
        segmenter = Segmenter.load(self.root / "segmenters" / name)
        words, edges = _edges(segmenter, source, target)
        caption = (
            "The pieces of each word are arcs, as thick as probable; those of the best cut are orange, "
            "and ticks show where it cuts. Below the letters: the probability of a boundary in percent. "
            f"Arcs below {LEAST_DRAWN:.1%} are not drawn."
        )
        given = f" given: {source}" if segmenter.has_source else ""
        return [
            paragraph(f"{SEGMENTER_TITLES[name]}: {target}{given}"),
            lattice_picture([_word_arcs(*pair) for pair in zip(words, edges, strict=True)], caption=caption),
        ]

    def _shown_pair(self) -> tuple[str, str] | None:
        """A short sentence on whose cut the segmenters disagree, or the first of the text."""
        pairs = [(one.source, _text(next(iter(one.cuts.values())))) for one in self._sentences]
        if not pairs:
            both = zip(*map(read_lines, self.texts.prepared_pair(self.recipe.cut[0])), strict=True)
            pairs = list(islice((pair for pair in both if pair[1].strip()), 1))
        return next((pair for pair in pairs if len(pair[1]) <= _SHORT), pairs[0] if pairs else None)

    def lengths(self) -> list[Html]:
        """Whether outputs are too short, and the paper's last figure."""
        if not self.results.systems:
            return [missing("Nothing has been translated yet.")]
        try:
            tables = length_tables([self.results])
        except UserError as error:
            return [missing(str(error))]
        with TemporaryDirectory() as directory:
            place = Path(directory) / "lengths"
            draw_bins(mean_bins(self.results), place)
            svg = place.with_suffix(".svg").read_text(encoding="utf-8")
        caption = "BLEU on test over the length of the reference, mean of the seeds."
        return [figure(svg, name="lengths", caption=caption), *map(html_table, tables)]

    def reproduction(self) -> list[Html]:
        """The recipe, the commands, the versions, and what took how long."""
        name = self.recipe.name
        recipe, run = shlex.quote(f"{name}.toml"), shlex.quote(f"runs/{name}")
        data = "" if self.recipe.corpus.builtin_pairs else " --set data=DIRECTORY_OF_THE_TEXTS"
        versions = [[package, version] for package, version in self.results.versions.items()]
        stages = [
            [stage, one["signature"], f"{one['seconds']:,.1f}"] for stage, one in self.results.stages.items()
        ]
        return [
            paragraph(f"Save the recipe below as {name}.toml, then:"),
            preformatted(f"dpe run {recipe} --out {run}{data}\ndpe report {run}"),
            preformatted(recipe_toml(self.recipe)),
            html_table(
                Table("Versions", ["package", "version"], versions, frozenset({"package", "version"}))
            ),
            html_table(
                Table(
                    "Stages that are made",
                    ["stage", "signature", "seconds"],
                    stages,
                    frozenset({"stage", "signature"}),
                    f"On {self.results.machine['cores']} cores ({self.results.machine['cpu']}). A stage that "
                    "was interrupted counts from where it went on.",
                )
            ),
        ]


def _curve(
    records: Sequence[Mapping[str, Any]], key: str, name: str, group: int, *, rough: bool = False
) -> list[TrainingCurve]:
    points = [(record["step"], record[key]) for record in records if record.get(key) is not None]
    return [TrainingCurve(name, points, group, rough)] if points else []


def _differs(example: ExampleCuts) -> bool:
    first, *others = map(words_of, example.cuts.values())
    return any(other != first for other in others)


def _text(pieces: Sequence[str]) -> str:
    return "".join(pieces).replace(MARKER, " ").strip()


def _edges(segmenter: Segmenter, source: str, target: str) -> tuple[Sequence[str], list[WordEdges]]:
    """The words of a target, and the edges of each."""
    cut = segmenter.vocabulary.encode(source) if segmenter.has_source else None
    example = segmenter.example(0, cut, target)

    def answer(batch: ScoredBatch) -> list[list[WordEdges]]:
        return [sentence_edges(batch)]

    return example.words, segmenter.answers([example], answer)[0]


def _word_arcs(word: str, found: WordEdges) -> WordArcs:
    arcs = [Arc(edge.start, edge.end, edge.probability, edge.on_best_path) for edge in found.edges]
    return WordArcs(word, arcs)


def score_blocks(results: Results) -> list[Html]:
    """The paper's table turned, so that it fits a phone: a row for each system; then tests and seeds."""
    lacking = _lacking(results)
    blocks = [missing(f"Not scored yet: {lacking}; 'dpe run' goes on with them.")] if lacking else []
    if not results.systems:
        return blocks
    tests = paper_tables([results])[1:]
    tables = [*(_score_table(results, metric) for metric in METRIC_NAMES), *tests, _seed_table(results)]
    return [*blocks, *map(html_table, tables)]


def _lacking(results: Results) -> str:
    scored = {(system.name, seed.seed) for system in results.systems for seed in system.seeds}
    wanted = [(system, seed) for system in results.recipe.systems for seed in results.recipe.seeds]
    return ", ".join(f"{one.title} seed {seed}" for one, seed in wanted if (one.name, seed) not in scored)


def _score_table(results: Results, metric: Metric) -> Table:
    systems = {system.name: system for system in results.systems}
    columns = [(system.name, system.title) for system in systems.values()]
    rows = []
    for system in systems.values():
        baseline = baseline_of(system.name, columns)
        against = _difference(results, system, systems[baseline], metric) if baseline else ["", "", ""]
        scores = [mean_score(system, metric, text) for text in ("dev", "test")]
        rows.append([system.title, str(len(system.seeds)), *scores, *against])
    signatures = {
        seed.scores["test"][f"{metric}_signature"] for one in systems.values() for seed in one.seeds
    }
    note = [
        "Mean of the seeds ± standard deviation; Δ on test is the difference of the means.",
        f"{P_VALUES} * p < {SIGNIFICANT}.",
        *(f"{METRIC_NAMES[metric]}: {signature}" for signature in sorted(signatures)),
    ]
    left = frozenset({"system", "against"})
    headings = ["system", "seeds", "dev", "test", "Δ", "p", "against"]
    return Table(METRIC_NAMES[metric], headings, rows, left, "\n".join(note))


def _difference(results: Results, system: SystemResult, other: SystemResult, metric: Metric) -> list[str]:
    """Difference on test, p, and from what."""
    found = verdict_on_means(results, system, other, METRIC_NAMES[metric])
    delta = f"{system.mean(metric, 'test') - other.mean(metric, 'test'):+.2f}{found.star if found else ''}"
    return [delta, f"{found.p_value:.4f}" if found else "", other.title]


def _seed_table(results: Results) -> Table:
    rows = [
        [
            system.title,
            str(seed.seed),
            *(f"{seed.scores[text][metric]:.2f}" for metric in METRIC_NAMES for text in ("dev", "test")),
            seed.signature,
        ]
        for system in results.systems
        for seed in system.seeds
    ]
    columns = ["system", "seed", "BLEU dev", "BLEU test", "chrF2 dev", "chrF2 test", "signature"]
    note = "The signature is a hash of all settings and inputs that a score depends on."
    return Table("Every seed", columns, rows, frozenset({"system", "signature"}), note)
