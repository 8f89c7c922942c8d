"""Tasks shared out to processes, results in order: which process computes what never shows in the result."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from dpe.errors import UserError

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 16  # tasks per worker that may be under way or wait for an earlier one
_PAUSE = 0.01  # seconds until tasks are asked for again


def in_order(
    make: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task | None], *, workers: int
) -> Generator[Result, None, None]:
    """The results of `make()(task)` for all tasks, in their order; a few tasks are read ahead.

    One worker is this process itself. More are new processes, each of which calls `make` once; `make`, tasks
    and results are pickled. A worker that dies ends the work with an error. No worker outlives this
    generator, so close it (`contextlib.closing`), or the program, however that ends. While there is no task,
    and some result has not been given yet, tasks may be None, which is not passed on.
    """
    if workers == 1:
        yield from map(make(), (task for task in tasks if task is not None))
        return
    context = get_context("spawn")  # a forked copy of a process whose libraries run threads may hang
    lifeline, held = context.Pipe(duplex=False)
    executor = ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(make, lifeline))
    pending: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            if task is None:
                wait_for(set(islice(pending, 1)), timeout=_PAUSE)
            else:
                with _interrupts_delayed():
                    pending.append(executor.submit(_answer, task))
            while pending and (pending[0].done() or len(pending) >= _AHEAD * workers):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            "A worker process died, possibly out of memory; run the same command again, "
            "with fewer --workers if it happens again."
        ) from error
    finally:
        held.close()  # tells the workers to end, whatever they are working on
        executor.shutdown(cancel_futures=True)
        lifeline.close()


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
