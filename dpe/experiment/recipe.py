"""What an experiment is. Every field is a key of a recipe file; `None` leaves the choice to the preset.

name = "mine"                       [vocabulary]
source = "en"                       size = 8000
target = "de"
systems = ["bpe", "dpe"]            [translator]
seeds = [1, 2, 3]                   preset = "small"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from dpe.choices import BleuTokens, Normalization, PresetName
from dpe.errors import UserError
from dpe.experiment.systems import System

LANGUAGE = "{language}"
Split = Literal["train", "dev", "test"]


def _at_least(smallest: int, **given: float | None) -> None:
    for name, value in given.items():
        if value is not None and not value >= smallest:
            raise UserError(f"{name} is {value}; it must be {smallest} or more.")


def _shares(**given: float | None) -> None:
    for name, value in given.items():
        if value is not None and not 0 <= value <= 1:
            raise UserError(f"{name} is {value}; it must be from 0 to 1.")


@dataclass(frozen=True, kw_only=True)
class CorpusFields:
    """[corpus]: files, or the built-in corpus. In the name of a file `{language}` stands for each side's."""

    builtin_pairs: int | None = None  # generate the built-in corpus (en, fi) with so many training pairs
    train: tuple[str, ...] = ()  # files below `data`, plain, .gz or .xz; read one after the other
    dev: str = ""
    test: str = ""
    lines: int | None = None  # draw so many training pairs at random, from which those below are dropped
    max_tokens: int = 80  # a training pair with so many tokens on a side, or more, is dropped
    max_ratio: float | None = None  # so is one whose sides differ in length by more than this factor
    moses: bool = False  # tokenise by Moses' rules; translations are detokenised

    def __post_init__(self) -> None:
        files = [*self.train, self.dev, self.test]
        if self.builtin_pairs is None and not any(files):
            raise UserError("corpus needs either builtin_pairs, or the files train, dev and test.")
        if self.builtin_pairs is not None and any(files):
            raise UserError("corpus has both builtin_pairs and files of its own; leave one of them out.")
        if self.builtin_pairs is None and not (self.train and self.dev and self.test):
            raise UserError("corpus needs all of the files train, dev and test.")
        for name in files:
            if name and LANGUAGE not in name:
                raise UserError(f"corpus names the file {name!r} without {LANGUAGE} where its sides differ.")
        for name in ("lines", "max_ratio", "moses"):
            if self.builtin_pairs is not None and getattr(self, name):
                raise UserError(f"the built-in corpus is made as it is wanted; leave {name} out.")
        _at_least(1, builtin_pairs=self.builtin_pairs, lines=self.lines, max_ratio=self.max_ratio)
        _at_least(2, max_tokens=self.max_tokens)


@dataclass(frozen=True, kw_only=True)
class VocabularyFields:
    """[vocabulary]: learned from both sides of the training text together, unless `text` names others."""

    size: int = 32_000
    normalization: Normalization = "nfkc"
    character_coverage: float = 1.0
    text: tuple[str, ...] = ()  # files below `data` to learn it from instead of the training text
    model: str = ""  # a BPE model below `data` instead of one that is learned

    def __post_init__(self) -> None:
        if self.model and self.text:
            raise UserError("vocabulary.model is ready, and vocabulary.text to learn one from; give one.")


@dataclass(frozen=True, kw_only=True)
class NetworkFields:
    """What [segmenter] and [translator] share. What is not given is the preset's."""

    preset: PresetName = "small"
    width: int | None = None
    heads: int | None = None
    feed_forward: int | None = None
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    dropout: float | None = None  # of the network
    norm: Literal["pre", "post"] | None = None
    learning_rate: float | None = None
    warmup: int | None = None  # updates
    accumulate: int | None = None  # batches in an update
    batch: int | None = None  # target characters (segmenter) or tokens (translator) in a batch
    epochs: int | None = None  # the preset's only if steps is not given either
    steps: int | None = None  # updates
    patience: int | None = None  # stop after so many epochs without a better development score
    average: int = 1  # try the mean of the last so many epochs' weights
    bf16: bool = False  # compute in bfloat16 on a GPU

    def __post_init__(self) -> None:
        sizes = ("width", "heads", "feed_forward", "encoder_layers", "decoder_layers")
        lengths = ("accumulate", "batch", "epochs", "steps", "patience", "average")
        _at_least(1, **{name: getattr(self, name) for name in (*sizes, *lengths)})
        _at_least(0, warmup=self.warmup)
        _shares(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True)
class SegmenterFields(NetworkFields):
    """[segmenter]: of the mixed model, and of its twin without a source for LM DPE."""

    source_dropout: float = 0.05  # BPE dropout of the source
    max_characters: int = 1000  # longer lines are left out of training
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(1, max_characters=self.max_characters)
        _shares(source_dropout=self.source_dropout)


@dataclass(frozen=True, kw_only=True)
class TranslatorFields(NetworkFields):
    """[translator]: the same for every system."""

    bpe_dropout: float = 0.05
    unigram_alpha: float = 0.2  # sharpness of unigram sampling
    label_smoothing: float = 0.1
    max_tokens: int = 256  # lines with more pieces on a side are left out of training
    cut_seed: int = 1  # of random cuts; apart from `seeds`, so that runs of several seeds share their cuts

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least(1, max_tokens=self.max_tokens)
        _shares(bpe_dropout=self.bpe_dropout, label_smoothing=self.label_smoothing)


@dataclass(frozen=True, kw_only=True)
class DecodingFields:
    """[decoding]: beam search."""

    beam: int = 5
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        _at_least(1, beam=self.beam)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One experiment: one language pair in one direction, several systems, several seeds."""

    name: str
    source: str  # language, as in the names of the files: en
    target: str
    systems: tuple[System, ...]  # names of systems, or tables that define others
    about: str = ""  # one sentence
    data: str = "data"  # directory of the corpus files
    seeds: tuple[int, ...] = (1,)  # of the translators; none: only cut the targets
    cut: tuple[Split, ...] = ("test",)  # texts whose targets are cut by each segmenter, for analyses
    examples: int = 5  # words whose cuts are shown
    bleu_tokenize: BleuTokens = "13a"  # what BLEU takes for a token, as in sacreBLEU
    corpus: CorpusFields
    vocabulary: VocabularyFields = field(default_factory=VocabularyFields)
    segmenter: SegmenterFields = field(default_factory=SegmenterFields)
    translator: TranslatorFields = field(default_factory=TranslatorFields)
    decoding: DecodingFields = field(default_factory=DecodingFields)

    def __post_init__(self) -> None:
        names = [system.name for system in self.systems]
        lists: dict[str, Sequence[object]] = {"systems": names, "cut": self.cut, "seeds": self.seeds}
        for what, given in lists.items():
            if not given and what != "seeds":
                raise UserError(f"{what} must name at least one.")
            if len(set(given)) < len(given):
                raise UserError(f"{what} names one twice; leave one of them out.")
        if self.vocabulary.text and self.corpus.moses:
            raise UserError("vocabulary.text is read as it is; with corpus.moses = true leave it out.")
        for seed in self.seeds:
            _at_least(0, seed=seed)
        _at_least(0, examples=self.examples)
        if self.source == self.target:
            raise UserError(f"source and target are both {self.source!r}; give two languages.")
        if self.corpus.builtin_pairs and {self.source, self.target} != {"en", "fi"}:
            raise UserError("the built-in corpus is English and Finnish: write en and fi for its sides.")

    @property
    def other_tokens(self) -> BleuTokens | None:
        """What BLEU takes for a token, if not what it does by default."""
        return None if self.bleu_tokenize == "13a" else self.bleu_tokenize

    @property
    def pair(self) -> str:
        return f"{self.source}→{self.target}"

    def file(self, name: str, language: str) -> Path:
        """Where one side of a corpus file lies."""
        return Path(self.data).expanduser() / name.replace(LANGUAGE, language)
