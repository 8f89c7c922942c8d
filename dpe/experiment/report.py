"""The report of a run: what its directory holds, as one page. Each section names what the run lacks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dpe.errors import UserError
from dpe.evaluation import html_page
from dpe.evaluation.comparison import compare_files, comparison_figures, comparison_tables
from dpe.evaluation.morphology import (
    evaluate_systems,
    morphology_figures,
    morphology_tables,
    read_gold,
    tally,
)
from dpe.evaluation.plots import TrainingCurve, draw_training_curves
from dpe.evaluation.segmented_text import read_pieces
from dpe.evaluation.tables import Table
from dpe.evaluation.translations import draw_bins
from dpe.experiment.outputs import pieces_file, training_counts
from dpe.experiment.recipe import recipe_toml
from dpe.experiment.results import Results, collect_results
from dpe.experiment.systems import DISTILLED_TITLE, OWN_TITLES, SEGMENTER_TITLES
from dpe.experiment.tables import frequency_tables, length_tables, mean_bins, system_tables
from dpe.experiment.texts import Texts, vocabulary_path
from dpe.model.checkpoint import CURVE
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.scored_edges import WordEdges, sentence_edges
from dpe.segmenter.segmenter import Segmenter
from dpe.text.corpus import read_lines
from dpe.text.words import MARKER
from dpe.training.log import read_curve

REPORT = "report.html"
_SENTENCES = 8  # shown with their segmentations
_SHORT = 90  # characters; a sentence no longer than this is preferred for the lattice
_CAPTIONS = {
    "disagreement": "Words that {0} and {1} segment differently, by their frequency in the training text.",
    "piece-lengths": "Lengths of the pieces of {0} and {1}.",
    "line-lengths": "Pieces in a line, segmented by {0} and {1}.",
}


class RunReport:
    """The sections of a run's report."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.results = collect_results(root)
        self.recipe = self.results.recipe
        self.texts = Texts.of_run(root, self.recipe)
        self.vocabulary = self.recipe.vocabulary.type  # of the segmenters
        self.own = OWN_TITLES[self.vocabulary]

    def write(self, out: Path) -> None:
        """Write all sections into one file."""
        parts = {
            "Results": score_blocks(self.results),
            "Training": self.training(),
            "Segmentations": self.segmentations(),
            "Morphology": self.morphology(),
            "Examples": self.examples(),
            "A lattice": self.lattice(),
            "BLEU by length": self.lengths(),
            "Words by frequency": self.frequencies(),
            "How to reproduce": self.reproduction(),
        }
        sections = [html_page.Section(title, blocks) for title, blocks in parts.items() if blocks]
        html_page.write_report(out, f"{self.recipe.name}: {self.recipe.pair}", self.recipe.about, sections)

    def training(self) -> list[html_page.Html]:
        """Curves of the segmenters and translators, finished or not."""
        segmenters, bits, bleu = [], [], []
        for group, (name, title) in enumerate(SEGMENTER_TITLES.items()):
            records = read_curve(self.root / "segmenters" / name / CURVE)
            segmenters += _curve(records, "train_bits", f"{title}, training", group, rough=True)
            segmenters += _curve(records, "dev_bits", f"{title}, dev", group)
        for group, system in enumerate(self.recipe.systems):
            title = self.results.titles[system.name]
            for seed in self.recipe.seeds:
                records = read_curve(self.root / "translators" / system.name / f"seed-{seed}" / CURVE)
                bits += _curve(records, "dev_bits", title, group)
                bleu += _curve(records, "dev_bleu", title, group)
        per_token = "Translators: bits per token of dev as the vocabulary segments it, a line per seed."
        figures = [
            ("segmenters", segmenters, "bits per character", "Segmenters: bits per character by step."),
            ("translators", bits, "bits per token", per_token),
            ("dev-bleu", bleu, "BLEU on dev", "Translators: BLEU on dev, a line per seed."),
        ]
        blocks = [
            html_page.figure(draw_training_curves(curves, ylabel=ylabel), name=name, caption=caption)
            for name, curves, ylabel, caption in figures
            if curves
        ]
        return blocks or [html_page.block("missing", "No model has been trained yet.")]

    @cached_property
    def _segmented(self) -> dict[str, Path]:
        """The text that was segmented for analyses, by the title of its segmenter; the vocabulary first."""
        return self._files("segmentations", "{}")

    def _files(self, kind: str, title: str) -> dict[str, Path]:
        """The segmented text of each finished stage of this kind, by the title of its segmenter."""
        file, titles = pieces_file(self.recipe.cut[0]), {self.vocabulary: self.own} | SEGMENTER_TITLES
        stages = {title.format(own): f"{kind}/{name}" for name, own in titles.items()}
        done = self.results.stages
        return {own: self.root / stage / file for own, stage in stages.items() if stage in done}

    @property
    def _compared(self) -> list[str]:
        """The titles of the segmenters that can be compared with the vocabulary's own segmentation."""
        return (
            [title for title in self._segmented if title != self.own] if self.own in self._segmented else []
        )

    def segmentations(self) -> list[html_page.Html]:
        """Each segmenter against the vocabulary's own segmentation: figures, then tables."""
        if not self._compared:
            return [
                html_page.block(
                    "missing", f"No segmenter has segmented a text yet, so none is compared with {self.own}."
                )
            ]
        counts = training_counts(vocabulary_path(self.root, self.vocabulary), self.texts)
        return list(chain.from_iterable(self._comparison(title, counts) for title in self._compared))

    def _comparison(self, title: str, counts: Mapping[str, int]) -> Iterator[html_page.Html]:
        result = compare_files(self._segmented[self.own], self._segmented[title], train_counts=counts)
        result = replace(result, a=replace(result.a, name=self.own), b=replace(result.b, name=title))
        for name, drawing in comparison_figures(result).items():
            own = f"{name}-{title.replace(' ', '-')}"
            yield html_page.figure(drawing, name=own, caption=_CAPTIONS[name].format(self.own, title))
        top, bands, numbers = comparison_tables(result)[:3]
        yield html_page.block("tables", [bands, numbers, *([top] if top.rows else [])])

    def morphology(self) -> list[html_page.Html]:
        """Boundaries against the gold morphemes of the built-in corpus; nothing for other corpora."""
        if not self._compared or self.texts.gold is None:
            return []
        gold = read_gold(self.texts.gold)
        files = self._segmented | self._files("distilled", DISTILLED_TITLE)
        tallies = {title: tally(read_pieces(file, "pieces"), gold) for title, file in files.items()}
        found = [one for one in evaluate_systems(tallies) if one.unit == "types"]
        drawing = next(iter(morphology_figures(found[:1]).values()))
        caption = "Boundaries against gold morphemes, with 95 % intervals."
        return [
            html_page.figure(drawing, name="morphology", caption=caption),
            html_page.block("tables", morphology_tables(found)),
        ]

    @cached_property
    def _sentences(self) -> list[html_page.ExampleCuts]:
        """The first sentences on which a segmenter and the vocabulary itself differ."""
        if not self._compared:
            return []
        sources = read_lines(self.texts.prepared(self.recipe.cut[0], self.texts.source))
        lines = zip(sources, *(read_pieces(path, "pieces") for path in self._segmented.values()), strict=True)
        rows = (
            html_page.ExampleCuts(source, dict(zip(self._segmented, cuts, strict=True)))
            for source, *cuts in lines
        )
        return list(islice((row for row in rows if any(row.differing)), _SENTENCES))

    def examples(self) -> list[html_page.Html]:
        """Sentences with their segmentations side by side."""
        if not self._compared:
            return [html_page.block("missing", "No segmenter has segmented a text yet.")]
        if not self._sentences:
            return [html_page.block("paragraph", "All segmenters agree on every sentence.")]
        shown = f"The first sentences of {self.recipe.cut[0]} that are segmented differently"
        return [
            html_page.block("paragraph", f"{shown}; the words that differ are marked."),
            html_page.block("examples", self._sentences),
        ]

    def lattice(self) -> list[html_page.Html]:
        """All segmentations of one sentence with their probabilities."""
        name = next((name for name in SEGMENTER_TITLES if f"segmenters/{name}" in self.results.stages), None)
        if name is None:
            return [html_page.block("missing", "No segmenter has finished training yet.")]
        pair = self._shown_pair()
        if pair is None:
            return [html_page.block("missing", "The text is empty, so there is no sentence to show.")]
        source, target = pair
        segmenter = Segmenter.load(self.root / "segmenters" / name)
        caption = (
            "The pieces of each word are arcs, as thick as probable; those of the best segmentation are "
            "orange, and ticks show its boundaries. Below the letters: the probability of a boundary in "
            f"percent. Arcs below {html_page.LEAST_DRAWN:.1%} are not drawn."
        )
        given = f" given: {source}" if segmenter.has_source else ""
        return [
            html_page.block("paragraph", f"{SEGMENTER_TITLES[name]}: {target}{given}"),
            html_page.block("lattices", _word_arcs(segmenter, source, target), caption),
        ]

    def _shown_pair(self) -> tuple[str, str] | None:
        """A short sentence on which the segmenters disagree, or the first of the text."""
        pairs = [
            (one.source, "".join(next(iter(one.cuts.values()))).replace(MARKER, " ").strip())
            for one in self._sentences
        ]
        if not pairs:
            both = zip(*map(read_lines, self.texts.prepared_pair(self.recipe.cut[0])), strict=True)
            pairs = list(islice((pair for pair in both if pair[1].strip()), 1))
        return next((pair for pair in pairs if len(pair[1]) <= _SHORT), pairs[0] if pairs else None)

    def lengths(self) -> list[html_page.Html]:
        """Whether outputs are too short, and the paper's last html_page.figure."""
        if not self.results.systems:
            return [html_page.block("missing", "Nothing has been translated yet.")]
        try:
            tables = length_tables([self.results])
        except UserError as error:
            return [html_page.block("missing", str(error))]
        caption = "BLEU on test over the length of the reference, mean of the seeds."
        drawing = draw_bins(mean_bins(self.results))
        return [html_page.figure(drawing, name="lengths", caption=caption), html_page.block("tables", tables)]

    def frequencies(self) -> list[html_page.Html]:
        """Which system gets rare words right."""
        if not self.results.systems:
            return [html_page.block("missing", "Nothing has been translated yet.")]
        try:
            return [html_page.block("tables", frequency_tables([self.results]))]
        except UserError as error:
            return [html_page.block("missing", str(error))]

    def reproduction(self) -> list[html_page.Html]:
        """The recipe, the commands, the versions, and the time that each stage took."""
        name, machine = self.recipe.name, self.results.machine
        recipe, run = shlex.quote(f"{name}.toml"), shlex.quote(f"runs/{name}")
        data = "" if self.recipe.corpus.builtin_pairs else " --set data=DIRECTORY_OF_THE_TEXTS"
        versions = [[package, version] for package, version in self.results.versions.items()]
        stages = [
            [stage, one["signature"], f"{one['seconds']:,.1f}"] for stage, one in self.results.stages.items()
        ]
        note = (
            f"On {machine['cores']} cores ({machine['cpu']}). The time of an interrupted stage counts from "
            "where it resumed."
        )
        columns = ["stage", "signature", "seconds"]
        tables = [
            Table("Versions", ["package", "version"], versions, frozenset({"package", "version"})),
            Table("Finished stages", columns, stages, frozenset(columns[:2]), note),
        ]
        return [
            html_page.block("paragraph", f"Save the recipe below as {name}.toml, then:"),
            html_page.block("preformatted", f"dpe run {recipe} --out {run}{data}\ndpe report {run}"),
            html_page.block("preformatted", recipe_toml(self.recipe)),
            html_page.block("tables", tables),
        ]


def score_blocks(results: Results) -> list[html_page.Html]:
    """The scores of every system and seed, after those that are missing."""
    scored = {(system.name, seed.seed) for system in results.systems for seed in system.seeds}
    lacking = [
        f"{system.title} seed {seed}"
        for system in results.recipe.systems
        for seed in results.recipe.seeds
        if (system.name, seed) not in scored
    ]
    message = f"Not scored yet: {', '.join(lacking)}; run 'dpe run' again to continue."
    tables = system_tables(results) if results.systems else []
    return [*([html_page.block("missing", message)] if lacking else []), html_page.block("tables", tables)]


def _curve(
    records: Sequence[Mapping[str, Any]], key: str, name: str, group: int, *, rough: bool = False
) -> list[TrainingCurve]:
    points = [(record["step"], record[key]) for record in records if record.get(key) is not None]
    return [TrainingCurve(name, points, group, rough)] if points else []


def _word_arcs(segmenter: Segmenter, source: str, target: str) -> list[html_page.WordArcs]:
    """The lattice of every word of a target."""
    pieces = segmenter.vocabulary.source.encode(source) if segmenter.has_source else None
    example = segmenter.example(0, pieces, target)

    def answer(batch: ScoredBatch) -> list[list[WordEdges]]:
        return [sentence_edges(batch)]

    (words,) = segmenter.answers([example], answer)
    return [
        html_page.WordArcs(
            word, [html_page.Arc(e.start, e.end, e.probability, e.on_best_path) for e in found.edges]
        )
        for word, found in zip(example.words, words, strict=True)
    ]
