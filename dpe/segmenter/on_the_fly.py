"""`OnTheFly`: the paper's training pairs, cut anew every epoch, for a training loop that is not dpe's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dpe.errors import UserError
from dpe.lattice.dynamic_program import check_temperature
from dpe.segmenter.scored_batch import Cut, Drawing, ScoredBatch
from dpe.segmenter.segmenter import Segmenter
from dpe.text.corpus import Strings, lines_of
from dpe.text.draws import Draw
from dpe.text.segmenters import source_segmenter


class TrainingPair(NamedTuple):
    """A sentence pair as a translator reads it in one epoch."""

    source: tuple[str, ...]  # pieces, by BPE dropout
    target: tuple[str, ...]  # pieces, cut given that very source


class OnTheFly:
    """Cuts pairs as `dpe encode --method bpe-dropout` and `dpe segment --source-dropout` cut whole files.

        cutter = OnTheFly(Segmenter.load("segmenter/"), dropout=0.05)
        cutter.pairs(["the cars"], ["autot"], epoch=3, lines=[17])

    A pair depends on the seed, the epoch and the line's number alone, so it does not matter in which order
    lines are asked for, or how many at once. With a temperature targets are drawn from the posterior;
    without one they are the best cuts.
    """

    def __init__(
        self, segmenter: Segmenter, *, dropout: float = 0.05, seed: int = 1, temperature: float | None = None
    ) -> None:
        if temperature is not None:
            check_temperature(temperature)
        self._segmenter, self._seed, self._temperature = segmenter, seed, temperature
        self._cut_source = source_segmenter(segmenter.vocabulary, dropout)

    def pairs(
        self,
        sources: Strings,
        targets: Strings,
        *,
        epoch: int,
        lines: Iterable[int] | None = None,
    ) -> list[TrainingPair]:
        """The pairs of an epoch, in the order given; `lines` are their numbers, by default 0, 1, 2...

        The first line of a file is 0, as for `dpe encode` and `dpe segment`.
        """
        if isinstance(sources, str) or isinstance(targets, str):
            raise UserError("Sources and targets are lists of sentences; give a list for one sentence too.")
        sources, targets = lines_of(sources, "source"), lines_of(targets, "target")
        numbers = list(range(len(targets)) if lines is None else lines)
        if not len(sources) == len(targets) == len(numbers):
            raise UserError(
                f"There are {len(sources)} sources, {len(targets)} targets and {len(numbers)} line numbers; "
                "give as many of each."
            )
        cut = [
            self._cut_source.cut(source, Draw(self._seed, epoch, line))
            for source, line in zip(sources, numbers, strict=True)
        ]
        examples = (
            self._segmenter.example(line, pieces if self._segmenter.has_source else None, target)
            for line, pieces, target in zip(numbers, cut, targets, strict=True)
        )
        found = self._segmenter.answers(examples, lambda batch: self._cuts(batch, epoch))
        return [TrainingPair(tuple(pieces), one.pieces) for pieces, one in zip(cut, found, strict=True)]

    def _cuts(self, batch: ScoredBatch, epoch: int) -> list[Cut]:
        if self._temperature is None:
            return batch.best()
        drawing = Drawing(seed=self._seed, epoch=epoch, temperature=self._temperature)
        return [first for (first,) in batch.sample(drawing)]
