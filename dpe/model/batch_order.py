"""Which lines make which batch: order by (seed, epoch), windows, shares, budgets, prefetching.

    for window in epoch_windows(len(text), load, size, budget=(6000, 6000), seed=1, epoch=0):
        for batch in window.batches[0]: ...

An epoch reads all lines in random order, a window at a time. A window is divided into as many shares as an
update has batches; each share is sorted by length and cut into batches by itself. So a process loads the
lines of its own shares only, and a training that is resumed loads no window that is over. The batches are a
function of the arguments; processes share them and do not change them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from queue import SimpleQueue
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dpe.text.draws import ORDER_STREAM, generator

Example = TypeVar("Example")
Item = TypeVar("Item")

WINDOW = 20_000  # lines that are sorted by length, and in memory, at a time
_SMALLEST_SHARE = 5_000  # lines; in smaller ones a last, half-empty batch would weigh too much
_CHUNK = 250  # lines that are loaded at a time

# The examples of several lines, for each list of their numbers, in order; None is a line that is left out.
Load = Callable[[Iterable[list[int]]], Iterable[Sequence[Example | None]]]


class Window(NamedTuple, Generic[Example]):
    """Some lines of an epoch, as far as one process has them."""

    batches: list[list[list[Example]]]  # of each of its shares
    left_out: int  # lines of its shares that are in no batch


def epoch_windows(
    count: int,
    load: Load[Example],
    size: Callable[[Example], tuple[int, int]],
    *,
    budget: tuple[int, int],
    seed: int,
    epoch: int,
    shares: int = 1,
    own: Sequence[int] = (0,),
    start: int = 0,
    window: int = WINDOW,
) -> Iterator[Window[Example]]:
    """The windows of an epoch from number `start` on; in all of them every line of 0..count-1 is once.

    Of the `shares` of a window those in `own` are loaded. `size` is an example's (source tokens, target
    positions); `budget` bounds both for a batch, padding included. An example that exceeds it alone is a
    batch of its own.
    """
    order = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
    random = generator(seed, epoch)
    random.shuffle(order)
    width = shares * max(window // shares, min(window, _SMALLEST_SHARE))
    begins = range(start * width, count, width)
    parts = [[order[begin : begin + width][share::shares] for share in own] for begin in begins]
    chunks = (
        lines[first : first + _CHUNK].tolist()
        for lines in chain.from_iterable(parts)
        for first in range(0, len(lines), _CHUNK)
    )
    loaded = iter(load(chunks))
    for number, shared in enumerate(parts, start=start):
        found, left_out = [], 0
        for share, lines in zip(own, shared, strict=True):
            examples = list(chain.from_iterable(islice(loaded, -(-len(lines) // _CHUNK))))
            kept = [example for example in examples if example is not None]
            left_out += len(examples) - len(kept)
            batches = list(_by_length(kept, size, budget))
            if number or share:  # else as in earlier versions, so that a text of one window keeps its results
                random = generator(ORDER_STREAM, seed, epoch, number, share)
            found.append([batches[i] for i in random.permutation(len(batches))])
        yield Window(found, left_out)


def epoch_batches(
    count: int,
    load: Callable[[int], Example | None],
    size: Callable[[Example], tuple[int, int]],
    *,
    budget: tuple[int, int],
    seed: int,
    epoch: int,
    window: int = WINDOW,
) -> Iterator[list[Example]]:
    """The batches of an epoch whose windows have one share, loaded here line by line."""

    def load_here(chunks: Iterable[list[int]]) -> Iterator[list[Example | None]]:
        return (list(map(load, lines)) for lines in chunks)

    windows = epoch_windows(count, load_here, size, budget=budget, seed=seed, epoch=epoch, window=window)
    for one in windows:
        yield from one.batches[0]


def batches_by_length(
    examples: Iterable[Example],
    size: Callable[[Example], tuple[int, int]],
    *,
    budget: tuple[int, int],
    window: int = WINDOW,
) -> Iterator[list[Example]]:
    """Batches as those of an epoch, but in the order of the examples: short to long in every window."""
    remaining = iter(examples)
    while some := list(islice(remaining, window)):
        yield from _by_length(some, size, budget)


def _by_length(
    examples: Iterable[Example], size: Callable[[Example], tuple[int, int]], budget: tuple[int, int]
) -> Iterator[list[Example]]:
    """Sort by length, and cut the sequence into batches, each as long as the padded sizes allow."""
    batch: list[Example] = []
    longest_source = longest_target = 0
    # A stable sort: examples of equal size keep their order.
    for example in sorted(examples, key=lambda example: size(example)[::-1]):
        source, target = size(example)
        longest_source, longest_target = max(longest_source, source), max(longest_target, target)
        rows = len(batch) + 1
        if batch and (rows * longest_source > budget[0] or rows * longest_target > budget[1]):
            yield batch
            batch, longest_source, longest_target = [], source, target
        batch.append(example)
    if batch:
        yield batch


def shard(batches: Iterable[Item], *, rank: int, world: int) -> Iterator[Item | None]:
    """The batches of one rank: one of each group of `world`.

    Every rank makes the same number of steps: if the last group is incomplete, some ranks get None.
    """
    remaining = iter(batches)
    while group := list(islice(remaining, world)):
        yield group[rank] if rank < len(group) else None


def prefetch(items: Iterable[Item], *, depth: int = 2) -> Iterator[Item]:
    """The same items, up to `depth` of them prepared ahead by a thread.

    An exception of the preparation is raised here. When this iterator is closed or dropped, the thread ends
    after its current item.
    """
    results: SimpleQueue[tuple[Item] | BaseException | None] = SimpleQueue()
    slots, stop = threading.Semaphore(depth), threading.Event()
    # A daemon, so that an iterator which is never closed cannot delay the end of the program.
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
        slots.release()  # wakes the thread if it is waiting
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
