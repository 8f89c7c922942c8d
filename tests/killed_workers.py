"""What is made in the workers of a cluster in tests. Nothing here needs torch, so that they begin quickly."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from dpe.errors import UserError


class Square:
    def __call__(self, task: int) -> int:
        time.sleep(0.002 * (task % 5))  # so that results come out of order
        return task * task


class KillOnce:
    """Dies of the tasks given, each of them once."""

    def __init__(self, place: Path, tasks: tuple[int, ...]) -> None:
        self._place, self._tasks = place, tasks

    def __call__(self, task: int) -> int:
        with (self._place / "begun").open("a") as file:
            file.write(f"{task}\n")
        if task in self._tasks and not (self._place / str(task)).exists():
            (self._place / str(task)).touch()
            time.sleep(0.3)  # the result of the task before is on its way
            os.kill(os.getpid(), signal.SIGKILL)
        return task * task


class KillAlways:
    def __call__(self, task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task


def make_ill() -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == 3:
            raise UserError("the text is ill.")
        return task

    return work


def make_nothing() -> Callable[[int], int]:
    raise UserError("there is no model.")
