"""A recipe as a graph of stages: which stage needs which, what its result depends on, and how it is made.

corpus              the text, cleaned                        corpus
vocabularies        BPE, unigram, as systems need them       vocabularies/bpe
evaluation          more texts to translate, word counts     evaluation
segmenters          given the source; a language model       segmenters/mixed
segmentations       segmented targets, for analyses          segmentations/mixed
distilled           unigram models of the segmenters         distilled/mixed
translators         one per system and seed                  translators/dpe/seed-1
translations        of dev, test and the further texts       translations/dpe/seed-1
scores              BLEU, chrF2, F1 by frequency of these    scores/dpe/seed-1
significance        against a baseline, same seed            significance/dpe/bpe/seed-1
                    and the mean of the seeds                significance/dpe/bpe/mean
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from dpe.choices import VocabularyType
from dpe.evaluation.scores import LENGTH_LIMITS, METRICS
from dpe.experiment import outputs as made
from dpe.experiment.artifacts import Facts, Stage
from dpe.experiment.recipe import Recipe
from dpe.experiment.systems import DRAWN_SYSTEMS, SYSTEMS, SegmenterName, System
from dpe.experiment.texts import (
    Texts,
    corpus_files,
    evaluation_files,
    found_files,
    make_corpus,
    make_evaluation,
    make_vocabularies,
    make_vocabulary,
    vocabulary_path,
    vocabulary_paths,
)
from dpe.model.checkpoint import CURVE, MODEL, SETTINGS, SOURCE_VOCABULARY, VOCABULARY
from dpe.model.settings import ModelSettings, model_settings
from dpe.segmenter.training import train_segmenter
from dpe.settings import build, changed
from dpe.text.learning import VocabularySettings
from dpe.training.launch import in_processes
from dpe.training.log import read_curve
from dpe.training.processes import Session
from dpe.training.state import Position
from dpe.translator.settings import Search
from dpe.translator.training import train_translator

MODEL_FILES = (SETTINGS, VOCABULARY, MODEL, CURVE)


@dataclass(frozen=True)
class Experiment:
    """The stages of a recipe in a run directory. Each method gives one stage; equal calls, equal stages."""

    recipe: Recipe
    root: Path
    session: Session
    _vocabularies: dict[VocabularyType, Stage] = field(default_factory=dict)

    @property
    def texts(self) -> Texts:
        return Texts.of_run(self.root, self.recipe)

    @cached_property
    def corpus(self) -> Stage:
        recipe, texts = self.recipe, self.texts
        files = ("train", "dev", "test")
        own = {key: value for key, value in changed(recipe.corpus).items() if key not in files}
        settings = {"languages": [recipe.source, recipe.target], **own}
        defaults = {"max_tokens": 80, "moses": False}

        def is_same(recorded: Mapping[str, Any]) -> bool:
            kept = {k: v for k, v in recorded.items() if v is not None and v != defaults.get(k)}
            return kept == settings

        return Stage(
            name="corpus",
            settings=settings,
            same_settings=is_same,
            needs=(),
            files=corpus_files(recipe),
            make=lambda _: make_corpus(recipe, texts, self.session.progress),
            outputs=texts.file_names,
        )

    @cached_property
    def evaluation(self) -> Stage:
        recipe, texts = self.recipe, self.texts
        own = {key: value for key, value in changed(recipe.evaluation).items() if key != "tests"}
        names = [*recipe.evaluation.files, *recipe.evaluation.noised]
        sides = [texts.plain(name, side) for name in names for side in (recipe.source, recipe.target)]
        return Stage(
            name="evaluation",
            settings={"texts": list(recipe.evaluation.files), **own, **self._tokens},
            needs=(self.corpus,),
            files=evaluation_files(recipe),
            make=lambda _: make_evaluation(recipe, texts),
            outputs=tuple(path.name for path in (texts.word_counts, *sides)),
        )

    def vocabulary(self, type: VocabularyType) -> Stage:
        """Made once per type, because its signature reads the text, which may be long."""
        if type not in self._vocabularies:
            self._vocabularies[type] = self._vocabulary(type)
        return self._vocabularies[type]

    def _vocabulary(self, type: VocabularyType) -> Stage:
        recipe, fields = self.recipe, self.recipe.vocabulary
        files = found_files(recipe, list(map(recipe.file, fields.text)))
        settings = fields.settings(type)
        about, model = changed(settings), None
        if fields.model and type == fields.type:
            files = (model,) = found_files(recipe, [recipe.file(fields.model)])
            about = {"model": "the user's own"}
        source, target = self.texts.prepared_pair("train")
        if not fields.joint:
            about = about | {"joint": False}

        def make(directory: Path) -> Facts:
            progress = self.session.progress
            if fields.joint:
                out = directory / VOCABULARY
                return make_vocabulary(model, files or (source, target), settings, out, progress)
            return make_vocabularies(source, target, settings, directory, progress)

        def is_same(recorded: Mapping[str, Any]) -> bool:
            is_learned = fields.joint and not {"model", "joint"} & recorded.keys()
            return recorded == about or (
                is_learned and build(VocabularySettings, recorded, "vocabulary") == settings
            )

        return Stage(
            name=f"vocabularies/{type}",
            settings=about,
            same_settings=is_same,
            needs=(self.corpus,),
            files=files,
            make=make,
            outputs=(VOCABULARY,) if fields.joint else (VOCABULARY, SOURCE_VOCABULARY),
        )

    def segmenter(self, name: SegmenterName, seed: int = 1) -> Stage:
        """The one for translators of this seed; the first of several is also that of the analyses."""
        settings, type = self.recipe.segmenter_settings(name, seed), self.recipe.vocabulary.type
        is_first = settings == self.recipe.segmenter_settings(name)

        def make(directory: Path) -> Facts:
            train = partial(
                train_segmenter,
                directory,
                **vocabulary_paths(self.root, self.recipe, type),
                **self.texts.for_training(),
                settings=settings,
                session=self.session,
            )
            position = in_processes(train, self.session, self.recipe.resources.segmenters.processes)
            return _facts(position) | {"dev_bits_per_character": position.kept_score}

        return Stage(
            name=f"segmenters/{name}" + ("" if is_first else f"-seed-{settings.seed}"),
            settings=changed(settings),
            same_settings=lambda recorded: _recorded(recorded, settings) == settings,
            needs=(self.corpus, self.vocabulary(type)),
            make=make,
            outputs=MODEL_FILES,
            goes_on_from=lambda before: settings.prolongs(_recorded(before, settings)),
        )

    def plain_segmentation(self) -> Stage:
        splits, type = self.recipe.cut, self.recipe.vocabulary.type

        def make(directory: Path) -> Facts:
            made.cut_by_vocabulary(directory, vocabulary_path(self.root, type), self.texts, splits)
            return {}

        return Stage(
            name=f"segmentations/{type}",
            settings={"cut": splits},
            needs=(self.corpus, self.vocabulary(type)),
            make=make,
            outputs=tuple(map(made.pieces_file, splits)),
        )

    def segmentation(self, name: SegmenterName) -> Stage:
        splits = self.recipe.cut
        plain, segmenter = self.plain_segmentation(), self.segmenter(name)

        def make(directory: Path) -> Facts:
            made.cut_by_segmenter(directory, self.root / segmenter.name, self.texts, splits, self.session)
            counts = made.training_counts(self.root / segmenter.name / VOCABULARY, self.texts)
            return made.write_examples(directory, self.root / plain.name, counts, splits[0])

        return Stage(
            name=f"segmentations/{name}",
            settings={"cut": splits},
            needs=(plain, segmenter),
            make=make,
            outputs=(*map(made.pieces_file, splits), made.EXAMPLES),
        )

    def distillation(self, name: SegmenterName) -> Stage:
        splits, segmenter = self.recipe.cut, self.segmenter(name)

        with_source = self.recipe.segmenter_settings(name).source

        def make(directory: Path) -> Facts:
            place = self.root / segmenter.name
            made.distil(directory, place, self.texts, splits, self.session, with_source=with_source)
            return {}

        return Stage(
            name=f"distilled/{name}",
            settings={"cut": splits},
            needs=(self.corpus, segmenter),
            make=make,
            outputs=(made.DISTILLED, *map(made.pieces_file, splits)),
        )

    def translator(self, system: System, seed: int) -> Stage:
        settings = self.recipe.translator_settings(system, seed)
        segmenter = self.segmenter(system.segmenter, seed) if system.segmenter else None

        def make(directory: Path) -> Facts:
            train = partial(
                train_translator,
                directory,
                **vocabulary_paths(self.root, self.recipe, system.vocabulary),
                **self.texts.for_training(),
                segmenter=self.root / segmenter.name if segmenter else None,
                cuts=self.root / segmenter.name / made.CUTS if segmenter else None,
                settings=settings,
                session=self.session,
            )
            position = in_processes(train, self.session, self.recipe.resources.translators.processes)
            waited, took = _epoch_seconds(directory)
            seconds = {"waited_for_targets_seconds": waited, "targets_took_seconds": took}
            return _facts(position) | seconds | {"dev_bleu_greedy": -position.kept_score}

        return Stage(
            name=f"translators/{system.name}/seed-{seed}",
            settings=changed(settings),
            same_settings=lambda recorded: _recorded(recorded, settings) == settings,
            needs=(self.corpus, self.vocabulary(system.vocabulary), *([segmenter] if segmenter else [])),
            make=make,
            outputs=MODEL_FILES,
            goes_on_from=lambda before: settings.prolongs(_recorded(before, settings)),
        )

    def translation(self, system: System, seed: int) -> Stage:
        recipe, translator = self.recipe, self.translator(system, seed)
        names, decoding = recipe.evaluated, recipe.decoding
        more = {"texts": list(names)} if names != ("dev", "test") else {}

        def make(directory: Path) -> Facts:
            model = self.root / translator.name
            made.translate_texts(directory, model, self.texts, decoding, self.session)
            return {}

        return Stage(
            name=f"translations/{system.name}/seed-{seed}",
            settings=changed(decoding) | more,
            same_settings=lambda recorded: not more and build(Search, recorded, "decoding") == decoding,
            needs=(self.corpus, *([self.evaluation] if more else []), translator),
            make=make,
            outputs=tuple(f"{name}.{recipe.target}" for name in names),
        )

    def scores(self, system: System, seed: int) -> Stage:
        recipe, translation = self.recipe, self.translation(system, seed)
        return Stage(
            name=f"scores/{system.name}/seed-{seed}",
            settings={"metrics": list(METRICS), "length_limits": list(LENGTH_LIMITS)} | self._tokens,
            needs=(self.corpus, self.evaluation, translation),
            make=lambda directory: made.write_scores(
                directory, self.root / translation.name, self.texts, recipe.bleu_tokenize
            ),
            outputs=(made.SCORES,),
        )

    @property
    def _tokens(self) -> dict[str, Any]:
        """A setting of what is scored, left out where it is the default."""
        tokens = self.recipe.bleu_tokenize
        return {} if tokens == Recipe.bleu_tokenize else {"bleu_tokenize": tokens}

    def significance(self, system: System, baseline: System, seeds: Sequence[int]) -> Stage:
        """One seed tested against the baseline's, or the mean of several; all seeds on all texts but dev."""
        recipe = self.recipe
        names = recipe.evaluated[1:] if tuple(seeds) == recipe.seeds else ("test",)
        ours = [self.translation(system, seed) for seed in seeds]
        others = [self.translation(baseline, seed) for seed in seeds]
        tested = f"seed-{seeds[0]}" if len(seeds) == 1 else "mean"
        places = [[self.root / stage.name for stage in side] for side in (ours, others)]
        return Stage(
            name=f"significance/{system.name}/{baseline.name}/{tested}",
            settings={"texts": list(names)} | self._tokens,
            needs=(self.corpus, self.evaluation, *ours, *others),
            make=lambda directory: made.write_tests(
                directory, places[0], places[1], self.texts, recipe.bleu_tokenize, names=names
            ),
            outputs=(made.TESTS,),
        )

    @property
    def baselines(self) -> list[System]:
        """The first system of the recipe, and the one that is drawn on both sides if it is among them."""
        first = self.recipe.systems[0]
        drawn = SYSTEMS[DRAWN_SYSTEMS[self.recipe.vocabulary.type]]
        return [first, drawn] if drawn in self.recipe.systems and drawn != first else [first]


def _recorded(record: Mapping[str, Any], wanted: ModelSettings) -> Any:
    """The settings of a model as its stage recorded them."""
    return model_settings(record, type(wanted), "artifact.json")


def _facts(position: Position) -> dict[str, Any]:
    return {"steps": position.step, "epochs": position.epoch, "training_seconds": round(position.seconds, 1)}


def _epoch_seconds(directory: Path) -> tuple[float, float | None]:
    """How long a training waited for a segmenter's targets, and how long these took, whoever made them.

    Of all its epochs; the second is None where an older version made them.
    """
    waited: dict[int, float] = {}
    took: dict[int, float] = {}
    for record in read_curve(directory / CURVE):
        for key, seconds in (("cutting_seconds", waited), ("targets_took_seconds", took)):
            if key in record:
                seconds[record["epoch"]] = max(record[key], seconds.get(record["epoch"], 0.0))
    is_known = not waited or min(waited) in took
    return round(sum(waited.values()), 1), round(sum(took.values()), 1) if is_known else None
