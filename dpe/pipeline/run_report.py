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
from dpe.inference.lattice_edges import WordEdges, sentence_edges
from dpe.inference.scored_batch import ScoredBatch
from dpe.inference.segmenter import Segmenter
from dpe.pipeline.length_tables import length_tables, mean_bins
from dpe.pipeline.outputs import pieces_file, training_counts
from dpe.pipeline.results import collect_results
from dpe.pipeline.scores_section import score_blocks
from dpe.pipeline.texts import Texts, vocabulary_path
from dpe.recipe.systems import SEGMENTER_TITLES
from dpe.recipe.writing import recipe_toml
from dpe.text.corpus import read_lines
from dpe.text.marked_words import MARKER
from dpe.training.curve import CURVE, read_curve

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
