"""A recipe as a graph of stages: which stage needs which, what its result depends on, and how it is made.

corpus              the text, cleaned                        corpus
vocabularies        BPE; unigram where a system needs it     vocabularies/bpe
segmenters          given the source; a language model       segmenters/mixed
segmentations       segmented targets, for analyses          segmentations/mixed
translators         one per system and seed                  translators/dpe/seed-1
translations        of dev and test                          translations/dpe/seed-1
scores              BLEU and chrF2 of these                  scores/dpe/seed-1
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
from dpe.experiment.systems import SYSTEMS, SegmenterName, System
from dpe.experiment.texts import (
    Texts,
    corpus_files,
    found_files,
    make_corpus,
    make_vocabulary,
    vocabulary_path,
)
from dpe.model.checkpoint import CURVE, MODEL, SETTINGS, VOCABULARY
from dpe.model.settings import ModelSettings, model_settings
from dpe.segmenter.training import train_segmenter
from dpe.settings import build, changed
from dpe.text.learning import VocabularySettings
from dpe.training.launch import in_processes
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

    def vocabulary(self, type: VocabularyType) -> Stage:
        """Made once per type, because its signature reads the text, which may be long."""
        if type not in self._vocabularies:
            self._vocabularies[type] = self._vocabulary(type)
        return self._vocabularies[type]

    def _vocabulary(self, type: VocabularyType) -> Stage:
        recipe, fields = self.recipe, self.recipe.vocabulary
        files = found_files(recipe, list(map(recipe.file, fields.text)))
        settings = VocabularySettings(
            size=fields.size,
            type=type,
            normalization=fields.normalization,
            character_coverage=fields.character_coverage,
            protected=fields.protected,
        )
        about, model = changed(settings), None
        if fields.model and type == "bpe":
            files = (model,) = found_files(recipe, [recipe.file(fields.model)])
            about = {"model": "the user's own"}
        text = files or self.texts.prepared_pair("train")
        return Stage(
            name=f"vocabularies/{type}",
            settings=about,
            same_settings=lambda recorded: (
                recorded == about
                or ("model" not in recorded and build(VocabularySettings, recorded, "vocabulary") == settings)
            ),
            needs=(self.corpus,),
            files=files,
            make=lambda directory: make_vocabulary(model, text, settings, directory / VOCABULARY),
            outputs=(VOCABULARY,),
        )

    def segmenter(self, name: SegmenterName) -> Stage:
        settings = self.recipe.segmenter_settings(name)

        def make(directory: Path) -> Facts:
            train = partial(
                train_segmenter,
                directory,
                vocabulary=vocabulary_path(self.root, "bpe"),
                **self.texts.for_training(),
                settings=settings,
                session=self.session,
            )
            position = in_processes(train, self.session, self.recipe.resources.segmenters.processes)
            return _facts(position) | {"dev_bits_per_character": position.kept_score}

        return Stage(
            name=f"segmenters/{name}",
            settings=changed(settings),
            same_settings=lambda recorded: _recorded(recorded, settings) == settings,
            needs=(self.corpus, self.vocabulary("bpe")),
            make=make,
            outputs=MODEL_FILES,
            goes_on_from=lambda before: settings.prolongs(_recorded(before, settings)),
        )

    def plain_segmentation(self) -> Stage:
        splits = self.recipe.cut

        def make(directory: Path) -> Facts:
            made.cut_by_vocabulary(directory, vocabulary_path(self.root, "bpe"), self.texts, splits)
            return {}

        return Stage(
            name="segmentations/bpe",
            settings={"cut": splits},
            needs=(self.corpus, self.vocabulary("bpe")),
            make=make,
            outputs=tuple(map(made.pieces_file, splits)),
        )

    def segmentation(self, name: SegmenterName) -> Stage:
        splits = self.recipe.cut
        plain, segmenter = self.plain_segmentation(), self.segmenter(name)

        def make(directory: Path) -> Facts:
            made.cut_by_segmenter(directory, self.root / segmenter.name, self.texts, splits, self.session)
            counts = made.training_counts(vocabulary_path(self.root, "bpe"), self.texts)
            return made.write_examples(directory, self.root / plain.name, counts, splits[0])

        return Stage(
            name=f"segmentations/{name}",
            settings={"cut": splits},
            needs=(plain, segmenter),
            make=make,
            outputs=(*map(made.pieces_file, splits), made.EXAMPLES),
        )

    def translator(self, system: System, seed: int) -> Stage:
        settings = self.recipe.translator_settings(system, seed)
        segmenter = self.segmenter(system.segmenter) if system.segmenter else None

        def make(directory: Path) -> Facts:
            train = partial(
                train_translator,
                directory,
                vocabulary=vocabulary_path(self.root, system.vocabulary),
                **self.texts.for_training(),
                segmenter=self.root / segmenter.name if segmenter else None,
                cuts=self.root / segmenter.name / made.CUTS if segmenter else None,
                settings=settings,
                session=self.session,
            )
            position = in_processes(train, self.session, self.recipe.resources.translators.processes)
            return _facts(position) | {"dev_bleu_greedy": -position.kept_score}

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
        translator, decoding = self.translator(system, seed), self.recipe.decoding

        def make(directory: Path) -> Facts:
            made.translate_texts(directory, self.root / translator.name, self.texts, decoding, self.session)
            return {}

        return Stage(
            name=f"translations/{system.name}/seed-{seed}",
            settings=changed(decoding),
            same_settings=lambda recorded: build(Search, recorded, "decoding") == decoding,
            needs=(self.corpus, translator),
            make=make,
            outputs=tuple(f"{split}.{self.recipe.target}" for split in made.EVALUATED),
        )

    def scores(self, system: System, seed: int) -> Stage:
        translation = self.translation(system, seed)
        return Stage(
            name=f"scores/{system.name}/seed-{seed}",
            settings={"metrics": list(METRICS), "length_limits": list(LENGTH_LIMITS)} | self._tokens,
            needs=(self.corpus, translation),
            make=lambda directory: made.write_scores(
                directory, self.root / translation.name, self.texts, self.recipe.bleu_tokenize
            ),
            outputs=(made.SCORES,),
        )

    @property
    def _tokens(self) -> dict[str, Any]:
        """A setting of what is scored, left out where it is the default."""
        tokens = self.recipe.bleu_tokenize
        return {} if tokens == Recipe.bleu_tokenize else {"bleu_tokenize": tokens}

    def significance(self, system: System, baseline: System, seeds: Sequence[int]) -> Stage:
        """One seed tested against the baseline's, or the mean of several."""
        ours = [self.translation(system, seed) for seed in seeds]
        others = [self.translation(baseline, seed) for seed in seeds]
        tested = f"seed-{seeds[0]}" if len(seeds) == 1 else "mean"
        places = [[self.root / stage.name for stage in side] for side in (ours, others)]
        return Stage(
            name=f"significance/{system.name}/{baseline.name}/{tested}",
            settings=self._tokens,
            needs=(self.corpus, *ours, *others),
            make=lambda directory: made.write_tests(
                directory, places[0], places[1], self.texts, self.recipe.bleu_tokenize
            ),
            outputs=(made.TESTS,),
        )

    @property
    def baselines(self) -> list[System]:
        """The first system of the recipe, and BPE dropout on both sides if it is among them."""
        first = self.recipe.systems[0]
        dropout = SYSTEMS["bpe-dropout"]
        return [first, dropout] if dropout in self.recipe.systems and dropout != first else [first]


def _recorded(record: Mapping[str, Any], wanted: ModelSettings) -> Any:
    """The settings of a model as its stage recorded them."""
    return model_settings(record, type(wanted), "artifact.json")


def _facts(position: Position) -> dict[str, Any]:
    return {"steps": position.step, "epochs": position.epoch, "training_seconds": round(position.seconds, 1)}
