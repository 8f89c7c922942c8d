"""What the trainer asks of a model that it trains; the segmenter and the translator each have a task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dpe.errors import refuse
from dpe.model.batch_order import shard

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dpe.model.batching import MixedBatch, TranslationBatch
    from dpe.text.text_file import ParallelText
    from dpe.training.processes import Processes

    Batch = TypeVar("Batch", MixedBatch, TranslationBatch)
Example = TypeVar("Example")


class Task(Protocol):
    """What is trained: a model, its batches, its loss, its score on the development text."""

    unit: str  # what losses are divided by: "character", "token"
    example_count: int
    budget: tuple[int, int]  # source tokens and target positions of a batch
    best_cuts: Tensor | None  # [word] int64: codes of the last evaluation's best segmentations, if it has any

    @property
    def model(self) -> nn.Module: ...

    def left_out(self, lines: int) -> str:
        """That so many training lines, and some of the development text, were too long; empty if none."""

    def lines(self, epoch: int) -> Callable[[list[int]], list[Any]]:
        """What loads lines for an epoch: their examples, None for a line that is too long.

        It is sent to worker processes. An example is a function of (settings, epoch, line).
        """

    def collate(self, examples: list[Any], epoch: int) -> Any:
        """A batch of tensors, with `to(device)`."""

    def loss(self, batch: Any) -> tuple[Tensor, Tensor, int]:
        """The sum to minimise (nats), the sum to report (nats), and over how many units they go."""

    def evaluate(self, processes: Processes) -> dict[str, float]:
        """Scores on the development text; among them `score`, of which lower is better, and `dev_bits`."""

    def shown(self, score: float, dev_bits: float) -> str:
        """These two for the user."""


def own_batches(
    batches: Iterable[list[Example]], collate: Callable[[list[Example]], Batch], processes: Processes
) -> Iterator[Batch]:
    """This process's share of the batches, as tensors on its device."""
    for examples in shard(batches, rank=processes.rank, world=processes.world):
        if examples is not None:
            yield collate(examples).to(processes.device)


def refuse_empty(train: ParallelText, dev: ParallelText) -> None:
    """There must be something to learn from, and something to choose the best model by."""
    for name, text in (("training", train), ("development", dev)):
        refuse((len(text) == 0, f"The {name} text has no lines; give files with text."))


def left_out_sentence(train: int, train_limit: str, dev: int, dev_limit: str) -> str:
    """One sentence about the lines that were too long; empty when there are none."""
    kinds = ((train, "lines", train_limit), (dev, "lines of the development text", dev_limit))
    return "; ".join(f"{n:,} {what} longer than {limit} left out" for n, what, limit in kinds if n)


def bits_of(nats: float, units: float) -> float:
    """A sum in nats as bits per unit: per character or per token."""
    return nats / max(units, 1.0) / math.log(2)
