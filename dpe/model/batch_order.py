"""Which lines make which batch: order by (seed, epoch), budgets, shards, prefetching.

    batches = epoch_batches(len(text), load, size, budget=(6000, 6000), seed=1, epoch=0)
    for examples in shard(batches, rank=0, world=1): ...

The batches of an epoch are a function of the arguments alone; ranks share them and do not change them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

from dpe.text.draws import generator

Example = TypeVar("Example")
Item = TypeVar("Item")

WINDOW = 20_000  # examples that are sorted by length, and in memory, at a time


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
    """Every line of 0..count-1 once, in random order, in batches of similar length.

    `load` gives a line's example, or None to leave it out; `size` its (source tokens, target positions);
    `budget` bounds both for a batch, padding included. An example that exceeds it alone is a batch of its
    own. Only one window of examples is in memory.
    """
    random = generator(seed, epoch)
    order = random.permutation(count)
    for begin in range(0, count, window):
        loaded = (load(line) for line in order[begin : begin + window].tolist())
        batches = list(_by_length((one for one in loaded if one is not None), size, budget))
        yield from (batches[i] for i in random.permutation(len(batches)))


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


def shard(batches: Iterable[Item], *, rank: int, world: int, start: int = 0) -> Iterator[Item | None]:
    """The batches of one rank: one of each group of `world`, from group `start` on.

    Every rank makes the same number of steps: if the last group is incomplete, some ranks get None.
    """
    remaining = islice(batches, start * world, None)
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
