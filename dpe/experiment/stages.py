"""A recipe as a graph of stages. Which stage needs which, and what its result depends on, is said here.

corpus              the text, cleaned                        corpus
vocabularies        BPE; unigram where a system wants it     vocabularies/bpe
segmenters          given the source; a language model       segmenters/mixed
segmentations       targets cut, for analyses                segmentations/mixed
translators         one per system and seed                  translators/dpe/seed-1
translations        of dev and test                          translations/dpe/seed-1
scores              BLEU and chrF2 of these                  scores/dpe/seed-1
significance        against a baseline, same seed            significance/dpe/bpe/seed-1
                    and the mean of the seeds                significance/dpe/bpe/mean
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dpe.choices import VocabularyType
from dpe.evaluation.scores import LENGTH_LIMITS, METRICS
from dpe.experiment.artifacts import Facts, Stage
from dpe.experiment.models import (
    MODEL_FILES,
    Compute,
    can_go_on,
    make_segmenter,
    make_translator,
    model_settings,
    segmenter_settings,
    segmenter_stopping,
    translator_settings,
    translator_stopping,
)
from dpe.experiment.outputs import (
    EVALUATED,
    EXAMPLES,
    SCORES,
    TESTS,
    cut_by_segmenter,
    cut_by_vocabulary,
    pieces_file,
    training_counts,
    translate_texts,
    write_examples,
    write_scores,
    write_tests,
)
from dpe.experiment.recipe import Recipe
from dpe.experiment.systems import SYSTEMS, SegmenterName, System
from dpe.experiment.texts import (
    Texts,
    corpus_files,
    corpus_settings,
    make_corpus,
    make_vocabulary,
    take_vocabulary,
    vocabulary_files,
    vocabulary_model,
    vocabulary_path,
)
from dpe.model.checkpoint import VOCABULARY
from dpe.progress import Progress
from dpe.text.vocabulary import VocabularySettings


@dataclass(frozen=True)
class Experiment:
    """The stages of a recipe in a run directory. Each method gives one stage; equal calls, equal stages."""

    recipe: Recipe
    root: Path
    compute: Compute
    progress: Progress

    @property
    def texts(self) -> Texts:
        return Texts.of_run(self.root, self.recipe)

    @cached_property
    def corpus(self) -> Stage:
        recipe, texts = self.recipe, self.texts
        return Stage(
            name="corpus",
            settings=corpus_settings(recipe),
            needs=(),
            files=corpus_files(recipe),
            make=lambda _: make_corpus(recipe, texts, self.progress),
            outputs=texts.file_names,
        )

    def vocabulary(self, type: VocabularyType) -> Stage:
        """Made once per type, because its signature reads the text, which may be long."""
        if type not in self._vocabularies:
            self._vocabularies[type] = self._vocabulary(type)
        return self._vocabularies[type]

    @cached_property
    def _vocabularies(self) -> dict[VocabularyType, Stage]:
        return {}

    def _vocabulary(self, type: VocabularyType) -> Stage:
        model = vocabulary_model(self.recipe)
        if model and type == "bpe":
            return self._own_vocabulary(model)
        fields, outside = self.recipe.vocabulary, vocabulary_files(self.recipe)
        text = outside or self.texts.prepared_pair("train")
        settings = VocabularySettings(
            size=fields.size,
            type=type,
            normalization=fields.normalization,
            character_coverage=fields.character_coverage,
        )
        return Stage(
            name=f"vocabularies/{type}",
            settings=asdict(settings),
            needs=(self.corpus,),
            files=outside,
            make=lambda directory: make_vocabulary(text, settings, directory / VOCABULARY),
            outputs=(VOCABULARY,),
        )

    def _own_vocabulary(self, model: Path) -> Stage:
        return Stage(
            name="vocabularies/bpe",
            settings={"model": "the user's own"},
            needs=(self.corpus,),
            files=(model,),
            make=lambda directory: take_vocabulary(model, directory / VOCABULARY),
            outputs=(VOCABULARY,),
        )

    def segmenter(self, name: SegmenterName) -> Stage:
        settings = segmenter_settings(self.recipe.segmenter, source=name == "mixed")
        stopping = segmenter_stopping(self.recipe.segmenter)
        described = model_settings(settings, stopping)

        def make(directory: Path) -> Facts:
            return make_segmenter(
                directory,
                vocabulary_path(self.root, "bpe"),
                self.texts,
                settings,
                stopping,
                compute=self.compute,
                progress=self.progress,
            )

        return Stage(
            name=f"segmenters/{name}",
            settings=described,
            needs=(self.corpus, self.vocabulary("bpe")),
            make=make,
            outputs=MODEL_FILES,
            goes_on_from=lambda before: can_go_on(before, described),
        )

    def plain_segmentation(self) -> Stage:
        splits = self.recipe.cut

        def make(directory: Path) -> Facts:
            cut_by_vocabulary(directory, vocabulary_path(self.root, "bpe"), self.texts, splits)
            return {}

        return Stage(
            name="segmentations/bpe",
            settings={"cut": splits},
            needs=(self.corpus, self.vocabulary("bpe")),
            make=make,
            outputs=tuple(map(pieces_file, splits)),
        )

    def segmentation(self, name: SegmenterName) -> Stage:
        splits = self.recipe.cut
        plain = self.plain_segmentation()

        def make(directory: Path) -> Facts:
            cut_by_segmenter(
                directory,
                self._segmenter_directory(name),
                self.texts,
                splits,
                compute=self.compute,
                progress=self.progress,
            )
            counts = training_counts(vocabulary_path(self.root, "bpe"), self.texts)
            return write_examples(directory, self.root / plain.name, counts, splits[0])

        return Stage(
            name=f"segmentations/{name}",
            settings={"cut": splits},
            needs=(plain, self.segmenter(name)),
            make=make,
            outputs=(*map(pieces_file, splits), EXAMPLES),
        )

    def translator(self, system: System, seed: int) -> Stage:
        fields = self.recipe.translator
        languages = (self.recipe.source, self.recipe.target) if self.recipe.corpus.moses else None
        settings = translator_settings(
            fields, system, seed, moses=languages, bleu_tokenize=self.recipe.other_tokens
        )
        stopping = translator_stopping(fields)
        described = model_settings(settings, stopping)

        def make(directory: Path) -> Facts:
            return make_translator(
                directory,
                vocabulary_path(self.root, system.vocabulary),
                self.texts,
                settings,
                stopping,
                segmenter=self._segmenter_directory(system.segmenter) if system.segmenter else None,
                compute=self.compute,
                progress=self.progress,
            )

        segmenters = (self.segmenter(system.segmenter),) if system.segmenter else ()
        return Stage(
            name=f"translators/{system.name}/seed-{seed}",
            settings=described,
            needs=(self.corpus, self.vocabulary(system.vocabulary), *segmenters),
            make=make,
            outputs=MODEL_FILES,
            goes_on_from=lambda before: can_go_on(before, described),
        )

    def translation(self, system: System, seed: int) -> Stage:
        translator, decoding = self.translator(system, seed), self.recipe.decoding

        def make(directory: Path) -> Facts:
            translate_texts(
                directory,
                self.root / translator.name,
                self.texts,
                decoding,
                compute=self.compute,
                progress=self.progress,
            )
            return {}

        return Stage(
            name=f"translations/{system.name}/seed-{seed}",
            settings=asdict(decoding),
            needs=(self.corpus, translator),
            make=make,
            outputs=tuple(f"{split}.{self.recipe.target}" for split in EVALUATED),
        )

    def scores(self, system: System, seed: int) -> Stage:
        translation = self.translation(system, seed)
        return Stage(
            name=f"scores/{system.name}/seed-{seed}",
            settings={"metrics": list(METRICS), "length_limits": list(LENGTH_LIMITS)} | self._other_tokens,
            needs=(self.corpus, translation),
            make=lambda directory: write_scores(
                directory, self.root / translation.name, self.texts, self.recipe.other_tokens
            ),
            outputs=(SCORES,),
        )

    @property
    def _other_tokens(self) -> dict[str, Any]:
        """A setting of what is scored, left out where it is the default, as it was before it could be set."""
        return {"bleu_tokenize": self.recipe.other_tokens} if self.recipe.other_tokens else {}

    def significance(self, system: System, baseline: System, seeds: Sequence[int]) -> Stage:
        """One seed tested against the baseline's, or the mean of several."""
        ours = [self.translation(system, seed) for seed in seeds]
        others = [self.translation(baseline, seed) for seed in seeds]
        tested = f"seed-{seeds[0]}" if len(seeds) == 1 else "mean"
        return Stage(
            name=f"significance/{system.name}/{baseline.name}/{tested}",
            settings=self._other_tokens,
            needs=(self.corpus, *ours, *others),
            make=lambda directory: write_tests(
                directory, self._places(ours), self._places(others), self.texts, self.recipe.other_tokens
            ),
            outputs=(TESTS,),
        )

    @property
    def baselines(self) -> list[System]:
        """The first system of the recipe, and BPE dropout on both sides where it is there."""
        first = self.recipe.systems[0]
        dropout = SYSTEMS["bpe-dropout"]
        return [first, dropout] if dropout in self.recipe.systems and dropout != first else [first]

    def _places(self, stages: Sequence[Stage]) -> list[Path]:
        return [self.root / stage.name for stage in stages]

    def _segmenter_directory(self, name: SegmenterName) -> Path:
        return self.root / "segmenters" / name
