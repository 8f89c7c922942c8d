"""From lines to batches: order by (seed, epoch), budgets, shards, prefetching, and collation into tensors.

    batches = epoch_batches(len(text), load, size, budget=(6000, 6000), seed=1, epoch=0)
    for examples in prefetch(shard(batches, rank=0, world=1)): ...

The batches of an epoch are a function of the arguments alone: ranks share them out, they do not change them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpe.segmentation.lattice import LatticeBatch, LatticeBuilder
from dpe.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Example = TypeVar("Example")
Item = TypeVar("Item")
Batch = TypeVar("Batch", bound="DataclassInstance")

# Sets the noise of the characters apart from every other draw of the same seed, epoch and line.
_NOISE_STREAM = 0x6E6F6973


def epoch_batches(
    count: int,
    load: Callable[[int], Example | None],
    size: Callable[[Example], tuple[int, int]],
    *,
    budget: tuple[int, int],
    seed: int,
    epoch: int,
    window: int = 20_000,
    shuffle: bool = True,
) -> Iterator[list[Example]]:
    """Every line of 0..count-1 once, in batches of similar length.

    `load` gives a line's example, or None to leave it out; `size` its (source tokens, target positions);
    `budget` bounds both for a batch, padding included. An example that exceeds it alone is a batch of its
    own. Only one window of examples is in memory. Without `shuffle` the windows follow the file, and the
    batches of a window go from short to long.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(count) if shuffle else np.arange(count)
    for begin in range(0, count, window):
        loaded = (load(line) for line in order[begin : begin + window].tolist())
        examples = [example for example in loaded if example is not None]
        examples.sort(key=lambda example: size(example)[::-1])  # stable: equal sizes stay in drawn order
        batches = list(_within_budget(examples, size, budget))
        if shuffle:
            batches = [batches[i] for i in random.permutation(len(batches))]
        yield from batches


def _within_budget(
    examples: Iterable[Example], size: Callable[[Example], tuple[int, int]], budget: tuple[int, int]
) -> Iterator[list[Example]]:
    """Cut a sequence into batches, each as long as the padded sizes allow."""
    batch: list[Example] = []
    longest_source = longest_target = 0
    for example in examples:
        source, target = size(example)
        longest_source, longest_target = max(longest_source, source), max(longest_target, target)
        rows = len(batch) + 1
        if batch and (rows * longest_source > budget[0] or rows * longest_target > budget[1]):
            yield batch
            batch, longest_source, longest_target = [], source, target
        batch.append(example)
    if batch:
        yield batch


def shard(batches: Iterable[Item], *, rank: int, world: int, start: int = 0) -> Iterator[Item | None]:
    """The batches of one rank: one of each group of `world`, beginning with group `start`.

    Every rank makes the same number of steps: in a last group that is too small some get None.
    """
    remaining = islice(batches, start * world, None)
    while group := list(islice(remaining, world)):
        yield group[rank] if rank < len(group) else None


def prefetch(items: Iterable[Item], *, depth: int = 2) -> Iterator[Item]:
    """The same items, up to `depth` of them prepared ahead by a thread.

    An exception of the preparation is raised here. The thread ends when this iterator is closed or dropped,
    after the item that it is at.
    """
    results: SimpleQueue[tuple[Item] | BaseException | None] = SimpleQueue()
    slots, stop = threading.Semaphore(depth), threading.Event()
    # A daemon, so that an iterator which is never closed cannot hold up the end of the program.
    thread = threading.Thread(
        target=_prepare, args=(items, results, slots, stop), name="prefetch", daemon=True
    )
    thread.start()
    try:
        while (result := results.get()) is not None:
            if isinstance(result, BaseException):
                raise result
            slots.release()
            yield result[0]
    finally:
        stop.set()
        slots.release()  # wakes the thread if it waits for one
        # At exit the thread no longer runs, and a garbage collection may happen in the thread itself.
        if not sys.is_finalizing() and thread is not threading.current_thread():
            thread.join(timeout=1)


def _prepare(
    items: Iterable[Item],
    results: SimpleQueue[tuple[Item] | BaseException | None],
    slots: threading.Semaphore,
    stop: threading.Event,
) -> None:
    """The thread of `prefetch`: puts items as 1-tuples, then an exception or None."""
    try:
        iterator = iter(items)
        while slots.acquire() and not stop.is_set():
            try:
                item = next(iterator)
            except StopIteration:
                break
            results.put((item,))
        results.put(None)
    except BaseException as error:
        results.put(error)


class CharacterIds:
    """What the mixed model reads, as numbers: padding, begin, unknown, then the vocabulary's characters."""

    pad, begin, unknown = 0, 1, 2

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._codes = _code_points("".join(vocabulary.characters))  # sorted, as the characters are

    def __len__(self) -> int:
        return len(self._codes) + 3

    def encode(self, text: str) -> NDArray[np.int64]:
        """One id per code point of the text."""
        codes = _code_points(text)
        found = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        return np.where(self._codes[found] == codes, found + 3, self.unknown)


def _code_points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")


@dataclass(frozen=True, slots=True)
class MixedExample:
    """A line as the mixed model sees it: source pieces (None for a language model) and target words."""

    line: int
    source: Sequence[int] | None  # ids, the end of sentence last
    words: Sequence[str]  # of the marked target
    marked: str  # the words joined

    @property
    def size(self) -> tuple[int, int]:
        """Source tokens, and target positions: one before each character and one at the end."""
        return 0 if self.source is None else len(self.source), len(self.marked) + 1


@dataclass(frozen=True)
class MixedBatch:
    """Examples as tensors. Column t of `characters` is the last character read before position t's state."""

    source: Tensor | None  # [sentence, token]
    source_lengths: Tensor | None  # [sentence]
    characters: Tensor  # [sentence, position], the begin symbol first
    lattice: LatticeBatch
    lines: tuple[int, ...]
    character_count: int  # characters, and one end per sentence: what bits and gradients are divided by
    word_count: int
    unknown_count: int  # characters that are in no piece

    def to(self, device: torch.device | str) -> MixedBatch:
        return _moved(self, device)


class MixedCollator:
    """Makes batches for the mixed model; `unknown_rate` of the characters it reads are hidden from it.

    Which ones is a function of (seed, epoch, line). The lattice, which is what it predicts, is not touched.
    """

    def __init__(self, vocabulary: Vocabulary, *, unknown_rate: float = 0.0, seed: int = 0) -> None:
        self.characters = CharacterIds(vocabulary)
        self._lattices = LatticeBuilder(vocabulary)
        self._vocabulary = vocabulary
        self._unknown_rate = unknown_rate
        self._seed = seed

    def collate(self, examples: Sequence[MixedExample], *, epoch: int) -> MixedBatch:
        text = "".join(example.marked for example in examples)
        lengths = np.array([len(example.marked) for example in examples])
        ids = self.characters.encode(text)
        unknown_count = int((ids == self.characters.unknown).sum())
        if self._unknown_rate:
            ids[self._hidden(examples, epoch)] = self.characters.unknown
        stride = int(lengths.max()) + 1
        characters = np.full((len(examples), stride), self.characters.pad)
        characters[:, 0] = self.characters.begin
        characters[:, 1:][np.arange(stride - 1) < lengths[:, None]] = ids
        sentences = [example.words for example in examples]
        source, source_lengths = self._sources(examples)
        return MixedBatch(
            source=source,
            source_lengths=source_lengths,
            characters=torch.from_numpy(characters),
            lattice=self._lattices.batch(sentences, stride=stride, end_piece=self._vocabulary.eos_id),
            lines=tuple(example.line for example in examples),
            character_count=len(text) + len(examples),
            word_count=sum(map(len, sentences)),
            unknown_count=unknown_count,
        )

    def _hidden(self, examples: Sequence[MixedExample], epoch: int) -> NDArray[np.bool_]:
        """Which characters of the joined examples to hide."""
        drawn = [
            np.random.default_rng([_NOISE_STREAM, self._seed, epoch, example.line]).random(
                len(example.marked)
            )
            for example in examples
        ]
        return np.concatenate(drawn) < self._unknown_rate

    def _sources(self, examples: Sequence[MixedExample]) -> tuple[Tensor, Tensor] | tuple[None, None]:
        sources = [example.source for example in examples if example.source is not None]
        if not sources:
            return None, None
        if len(sources) < len(examples):
            raise ValueError("Either every example of a batch has a source or none has.")
        return _padded(sources, fill=self._vocabulary.pad_id)


@dataclass(frozen=True, slots=True)
class TranslationExample:
    """A line as the translation model sees it."""

    line: int
    source: Sequence[int]  # ids, the end of sentence last
    target: Sequence[int]  # ids, without beginning or end

    @property
    def size(self) -> tuple[int, int]:
        """Source tokens, and target positions: one before each piece and one at the end."""
        return len(self.source), len(self.target) + 1


@dataclass(frozen=True)
class TranslationBatch:
    """Examples as tensors: `target_out[:, t]` is what follows `target_in[:, : t + 1]`."""

    source: Tensor  # [sentence, token]
    source_lengths: Tensor  # [sentence]
    target_in: Tensor  # [sentence, position], the beginning first
    target_out: Tensor  # [sentence, position], the end last
    lines: tuple[int, ...]
    token_count: int  # target pieces, and one end per sentence

    def to(self, device: torch.device | str) -> TranslationBatch:
        return _moved(self, device)


def collate_translation(
    examples: Sequence[TranslationExample], *, pad_id: int, bos_id: int, eos_id: int
) -> TranslationBatch:
    """Make a batch for the translation model."""
    source, source_lengths = _padded([example.source for example in examples], fill=pad_id)
    target_in, target_lengths = _padded([[bos_id, *example.target] for example in examples], fill=pad_id)
    target_out, _ = _padded([[*example.target, eos_id] for example in examples], fill=pad_id)
    return TranslationBatch(
        source=source,
        source_lengths=source_lengths,
        target_in=target_in,
        target_out=target_out,
        lines=tuple(example.line for example in examples),
        token_count=int(target_lengths.sum()),
    )


def _padded(rows: Sequence[Sequence[int]], *, fill: int) -> tuple[Tensor, Tensor]:
    """Rows side by side, [row, column], and their lengths."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), fill)
    padded[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(rows)
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def _moved(batch: Batch, device: torch.device | str) -> Batch:
    """A batch with all its tensors on a device."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    tensors = {name: value.to(device) for name, value in values.items() if hasattr(value, "to")}
    return replace(batch, **tensors)
