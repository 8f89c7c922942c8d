"""The report of a run: what its directory holds, as one page; what is not made yet is named as such."""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from dpe.evaluation.comparison_report import compare_files, comparison_tables, draw_comparison
from dpe.evaluation.morphology import read_gold, tally
from dpe.evaluation.morphology_report import draw_morphology, evaluate_systems, morphology_tables
from dpe.evaluation.plots import draw_lines
from dpe.evaluation.report import (
    LEAST_DRAWN,
    Arc,
    ExampleCuts,
    Html,
    Section,
    TrainingCurve,
    WordLattice,
    draw_training_curves,
    example_cuts,
    figure,
    html_table,
    lattice_picture,
    missing,
    paragraph,
    preformatted,
    words_of,
    write_report,
)
from dpe.evaluation.scores import Translation, bleu_by_length, read_reference
from dpe.evaluation.segmented_text import read_pieces
from dpe.evaluation.tables import Table
from dpe.explorer.lattices import WordEdges, sentence_edges
from dpe.inference.scored_batch import ScoredBatch
from dpe.inference.segmenter import Segmenter
from dpe.pipeline.outputs import pieces_file
from dpe.pipeline.paper_table import SIGNIFICANT, baseline_of, largest_p, paper_tables
from dpe.pipeline.results import Metric, SystemResult, collect_results
from dpe.pipeline.texts import Texts
from dpe.recipe.systems import SYSTEMS
from dpe.text.corpus import read_lines
from dpe.training.curve import CURVE, read_curve

REPORT = "report.html"
_SEGMENTERS = {"mixed": "DPE", "lm": "LM DPE"}
_METRICS: dict[Metric, str] = {"bleu": "BLEU", "chrf": "chrF2"}
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
        moses = self.recipe["corpus"]["moses"]
        self.texts = Texts(root / "corpus", self.recipe["source"], self.recipe["target"], moses)

    def write(self, out: Path) -> None:
        """Write all sections into one file."""
        parts = {
            "Results": self.scores,
            "Training": self.training,
            "Cuts": self.segmentations,
            "Morphology": self.morphology,
            "Examples": self.examples,
            "A lattice": self.lattice,
            "BLEU by length": self.lengths,
            "How to reproduce": self.reproduction,
        }
        sections = [Section(title, blocks) for title, part in parts.items() if (blocks := part())]
        name = self.recipe["name"]
        write_report(out, f"{name}: {self.results.pair}", self.recipe.get("about", ""), sections)

    def scores(self) -> list[Html]:
        """The paper's table turned, so that it fits a phone: a row for each system; then tests and seeds."""
        systems = self.results.systems
        lacking = self._lacking()
        blocks = [missing(f"Not scored yet: {lacking}; 'dpe run' goes on with them.")] if lacking else []
        if not systems:
            return blocks
        tests = paper_tables([self.results])[1:]
        tables = [*(self._score_table(metric) for metric in _METRICS), *tests, self._seed_table()]
        return [*blocks, *map(html_table, tables)]

    def _lacking(self) -> str:
        scored = {(system.name, seed.seed) for system in self.results.systems for seed in system.seeds}
        wanted = [(system, seed) for system in self.recipe["systems"] for seed in self.recipe["seeds"]]
        return ", ".join(
            f"{one['title']} seed {seed}" for one, seed in wanted if (one["name"], seed) not in scored
        )

    def _score_table(self, metric: Metric) -> Table:
        systems = {system.name: system for system in self.results.systems}
        columns = [(system.name, system.title) for system in systems.values()]
        rows = []
        for system in systems.values():
            baseline = baseline_of(system.name, columns)
            against = self._difference(system, systems[baseline], metric) if baseline else ["", "", ""]
            scores = [_mean(system, metric, text) for text in ("dev", "test")]
            rows.append([system.title, str(len(system.seeds)), *scores, *against])
        signatures = {
            seed.scores["test"][f"{metric}_signature"] for one in systems.values() for seed in one.seeds
        }
        note = [
            "Mean of the seeds ± standard deviation; Δ on test is the difference of the means.",
            f"p: paired bootstrap, two-sided, the largest of the seeds; * p < {SIGNIFICANT} in every seed.",
            *(f"{_METRICS[metric]}: {signature}" for signature in sorted(signatures)),
        ]
        left = frozenset({"system", "against"})
        headings = ["system", "seeds", "dev", "test", "Δ", "p", "against"]
        return Table(_METRICS[metric], headings, rows, left, "\n".join(note))

    def _difference(self, system: SystemResult, other: SystemResult, metric: Metric) -> list[str]:
        """Difference on test, p, and from what."""
        largest = largest_p(self.results.tests, system.name, other.name, _METRICS[metric])
        star = "*" if largest is not None and largest < SIGNIFICANT else ""
        delta = f"{system.mean(metric, 'test') - other.mean(metric, 'test'):+.2f}{star}"
        return [delta, "" if largest is None else f"{largest:.4f}", other.title]

    def _seed_table(self) -> Table:
        rows = [
            [
                system.title,
                str(seed.seed),
                *(f"{seed.scores[text][metric]:.2f}" for metric in _METRICS for text in ("dev", "test")),
                seed.signature,
            ]
            for system in self.results.systems
            for seed in system.seeds
        ]
        columns = ["system", "seed", "BLEU dev", "BLEU test", "chrF2 dev", "chrF2 test", "signature"]
        note = "The signature is a hash of all settings and inputs that a score depends on."
        return Table("Every seed", columns, rows, frozenset({"system", "signature"}), note)

    @cached_property
    def _titles(self) -> dict[str, str]:
        """What figures call each system: its title, with its name where another has the same title."""
        count = Counter(system["title"] for system in self.recipe["systems"])
        return {
            one["name"]: one["title"] if count[one["title"]] == 1 else f"{one['title']} ({one['name']})"
            for one in self.recipe["systems"]
        }

    def training(self) -> list[Html]:
        """Curves of the segmenters and translators, finished or not."""
        segmenters, bits, bleu = [], [], []
        for group, (name, title) in enumerate(_SEGMENTERS.items()):
            records = read_curve(self.root / "segmenters" / name / CURVE)
            segmenters += _curve(records, "train_bits", f"{title}, training", group, rough=True)
            segmenters += _curve(records, "dev_bits", f"{title}, dev", group)
        for group, system in enumerate(self.recipe["systems"]):
            for seed in self.recipe["seeds"]:
                directory = self.root / "translators" / system["name"] / f"seed-{seed}"
                records = read_curve(directory / CURVE)
                bits += _curve(records, "dev_bits", self._titles[system["name"]], group)
                bleu += _curve(records, "dev_bleu", self._titles[system["name"]], group)
        figures = [
            (
                "segmenters",
                "Segmenters: bits per character over the steps.",
                "bits per character",
                segmenters,
            ),
            ("translators", "Translators: bits per token of dev, each seed a line.", "bits per token", bits),
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
        file = pieces_file(self.recipe["cut"][0])
        titles = {"bpe": "BPE"} | _SEGMENTERS
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
        train = self.texts.prepared("train", self.texts.target)
        return [block for title in self._compared for block in self._comparison(title, train)]

    def _comparison(self, title: str, train: Path) -> Iterator[Html]:
        result = compare_files(self._cut["BPE"], self._cut[title], train_counts=train)
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
        path = self.root / "corpus" / "gold.tsv"
        if not self._compared or not path.exists():
            return []
        gold = read_gold(path)
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
        sources = read_lines(self.texts.prepared(self.recipe["cut"][0], self.texts.source))
        lines = zip(sources, *(read_pieces(path, "pieces") for path in self._cut.values()), strict=True)
        rows = (ExampleCuts(source, dict(zip(self._cut, cuts, strict=True))) for source, *cuts in lines)
        return list(islice((row for row in rows if _differs(row)), _SENTENCES))

    def examples(self) -> list[Html]:
        """Sentences cut side by side."""
        if not self._compared:
            return [missing("No segmenter has cut a text yet.")]
        if not self._sentences:
            return [paragraph("Every sentence is cut alike.")]
        shown = f"The first sentences of {self.recipe['cut'][0]} that are cut differently"
        return [paragraph(f"{shown}; the words that differ are marked."), example_cuts(self._sentences)]

    def lattice(self) -> list[Html]:
        """All cuts of one sentence with their probabilities."""
        name = next((name for name in _SEGMENTERS if f"segmenters/{name}" in self.results.stages), None)
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
            paragraph(f"{_SEGMENTERS[name]}: {target}{given}"),
            lattice_picture(
                [_word_lattice(*pair) for pair in zip(words, edges, strict=True)], caption=caption
            ),
        ]

    def _shown_pair(self) -> tuple[str, str] | None:
        """A short sentence on whose cut the segmenters disagree, or the first of the text."""
        pairs = [(one.source, _text(next(iter(one.cuts.values())))) for one in self._sentences]
        if not pairs:
            both = zip(*map(read_lines, self.texts.prepared_pair(self.recipe["cut"][0])), strict=True)
            pairs = list(islice((pair for pair in both if pair[1].strip()), 1))
        return next((pair for pair in pairs if len(pair[1]) <= _SHORT), pairs[0] if pairs else None)

    def lengths(self) -> list[Html]:
        """The paper's last figure, over the mean of the seeds."""
        outputs = list(self._translations())
        if not outputs:
            return [missing("Nothing has been translated yet.")]
        seeds: defaultdict[str, list[str]] = defaultdict(list)
        for title, translation in outputs:
            seeds[title].append(translation.name)
        reference = read_reference(self.texts.plain("test", self.texts.target))
        bins = bleu_by_length([translation for _, translation in outputs], reference)
        means = {
            title: [fmean(part.bleu[name] for name in names) for part in bins]
            for title, names in seeds.items()
        }
        words = "words in the reference"
        with TemporaryDirectory() as directory:
            labels = [f"{part.label}\n{part.lines:,}" for part in bins]
            place = Path(directory) / "lengths"
            draw_lines(labels, means, place, xlabel=f"{words}, and number of lines", ylabel="BLEU")
            svg = place.with_suffix(".svg").read_text(encoding="utf-8")
        rows = [
            [part.label, f"{part.lines:,}", *(f"{values[number]:.2f}" for values in means.values())]
            for number, part in enumerate(bins)
        ]
        table = Table("BLEU on test by length", [words, "lines", *means], rows, frozenset({words}))
        caption = "BLEU on test over the length of the reference, mean of the seeds."
        return [figure(svg, name="lengths", caption=caption), html_table(table)]

    def _translations(self) -> Iterator[tuple[str, Translation]]:
        for system in self.recipe["systems"]:
            for seed in self.recipe["seeds"]:
                stage = f"translations/{system['name']}/seed-{seed}"
                if stage in self.results.stages:
                    lines = list(read_lines(self.root / stage / f"test.{self.texts.target}"))
                    yield self._titles[system["name"]], Translation(stage, lines)

    def reproduction(self) -> list[Html]:
        """The recipe, the commands, the versions, and what took how long."""
        name = self.recipe["name"]
        recipe, run = shlex.quote(f"{name}.toml"), shlex.quote(f"runs/{name}")
        data = "" if self.recipe["corpus"]["builtin_pairs"] else " --set data=DIRECTORY_OF_THE_TEXTS"
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
                    f"On a machine with {self.results.cores} cores. A stage that was interrupted counts from "
                    "where it went on.",
                )
            ),
        ]


def recipe_toml(recipe: Mapping[str, Any]) -> str:
    """A recipe as a file that `dpe run` reads; what was left to the preset is left out."""
    known = {name: asdict(system) for name, system in SYSTEMS.items()}
    systems = [one["name"] if one == known.get(one["name"]) else one for one in recipe["systems"]]
    plain = {key: value for key, value in recipe.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in recipe.items() if isinstance(value, Mapping)}
    lines = _toml_lines(plain | {"systems": systems})
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_toml_lines(table)]
    return "\n".join(lines)


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items() if value not in (None, "", [])]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_toml_lines(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # text, numbers and truth are written alike in TOML


def _mean(system: SystemResult, metric: Metric, text: str) -> str:
    deviation = system.deviation(metric, text)
    return f"{system.mean(metric, text):.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _curve(
    records: Sequence[Mapping[str, Any]], key: str, name: str, group: int, *, rough: bool = False
) -> list[TrainingCurve]:
    points = [(record["step"], record[key]) for record in records if key in record]
    return [TrainingCurve(name, points, group, rough)] if points else []


def _differs(example: ExampleCuts) -> bool:
    first, *others = map(words_of, example.cuts.values())
    return any(other != first for other in others)


def _text(pieces: Sequence[str]) -> str:
    return "".join(pieces).replace("\u2581", " ").strip()


def _edges(segmenter: Segmenter, source: str, target: str) -> tuple[Sequence[str], list[WordEdges]]:
    """The words of a target, and the edges of each."""
    cut = segmenter.vocabulary.encode(source) if segmenter.has_source else None
    example = segmenter.example(0, cut, target)

    def answer(batch: ScoredBatch) -> list[list[WordEdges]]:
        return [sentence_edges(batch)]

    return example.words, segmenter.answers([example], answer)[0]


def _word_lattice(word: str, found: WordEdges) -> WordLattice:
    arcs = [Arc(edge.start, edge.end, edge.probability, edge.on_best_path) for edge in found.edges]
    return WordLattice(word, arcs)
