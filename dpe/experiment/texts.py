"""The text of an experiment: collected, cleaned, tokenised, noised; and the vocabulary learned from it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, get_args

from dpe.choices import VocabularyType
from dpe.demo.grammar import GOLD, write_corpus
from dpe.errors import UserError
from dpe.evaluation.noise import add_noise
from dpe.evaluation.word_frequency import count_tokens
from dpe.experiment.recipe import Recipe, Split
from dpe.model.checkpoint import SOURCE_VOCABULARY, VOCABULARY
from dpe.progress import Progress
from dpe.text.corpus import Pair, read_lines, read_pairs, write_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.preparation import CleaningRules, Moses, clean
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary

_SEED = 1  # of the built-in corpus, and of the draw of training lines


@dataclass(frozen=True)
class Texts:
    """The files of the corpus stage. With Moses, `dev` and `test` exist both raw and tokenised."""

    directory: Path
    source: str
    target: str
    moses: bool
    evaluated: tuple[str, ...] = ("dev", "test")  # the texts that are translated and scored

    @classmethod
    def of_run(cls, root: Path, recipe: Recipe) -> Texts:
        return cls(root / "corpus", recipe.source, recipe.target, recipe.corpus.moses, recipe.evaluated)

    def plain(self, text: str, language: str) -> Path:
        """A side as people write it: what is translated, and what translations are compared with.

        A text is a split, or one of those that are only translated.
        """
        directory = self.directory if text in get_args(Split) else self.evaluation
        return directory / f"{text}.{language}"

    @property
    def evaluation(self) -> Path:
        """The directory of the evaluation stage."""
        return self.directory.parent / "evaluation"

    @property
    def word_counts(self) -> Path:
        """How often each word, as BLEU sees it, is in the training target; `dpe evaluate` reads it too."""
        return self.evaluation / "word-counts.tsv"

    def prepared(self, split: Split, language: str) -> Path:
        """A side as models read it."""
        is_apart = self.moses and split != "train"
        return self.directory / f"{split}.tokenized.{language}" if is_apart else self.plain(split, language)

    def prepared_pair(self, split: Split) -> tuple[Path, Path]:
        return self.prepared(split, self.source), self.prepared(split, self.target)

    def for_training(self) -> dict[str, Path]:
        """The texts that a training reads, by the names of its arguments."""
        source, target = self.prepared_pair("train")
        dev_source, dev_target = self.prepared_pair("dev")
        return {"source": source, "target": target, "dev_source": dev_source, "dev_target": dev_target}

    def open(self, split: Split, *, cache: Path) -> ParallelText:
        return ParallelText.open(*self.prepared_pair(split), cache=cache)

    @property
    def gold(self) -> Path | None:
        """Gold morphemes of the targets, which only the built-in corpus has, for its Finnish side."""
        path = self.directory / GOLD
        return path if self.target == "fi" and path.exists() else None

    @property
    def file_names(self) -> tuple[str, ...]:
        splits: tuple[Split, ...] = ("train", "dev", "test")
        languages = (self.source, self.target)
        return tuple(
            dict.fromkeys(
                path(split, language).name
                for split in splits
                for language in languages
                for path in (self.plain, self.prepared)
            )
        )


def vocabulary_path(root: Path, type: VocabularyType) -> Path:
    """Where the vocabulary of a run is, of the target if each side has its own."""
    return root / "vocabularies" / type / VOCABULARY


def vocabulary_paths(root: Path, recipe: Recipe, type: VocabularyType) -> dict[str, Path]:
    """The vocabularies that a training reads, by the names of its arguments."""
    path = vocabulary_path(root, type)
    own = {} if recipe.vocabulary.joint else {"source_vocabulary": path.with_name(SOURCE_VOCABULARY)}
    return {"vocabulary": path} | own


def corpus_files(recipe: Recipe) -> tuple[Path, ...]:
    """The files of the corpus; they and the further test texts must exist."""
    names = [name for name in (*recipe.corpus.train, recipe.corpus.dev, recipe.corpus.test) if name]
    files = _both_sides(recipe, names)
    found_files(recipe, [*files, *_both_sides(recipe, recipe.evaluation.tests)])
    return tuple(files)


def evaluation_files(recipe: Recipe) -> tuple[Path, ...]:
    """The files of the further test texts."""
    return tuple(_both_sides(recipe, recipe.evaluation.tests))


def _both_sides(recipe: Recipe, names: Sequence[str]) -> list[Path]:
    return [recipe.file(name, language) for name in names for language in (recipe.source, recipe.target)]


def found_files(recipe: Recipe, files: Sequence[Path]) -> tuple[Path, ...]:
    """Files below the recipe's `data`, all of which must exist."""
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise UserError(
            f"Recipe {recipe.name}: {len(missing)} of {len(files)} files are missing ({', '.join(missing)}); "
            "put them there, or give their directory with --set data=DIR."
        )
    return tuple(files)


def make_corpus(recipe: Recipe, texts: Texts, progress: Progress) -> dict[str, Any]:
    """Write the files of `texts`; returns how many pairs were kept and dropped."""
    fields = recipe.corpus
    if fields.builtin_pairs is not None:
        report = write_corpus(texts.directory, pairs=fields.builtin_pairs, seed=_SEED, replace=True)
        return {"train": report.train, "dev": report.dev, "test": report.test}
    pairs = progress.track(_training_pairs(recipe), "reading the training text")
    cleaned = clean(
        pairs,
        out_source=texts.plain("train", recipe.source),
        out_target=texts.plain("train", recipe.target),
        rules=_rules(recipe),
    )
    progress.say(f"training text: {cleaned}")
    counts = {"train": cleaned.kept, "dropped": cleaned.dropped}
    splits: tuple[tuple[Split, str], ...] = (("dev", fields.dev), ("test", fields.test))
    return counts | {split: _copy_pairs(recipe, texts, split, name) for split, name in splits}


def _pairs(recipe: Recipe, name: str) -> Iterator[Pair]:
    return read_pairs(recipe.file(name, recipe.source), recipe.file(name, recipe.target))


def _training_pairs(recipe: Recipe) -> Iterator[Pair]:
    """All pairs, or as many random ones as the recipe wants, in their order: two passes over the files."""

    def everything() -> Iterator[Pair]:
        return chain.from_iterable(_pairs(recipe, name) for name in recipe.corpus.train)

    if recipe.corpus.lines is None:
        yield from everything()
        return
    count = sum(1 for _ in everything())
    numbers = random.Random(_SEED).sample(range(count), min(recipe.corpus.lines, count))
    chosen = iter(sorted(numbers))
    wanted = next(chosen, None)
    for number, pair in enumerate(everything()):
        if number == wanted:
            yield pair
            wanted = next(chosen, None)


def _rules(recipe: Recipe) -> CleaningRules:
    fields = recipe.corpus
    return CleaningRules(
        max_tokens=fields.max_tokens,
        max_ratio=fields.max_ratio,
        source_language=recipe.source if fields.moses else None,
        target_language=recipe.target if fields.moses else None,
    )


def _copy_pairs(recipe: Recipe, texts: Texts, split: Split, name: str) -> int:
    """A held-out text, every line, raw and as models read it."""
    pairs = list(_pairs(recipe, name))
    sides = {recipe.source: [pair.source or "" for pair in pairs], recipe.target: [p.target for p in pairs]}
    for language, lines in sides.items():
        write_lines(texts.plain(split, language), lines)
        if texts.moses:
            write_lines(texts.prepared(split, language), map(Moses(language).tokenize, lines))
    return len(pairs)


def make_evaluation(recipe: Recipe, texts: Texts) -> dict[str, Any]:
    """Write the texts that are only translated, and the counts of the training words."""
    fields, source, target = recipe.evaluation, recipe.source, recipe.target
    pairs = {name: list(_pairs(recipe, file)) for name, file in fields.files.items()}
    test = list(read_pairs(texts.plain("test", source), texts.plain("test", target)))
    for name, rate in fields.noised.items():
        noised = add_noise((pair.source or "" for pair in test), rate=rate, seed=fields.noise_seed)
        pairs[name] = [pair._replace(source=line) for pair, line in zip(test, noised, strict=True)]
    for name, lines in pairs.items():
        write_lines(texts.plain(name, source), (pair.source or "" for pair in lines))
        write_lines(texts.plain(name, target), (pair.target for pair in lines))
    words = read_lines(texts.prepared("train", target))
    counts = count_tokens(
        map(Moses(target).detokenize, words) if texts.moses else words, recipe.bleu_tokenize
    )
    write_lines(texts.word_counts, (f"{word}\t{count}" for word, count in counts.most_common()))
    return {name: len(lines) for name, lines in pairs.items()} | {"words": counts.total()}


def make_vocabularies(
    source: Path, target: Path, settings: VocabularySettings, directory: Path, progress: Progress
) -> dict[str, Any]:
    """Learn a vocabulary from each side."""
    learned = learn_vocabulary([source], settings, progress=progress)
    learned.save(directory / SOURCE_VOCABULARY)
    of_target = make_vocabulary(None, [target], settings, directory / VOCABULARY, progress)
    return of_target | {"source_pieces": len(learned)}


def make_vocabulary(
    model: Path | None, files: Sequence[Path], settings: VocabularySettings, out: Path, progress: Progress
) -> dict[str, Any]:
    """Learn one vocabulary from all files together, or copy the user's model, which must be of its type."""
    if model is None:
        vocabulary = learn_vocabulary(files, settings, progress=progress)
    else:
        vocabulary = Vocabulary.load(model)
        if vocabulary.type != settings.type:
            raise UserError(
                f"{model} is a {vocabulary.type} model, but the recipe needs {settings.type}; change "
                "vocabulary.model or vocabulary.type."
            )
        if vocabulary.marks_ends:
            raise UserError(f"{model} marks where words end; vocabulary.model must mark where they begin.")
    vocabulary.save(out)
    return {"pieces": len(vocabulary), "characters": len(vocabulary.characters)}
