"""Processes of one test that run at the same time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from typing import Any

FORK = multiprocessing.get_context("fork")


def at_the_same_time(start: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> None:
    """Call in as many processes as there are arguments, and see that all end well."""
    processes = [FORK.Process(target=start, args=one) for one in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
