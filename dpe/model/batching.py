"""Examples of the mixed model and of the translation model, and their collation into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpe.lattice.lattice import LatticeBatch, LatticeBuilder, tensors_on
from dpe.text.draws import NOISE_STREAM, generator
from dpe.text.words import MARKER

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

# The characters of the vocabulary follow from FIRST_CHARACTER on, in its order.
PAD_CHARACTER = 0
BEGIN_CHARACTER = 1
UNKNOWN_CHARACTER = 2
FIRST_CHARACTER = 3


class CharacterIds:
    """Ids of the characters that the mixed model reads: padding, begin, unknown, then the vocabulary's."""

    pad, begin, unknown = PAD_CHARACTER, BEGIN_CHARACTER, UNKNOWN_CHARACTER

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._codes = _code_points("".join(vocabulary.characters))  # sorted, as the characters are

    def __len__(self) -> int:
        return len(self._codes) + FIRST_CHARACTER

    def encode(self, text: str) -> NDArray[np.int64]:
        """One id per code point of the text."""
        codes = _code_points(text)
        found = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        return np.where(self._codes[found] == codes, found + FIRST_CHARACTER, self.unknown)


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


class MixedExample(NamedTuple):
    """A line as the mixed model sees it: source pieces (None for a language model) and target words.

    A tuple, because many wait for their batch, and workers send them.
    """

    line: int
    source: Sequence[int] | None  # ids, the end of sentence last
    words: Sequence[str]  # of the marked target
    marked: str  # the words joined

    @property
    def size(self) -> tuple[int, int]:
        """Source tokens, and target positions: one before each character and one at the end."""
        return 0 if self.source is None else len(self.source), len(self.marked) + 1


def mixed_example(
    vocabulary: Vocabulary, number: int, source_pieces: list[str] | None, target: str
) -> MixedExample:
    """A line for the mixed model, from its segmented source and its target text."""
    marked = vocabulary.normalize(target)
    source = None
    if source_pieces is not None:
        source = [*vocabulary.source.piece_ids(source_pieces), vocabulary.source.eos_id]
    return MixedExample(number, source, vocabulary.words(marked), marked)


@dataclass(frozen=True)
class MixedInput:
    """What the mixed model reads. Column t of `characters` is the last character read at position t.

    The end of sentence is appended to every source, so that an empty one has a token too.
    """

    source: Tensor | None  # [sentence, token]; None for a language model
    source_lengths: Tensor | None  # [sentence], on the CPU
    characters: Tensor  # [sentence, position]: BEGIN_CHARACTER, then the characters; padding on the right
    word_ends: Tensor  # bool [sentence, position], on the CPU: a marker, or the end of sentence, comes next


@dataclass(frozen=True)
class MixedBatch(MixedInput):
    """Examples as tensors: what the model reads, and the lattices of what it predicts."""

    lattice: LatticeBatch
    lines: tuple[int, ...]
    character_count: int  # characters, and one end per sentence: what bits and gradients are divided by
    word_count: int
    unknown_count: int  # characters that are in no piece

    def to(self, device: torch.device | str) -> MixedBatch:
        """What the network computes with, on a device. What shapes depend on stays on the CPU."""
        moved = tensors_on(device, self, but=("source_lengths", "word_ends"))
        return replace(self, **moved, lattice=self.lattice.to(device))


class MixedCollator:
    """Makes batches for the mixed model, with `unknown_rate` of its input characters replaced by unknown.

    Which ones is a function of (seed, epoch, line). The lattice, which the model predicts, keeps them all.
    """

    def __init__(self, vocabulary: Vocabulary, *, unknown_rate: float = 0.0, seed: int = 0) -> None:
        self.characters = CharacterIds(vocabulary)
        self._marker = self.characters.encode(MARKER)
        self._lattices = LatticeBuilder(vocabulary)
        self._vocabulary = vocabulary
        self._unknown_rate = unknown_rate
        self._seed = seed

    def collate(self, examples: Sequence[MixedExample], *, epoch: int) -> MixedBatch:
        text = "".join(example.marked for example in examples)
        lengths = np.array([len(example.marked) for example in examples])
        ids = self.characters.encode(text)
        unknown_count = int((ids == self.characters.unknown).sum())
        stride = int(lengths.max()) + 1
        inside = np.arange(stride - 1) < lengths[:, None]  # [sentence, character]
        word_ends = np.zeros((len(examples), stride), dtype=np.bool_)
        word_ends[:, :-1][inside] = ids == self._marker
        word_ends[np.arange(len(examples)), lengths] = True
        if self._unknown_rate:
            drawn = [
                generator(NOISE_STREAM, self._seed, epoch, example.line).random(len(example.marked))
                for example in examples
            ]
            ids[np.concatenate(drawn) < self._unknown_rate] = self.characters.unknown
        characters = np.full((len(examples), stride), self.characters.pad)
        characters[:, 0] = self.characters.begin
        characters[:, 1:][inside] = ids
        sentences = [example.words for example in examples]
        source, source_lengths = self._sources(examples)
        return MixedBatch(
            source=source,
            source_lengths=source_lengths,
            characters=torch.from_numpy(characters),
            word_ends=torch.from_numpy(word_ends),
            lattice=self._lattices.batch(sentences, stride=stride, end_piece=self._vocabulary.eos_id),
            lines=tuple(example.line for example in examples),
            character_count=len(text) + len(examples),
            word_count=sum(map(len, sentences)),
            unknown_count=unknown_count,
        )

    def _sources(self, examples: Sequence[MixedExample]) -> tuple[Tensor, Tensor] | tuple[None, None]:
        sources = [example.source for example in examples if example.source is not None]
        if not sources:
            return None, None
        if len(sources) < len(examples):
            raise ValueError("Either every example of a batch must have a source or none.")
        return _padded(sources, fill=self._vocabulary.source.pad_id)


class TranslationExample(NamedTuple):
    """A line as the translation model sees it."""

    line: int
    source: Sequence[int]  # ids, the end of sentence last
    target: Sequence[int]  # ids, without beginning or end

    @property
    def size(self) -> tuple[int, int]:
        """Source tokens, and target positions: one before each piece and one at the end."""
        return len(self.source), len(self.target) + 1


def translation_example(
    vocabulary: Vocabulary, number: int, source_pieces: list[str], target_pieces: list[str]
) -> TranslationExample:
    """A line for the translation model, from the segmentations of both sides."""
    source = [*vocabulary.source.piece_ids(source_pieces), vocabulary.source.eos_id]
    return TranslationExample(line=number, source=source, target=vocabulary.piece_ids(target_pieces))


@dataclass(frozen=True)
class TranslationBatch:
    """Examples as tensors: `target_out[:, t]` is what follows `target_in[:, : t + 1]`."""

    source: Tensor  # [sentence, token]
    source_lengths: Tensor  # [sentence], on the CPU
    target_in: Tensor  # [sentence, position], the beginning first
    target_out: Tensor  # [sentence, position], the end last
    lines: tuple[int, ...]
    token_count: int  # target pieces, and one end per sentence

    def to(self, device: torch.device | str) -> TranslationBatch:
        """As `MixedBatch.to`."""
        return replace(self, **tensors_on(device, self, but=("source_lengths",)))


def collate_translation(examples: Sequence[TranslationExample], vocabulary: Vocabulary) -> TranslationBatch:
    """Make a batch for the translation model."""
    pad, begin, end = vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id
    sources = [example.source for example in examples]
    source, source_lengths = _padded(sources, fill=vocabulary.source.pad_id)
    target_in, target_lengths = _padded([[begin, *example.target] for example in examples], fill=pad)
    target_out, _ = _padded([[*example.target, end] for example in examples], fill=pad)
    return TranslationBatch(
        source=source,
        source_lengths=source_lengths,
        target_in=target_in,
        target_out=target_out,
        lines=tuple(example.line for example in examples),
        token_count=int(target_lengths.sum()),
    )


def _padded(rows: Sequence[Sequence[int]], *, fill: int) -> tuple[Tensor, Tensor]:
    """Rows as one tensor, [row, column], and their lengths."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), fill)
    padded[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(lengths)
