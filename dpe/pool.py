"""Tasks shared out to workers, results in order: which worker computes what never shows in the result.

Workers are processes of this machine, or whatever else `start` gives (`Cluster.actors`).
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, TypeVar

from dpe.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)

_AHEAD = 16  # tasks per worker that may be under way or wait for an earlier one
_PAUSE = 0.01  # seconds until tasks are asked for again

Make = Callable[[], Callable[[Task], Result]]


class Job(Protocol[Result_co]):
    """A task under way."""

    def done(self) -> bool: ...
    def result(self) -> Result_co:
        """Waits for it."""


# Starts so many workers, each of which calls `make` once, and yields the function that tasks are given to.
Start = Callable[[Make[Task, Result], int], AbstractContextManager[Callable[[Task], Job[Result]]]]


def in_order(
    make: Make[Task, Result],
    tasks: Iterable[Task | None],
    *,
    workers: int,
    start: Start[Task, Result] | None = None,
) -> Generator[Result, None, None]:
    """The results of `make()(task)` for all tasks, in their order; a few tasks are read ahead.

    `make`, tasks and results are pickled. No worker outlives this generator, so close it
    (`contextlib.closing`), or the program, however that ends. While there is no task, and some result has not
    been given yet, tasks may be None, which is not passed on.
    """
    pending: deque[Job[Result]] = deque()
    with (start or processes)(make, workers) as submit:
        for task in tasks:
            if task is not None:
                pending.append(submit(task))
            elif pending and not pending[0].done():
                time.sleep(_PAUSE)
            while pending and (pending[0].done() or len(pending) >= _AHEAD * workers):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@contextmanager
def processes(make: Make[Task, Result], workers: int) -> Iterator[Callable[[Task], Job[Result]]]:
    """New processes of this machine, or, for one worker, this process itself.

    A worker that dies ends the work with an error.
    """
    if workers == 1:
        work = make()
        yield lambda task: _finished(work(task))
        return
    context = get_context("spawn")  # a forked copy of a process whose libraries run threads may hang
    lifeline, held = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(make, lifeline))

    def submit(task: Task) -> Future[Result]:
        with _interrupts_delayed():
            return executor.submit(_answer, task)

    try:
        yield submit
    except BrokenProcessPool as error:
        raise UserError(
            "A worker process died, possibly out of memory; run the same command again, "
            "with fewer worker processes if it happens again."
        ) from error
    finally:
        held.close()  # tells the workers to end, whatever they are working on
        executor.shutdown(cancel_futures=True)
        lifeline.close()


def _finished(result: Result) -> Job[Result]:
    future: Future[Result] = Future()
    future.set_result(result)
    return future


@contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block; processes that are started in it never see it.

    They inherit the blocked signal: a terminal sends it to all processes, and this one ends the others. Where
    another thread receives it nevertheless, Python runs the handler in the main thread.
    """
    received: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number)) if in_main else None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, handler)
    if received:
        raise KeyboardInterrupt


class _Worker:
    """What a worker process keeps from task to task."""

    make: Callable[[], Callable[[Any], Any]]
    sending = threading.Lock()  # held unless a task is being worked on: a result may be on its way

    @cached_property
    def work(self) -> Callable[[Any], Any]:
        return self.make()


_worker = _Worker()


def _start_worker(make: Callable[[], Callable[[Any], Any]], lifeline: Connection[Any, Any]) -> None:
    """Prepare for tasks, and for an end in the middle of one: when told so, and with the parent process.

    Half a result would block the parent, so a worker that sends one is not ended. Without a parent it would
    wait for tasks forever (cpython issue 111873).
    """
    parent = parent_process()
    assert parent is not None

    def end_when_told() -> None:
        wait([lifeline])  # until the other end is closed
        _worker.sending.acquire()
        os._exit(1)

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    _worker.make = make
    _worker.sending.acquire()
    for watch in (end_when_told, end_with_parent):
        threading.Thread(target=watch, daemon=True).start()


def _answer(task: Any) -> Any:
    _worker.sending.release()
    try:
        return _worker.work(task)
    except UserError:
        raise
    except Exception:  # as text, because not every exception can be pickled
        raise RuntimeError(f"a worker failed:\n{traceback.format_exc()}") from None
    finally:
        _worker.sending.acquire()
