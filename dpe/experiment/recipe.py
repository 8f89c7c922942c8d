"""What an experiment is, read from TOML: `extends` another file, `--set` on top. Every field is a key.

name = "mine"                       [vocabulary]
source = "en"                       size = 8000
target = "de"
systems = ["bpe", "dpe"]            [translator]
seeds = [1, 2, 3]                   preset = "small"

[segmenter] and [translator] take a preset and every setting of `SegmenterSettings` and `TranslatorSettings`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from dpe.choices import BleuTokens, VocabularyType
from dpe.errors import UserError, refuse
from dpe.experiment.systems import SegmenterName, System
from dpe.model.settings import from_preset
from dpe.segmenter.settings import SEGMENTER_PRESETS, SegmenterSettings
from dpe.settings import Settings, build, changed, checked, merged, parse_override, setting
from dpe.text.learning import VocabularySettings
from dpe.translator.settings import TRANSLATOR_PRESETS, Search, TranslatorSettings

LANGUAGE = "{language}"
EXTENDS = "extends"
Split = Literal["train", "dev", "test"]


@dataclass(frozen=True, kw_only=True)
class CorpusFields(Settings):
    """[corpus]: files, or the built-in corpus. In the name of a file `{language}` stands for each side's."""

    builtin_pairs: int | None = setting(
        None, "Generate the built-in corpus (en, fi) with this many training pairs.", low=1
    )
    train: tuple[str, ...] = setting((), "Files below `data`, plain or compressed, read one after the other.")
    dev: str = setting("", "The development text.")
    test: str = setting("", "The test text.")
    lines: int | None = setting(
        None, "Sample this many training pairs, from which those below are dropped.", low=1
    )
    max_tokens: int = setting(80, "Drop training pairs with this many tokens on a side, or more.", low=2)
    max_ratio: float | None = setting(
        None, "Drop training pairs whose sides differ in length by more than this factor.", low=1
    )
    moses: bool = setting(False, "Tokenise by Moses' rules; translations are detokenised.")

    def __post_init__(self) -> None:
        super().__post_init__()
        files = [*self.train, self.dev, self.test]
        is_builtin = self.builtin_pairs is not None
        named = next((name for name in files if name and LANGUAGE not in name), None)
        refuse(
            (
                any(files) if is_builtin else not (self.train and self.dev and self.test),
                "corpus needs either builtin_pairs, or all of the files train, dev and test.",
            ),
            (named, f"corpus names the file {named!r} without {LANGUAGE}, where its sides differ."),
            (
                is_builtin and (self.lines or self.max_ratio or self.moses),
                "lines, max_ratio and moses do not apply to the built-in corpus; leave them out.",
            ),
        )


@dataclass(frozen=True, kw_only=True)
class VocabularyFields(VocabularySettings):
    """[vocabulary]: learned from the sides of the training text, unless `text` names other files.

    `type` is that of the vocabulary of segmenters; systems without one have the vocabulary of their methods.
    """

    text: tuple[str, ...] = setting((), "Files below `data` to learn it from instead of the training text.")
    model: str = setting("", "A model of this type below `data` instead of one that is learned.")
    joint: bool = setting(True, "One vocabulary for both sides; false: each side has its own, of this size.")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            (
                self.model and self.text,
                "vocabulary.model and vocabulary.text exclude each other; give one of them.",
            ),
            (
                not self.joint and (self.model or self.text),
                "vocabulary.joint = false learns from the training text; leave model and text out.",
            ),
        )

    def settings(self, type: VocabularyType) -> VocabularySettings:
        """How the vocabulary of a type is learned."""
        own = {field.name: getattr(self, field.name) for field in fields(VocabularySettings)}
        return VocabularySettings(**own | {"type": type})


@dataclass(frozen=True, kw_only=True)
class EvaluationFields(Settings):
    """[evaluation]: what is translated and scored beside `dev` and `test`."""

    tests: tuple[str, ...] = setting((), "Further test texts below `data`, named after their files.")
    noise: tuple[float, ...] = setting((), "Also the test text with this share of its letters edited.")
    noise_seed: int = setting(1, "Seed of these edits.")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [*get_args(Split), *map(_text_name, self.tests), *map(_noised_name, self.noise)]
        twice = next((name for name in names if names.count(name) > 1 or not name), None)
        rate = next((rate for rate in self.noise if not 0 < rate <= 1), None)
        unnamed = next((name for name in self.tests if LANGUAGE not in name), None)
        refuse(
            (unnamed, f"evaluation names the file {unnamed!r} without {LANGUAGE}, where its sides differ."),
            (rate is not None, f"evaluation.noise has {rate}; a share must be above 0 and at most 1."),
            (
                twice is not None,
                f"evaluation has two texts {twice!r}; give the files other names, and each share once.",
            ),
        )

    @property
    def files(self) -> dict[str, str]:
        """The further test texts by name: test2017 is `multi30k/test2017.{language}.xz`."""
        return {_text_name(name): name for name in self.tests}

    @property
    def noised(self) -> dict[str, float]:
        """The shares by the names of their texts."""
        return {_noised_name(rate): rate for rate in self.noise}


def _text_name(file: str) -> str:
    return Path(file).name.replace(LANGUAGE, "").partition(".")[0].strip("-_")


def _noised_name(rate: float) -> str:
    return f"test-noise-{rate:g}"


class Section(dict[str, Any]):
    """[segmenter] or [translator]: a preset, and the settings that are changed in it."""

    settings: ClassVar[type[Any]]
    decided: ClassVar[tuple[str, ...]]  # settings that the rest of the recipe decides

    @classmethod
    def from_value(cls, value: Any, label: str, key: str) -> Section:
        if not isinstance(value, Mapping):
            raise UserError(f"{label}: {key} must be a table, not {value!r}.")
        given = {name: one for name, one in value.items() if one is not None}
        preset = {"preset": given.pop("preset")} if "preset" in given else {}
        wrong, names = next((name for name in given if name in cls.decided), None), list(SEGMENTER_PRESETS)
        refuse(
            (wrong, f"{label}: {key}.{wrong} is decided by the rest of the recipe; leave it out."),
            (
                preset and preset["preset"] not in names,  # both models have the same
                f"{label}: {key}.preset must be one of {', '.join(names)}, not {preset.get('preset')!r}.",
            ),
        )
        return cls(preset | checked(cls.settings, given, label, f"{key}."))


class SegmenterSection(Section):
    """[segmenter]: the mixed model, and its twin without a source for LM DPE."""

    settings = SegmenterSettings
    decided = ("source",)


class TranslatorSection(Section):
    """[translator]: the same for every system."""

    settings = TranslatorSettings
    decided = ("seed", "source_method", "target_method", "target_sampling", "moses", "bleu_tokenize")


@dataclass(frozen=True, kw_only=True)
class StageResources(Settings):
    """What a stage computes with. It changes how fast the stage is made, and rounding, but not what."""

    cpus: int = setting(1, "Cores on a Ray cluster, and threads.", low=1)
    gpus: int | None = setting(None, "GPUs on a Ray cluster; unset: one a process, where it has any.", low=0)
    processes: int = setting(1, "Processes of torchrun that share a training.", low=1)


@dataclass(frozen=True, kw_only=True)
class Resources(Settings):
    """[resources]: of each kind of stage that may need more than one core; the others have one."""

    segmenters: StageResources = field(default_factory=StageResources)
    segmentations: StageResources = field(default_factory=StageResources)
    translators: StageResources = field(default_factory=StageResources)
    translations: StageResources = field(default_factory=StageResources)

    def of(self, stage: str) -> StageResources:
        """Of a stage, by its name."""
        found: StageResources = getattr(self, stage.partition("/")[0], StageResources())
        return found


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """One experiment: one language pair in one direction, several systems, several seeds."""

    name: str
    source: str  # language, as in the names of the files: en
    target: str
    systems: tuple[System, ...]  # names of systems, or tables that define others
    about: str = ""  # one sentence
    data: str = "data"  # directory of the corpus files
    seeds: tuple[int, ...] = (1,)  # of the translators; none: only segment the targets
    segmenter_seeds: tuple[int, ...] = ()  # translators take them in turn; none: segmenter.seed
    cut: tuple[Split, ...] = ("test",)  # texts whose targets each segmenter segments, for analyses
    distill: bool = setting(False, "Distil each segmenter into a SentencePiece unigram model.")
    examples: int = setting(5, "Words whose segmentations are shown.", low=0)
    bleu_tokenize: BleuTokens = "13a"  # what BLEU takes for a token, as in sacreBLEU
    corpus: CorpusFields
    vocabulary: VocabularyFields = field(default_factory=VocabularyFields)
    segmenter: SegmenterSection = field(default_factory=SegmenterSection)
    translator: TranslatorSection = field(default_factory=TranslatorSection)
    decoding: Search = field(default_factory=Search)
    evaluation: EvaluationFields = field(default_factory=EvaluationFields)
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        super().__post_init__()
        type = self.vocabulary.type
        object.__setattr__(self, "systems", tuple(system.over(type) for system in self.systems))
        names = [system.name for system in self.systems]
        seeds = {"seeds": self.seeds, "segmenter_seeds": self.segmenter_seeds}
        lists: dict[str, Sequence[object]] = {"systems": names, "cut": self.cut, **seeds}
        for what, given in lists.items():
            refuse(
                (not given and what not in seeds, f"{what} must name at least one."),
                (len(set(given)) < len(given), f"{what} names one twice; leave one of them out."),
            )
        is_finnish = {self.source, self.target} == {"en", "fi"}
        refuse(
            (
                type != "unigram" and "source_alpha" in self.segmenter,
                "segmenter.source_alpha samples from a unigram vocabulary; leave it out, or set "
                'vocabulary.type to "unigram".',
            ),
            (
                self.vocabulary.text and self.corpus.moses,
                "vocabulary.text is read as it is; with corpus.moses = true leave it out.",
            ),
            (min(self.seeds, default=0) < 0, f"seeds has {self.seeds}; a seed must be at least 0."),
            (
                self.segmenter_seeds and "seed" in self.segmenter,
                "segmenter_seeds and segmenter.seed exclude each other; give one of them.",
            ),
            (self.source == self.target, f"source and target are both {self.source!r}; give two languages."),
            (
                self.corpus.builtin_pairs and not is_finnish,
                "The built-in corpus is English and Finnish; write en and fi for its sides.",
            ),
        )
        updates = {"segmenters": self.segmenter_settings("mixed").accumulate}  # which checks ranges
        for system in self.systems:
            updates["translators"] = self.translator_settings(system, 1).accumulate
            refuse(
                (
                    system.segmenter and system.vocabulary != type,
                    f"System {system.name} has the source method {system.source}, but vocabulary.type is "
                    f"{type}; change one of them.",
                )
            )
        for kind, batches in updates.items():
            if batches % (processes := self.resources.of(kind).processes):
                raise UserError(
                    f"resources.{kind}.processes is {processes}, among which the batches of an update are "
                    f"divided, but accumulate is {batches}; set it to a multiple of {processes}."
                )

    @property
    def pair(self) -> str:
        return f"{self.source}→{self.target}"

    def file(self, name: str, language: str = LANGUAGE) -> Path:
        """Where a file below `data` is; of a corpus, one side."""
        return Path(self.data).expanduser() / name.replace(LANGUAGE, language)

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The texts that are translated and scored."""
        return "dev", "test", *self.evaluation.files, *self.evaluation.noised

    def segmenter_settings(self, name: SegmenterName, seed: int = 1) -> SegmenterSettings:
        """Of the mixed model, or of the language model: of the one for translators of this seed."""
        without = {"source": False, "source_dropout": 0.0, "source_alpha": None}
        own: dict[str, Any] = {} if name == "mixed" else without
        if self.segmenter_seeds:
            own = own | {"seed": self.segmenter_seeds[(seed - 1) % len(self.segmenter_seeds)]}
        return from_preset(SEGMENTER_PRESETS, self.segmenter | own, "segmenter")

    def translator_settings(self, system: System, seed: int) -> TranslatorSettings:
        """Of one system and one seed."""
        decided = {
            "seed": seed,
            "source_method": system.source,
            "target_method": system.target,
            "target_sampling": system.target_sampling,
            "moses": (self.source, self.target) if self.corpus.moses else None,
            "bleu_tokenize": self.bleu_tokenize,
        }
        return from_preset(TRANSLATOR_PRESETS, self.translator | decided, "translator")


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with `key=value` overrides on top; `key` may be dotted, and `key=` unsets it."""
    table = _read_chain(path, ())
    for override in overrides:
        given = parse_override(override)
        checked(Recipe, given, f"--set {override}")
        table = _merge_recipes(table, given)
    return build(Recipe, table, str(path))


def recipe_from_json(table: Mapping[str, Any], label: str) -> Recipe:
    """What `recipe_json` described; dpe 0.1 wrote every field, null for those left to the preset."""
    return build(Recipe, merged({}, {key: _without_null(value) for key, value in table.items()}), label)


def recipe_json(recipe: Recipe) -> dict[str, Any]:
    """The settings that differ from their defaults, and say something about the results."""
    return {key: value for key, value in changed(recipe).items() if key not in ("data", "resources")}


def recipe_toml(recipe: Recipe) -> str:
    """A recipe as a file that `dpe run` reads."""
    described = recipe_json(recipe)
    tables = {key: value for key, value in described.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {_toml(value)}" for key, value in described.items() if key not in tables]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # text, numbers and truth are written alike in TOML


def _without_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_null(one) for key, one in value.items() if one is not None}
    return [_without_null(one) for one in value] if isinstance(value, list) else value


def _read_chain(path: Path, trail: tuple[Path, ...]) -> dict[str, Any]:
    """The table of a file on top of those that it extends, each checked under its own name."""
    if path.resolve() in trail:
        raise UserError(f"{path}: extends itself; remove one of the {EXTENDS!r} lines.")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read as a recipe: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not valid TOML: {error}.") from error
    base = table.pop(EXTENDS, None)
    checked(Recipe, table, str(path))
    if base is None:
        return table
    if not isinstance(base, str):
        raise UserError(f"{path}: {EXTENDS!r} must be the name of one file.")
    return _merge_recipes(_read_chain(path.parent / base, (*trail, path.resolve())), table)


def _merge_recipes(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One recipe on top of another; files of a corpus replace the built-in one, and it replaces them."""
    corpus, kinds = above.get("corpus", {}), (("builtin_pairs",), ("train", "dev", "test"))
    for kind, other in (kinds, kinds[::-1]):
        if any(corpus.get(key) for key in kind):
            inherited = {key: value for key, value in below.get("corpus", {}).items() if key not in other}
            return merged({**below, "corpus": inherited}, above)
    return merged(below, above)
