"""Training pairs for other training loops: a torch dataset whose pairs are segmented anew every epoch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch.utils.data import Dataset

from dpe.segmenter.segmenter import TrainingPair
from dpe.text.corpus import Strings
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.segmenters import CountSegmenter
from dpe.text.text_file import ParallelText, Text
from dpe.text.vocabulary import Vocabulary


class PairCutter(Protocol):
    """Segments both sides of pairs, by the draws of an epoch and of their lines: `OnTheFly`, `CountPairs`."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def pairs(
        self, sources: Strings, targets: Strings, *, epoch: int, lines: Iterable[int]
    ) -> list[TrainingPair]: ...


class CountPairs:
    """Pairs whose sides are segmented by counts, each by its own draws, as a translator's training does."""

    def __init__(
        self, vocabulary: Vocabulary, source: CountSegmenter, target: CountSegmenter, *, seed: int = 1
    ) -> None:
        self.vocabulary = vocabulary
        self._source, self._target, self._seed = source, target, seed

    def pairs(
        self, sources: Strings, targets: Strings, *, epoch: int, lines: Iterable[int]
    ) -> list[TrainingPair]:
        return [
            TrainingPair(
                tuple(self._source.cut(source, Draw(self._seed, epoch, line))),
                tuple(self._target.cut(target, Draw(self._seed + TARGET_STREAM, epoch, line))),
            )
            for source, target, line in zip(sources, targets, lines, strict=True)
        ]


class EpochPairs(Dataset[dict[str, list[int]]]):
    """A parallel text as ids of pieces, `input_ids` and `labels`, segmented anew in every epoch.

        pairs = EpochPairs("train.en", "train.fi", OnTheFly(Segmenter.load("segmenter/")))
        pairs.set_epoch(3)

    A pair depends on the cutter's seed, the epoch and its line alone, whichever worker or process asks for it
    and whatever else is in its batch. The epoch is in shared memory, so workers that persist see it change. A
    data loader asks for a whole batch at once, which is one call of the segmenter.

    The traps: a segmenter in a data loader's workers needs them to be spawned
    (`multiprocessing_context="spawn"`); a forked copy of a process that has computed may hang. And somebody
    must call `set_epoch`, or every epoch has the pairs of the first.
    """

    def __init__(self, source: Text, target: Text, cutter: PairCutter, *, cache: Path | None = None) -> None:
        """A text is a list of lines, or the path of a file; `cache` is a directory to keep its index in."""
        self._text = ParallelText.open(source, target, cache=cache)
        self._cutter = cutter
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """From now on pairs are those of this epoch; set it before the epoch's first batch is asked for."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self._text)

    def __getitem__(self, row: int) -> dict[str, list[int]]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, list[int]]]:
        """What torch's data loader asks for where a dataset has it: the pairs of a batch."""
        target = self._cutter.vocabulary
        source = target.source
        return [
            {
                "input_ids": [*source.piece_ids(pair.source), source.eos_id],
                "labels": [*target.piece_ids(pair.target), target.eos_id],
            }
            for pair in self.pairs(rows)
        ]

    def pairs(self, rows: Sequence[int]) -> list[TrainingPair]:
        """The same as pieces, without the end of sentence."""
        lines = [range(len(self))[row] for row in rows]  # negative rows count from the end
        sources, targets = zip(*(self._text[line] for line in lines), strict=True) if lines else ((), ())
        return self._cutter.pairs(sources, targets, epoch=int(self._epoch), lines=lines)
