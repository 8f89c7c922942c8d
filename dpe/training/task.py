"""What the trainer asks of a model that it trains; segmenter_task.py and translator_task.py answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from dpe.training.processes import Processes


class Task(Protocol):
    """What is trained: a model, its batches, its loss, its score on the development text."""

    unit: str  # what losses are divided by: "character", "token"
    example_count: int

    @property
    def model(self) -> nn.Module: ...

    @property
    def left_out(self) -> str:
        """How many lines of the epochs so far were too long to train on; empty when none was."""

    def examples(self, epoch: int) -> Iterator[list[Any]]:
        """The batches of an epoch as lists of examples, in order; the same on every process."""

    def collate(self, examples: list[Any], epoch: int) -> Any:
        """A batch of tensors, with `to(device)`."""

    def loss(self, batch: Any) -> tuple[Tensor, float, int]:
        """The sum to minimise (nats), the sum to report (nats), and over how many units they go."""

    def evaluate(self, processes: Processes) -> dict[str, float]:
        """Scores on the development text; among them `score`, of which lower is better."""
