"""Batches prepared ahead by a thread, while the one before is computed with."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")


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
