"""The batches of a training's epoch, as one process has them that makes updates of one batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpe.model.batch_order import epoch_batches
from dpe.training.task import Task


def batches_of(task: Task, epoch: int) -> Iterator[list[Any]]:
    lines = task.lines(epoch)
    return epoch_batches(
        task.example_count,
        lambda number: lines([number])[0],
        lambda example: example.size,
        budget=task.budget,
        seed=1,
        epoch=epoch,
    )
