"""Work shared out to processes, results in order: who computes what never shows in the result."""

from __future__ import annotations

import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from dpe.errors import UserError
from dpe.model.batch_order import prefetch

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 2  # tasks a worker has at hand, so that it need not wait for the next one
_UNORDERED = 64  # tasks per worker that may be under way or wait for an earlier one


class Failure:
    """An error in a worker, as it travels back."""

    def __init__(self, error: BaseException) -> None:
        self.sentence = str(error) if isinstance(error, UserError) else None
        self.report = traceback.format_exc()

    def raise_here(self) -> None:
        if self.sentence is not None:
            raise UserError(self.sentence)
        raise RuntimeError(f"a worker failed:\n{self.report}")


def ordered_results(
    make: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task], *, workers: int
) -> Iterator[Result]:
    """The results of `make()(task)` for all tasks, in their order; at most a few tasks are read ahead.

    One worker is this process itself. More are processes that are started afresh (`make`, the tasks and the
    results travel to and fro), each of which calls `make` once. One that dies ends the work with an error,
    and none outlives this iterator, or the program, however that ends.
    """
    if workers == 1:
        yield from map(make(), tasks)
        return
    with _started(make, workers) as crew:
        yield from _shared_out(crew, iter(tasks))


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection[Any, Any]
    numbers: deque[int] = field(default_factory=deque)  # of the tasks it has, in order

    def give(self, number: int, task: object) -> None:
        self.numbers.append(number)
        try:
            self.connection.send(task)
        except OSError as error:
            raise self._died() from error

    def take(self) -> tuple[int, Any]:
        try:
            result = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(result, Failure):
            result.raise_here()
        return self.numbers.popleft(), result

    def _died(self) -> UserError:
        self.process.join(5)
        code = self.process.exitcode or 0
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return UserError(
            f"A worker process {how}, perhaps for want of memory; start the same command again, "
            "with fewer --workers if it happens once more."
        )


class _Reordering(Generic[Result]):
    """Results as they come, handed on in the order of their numbers."""

    def __init__(self) -> None:
        self._waiting: dict[int, Result] = {}
        self.next = 0

    def put(self, number: int, result: Result) -> Iterator[Result]:
        self._waiting[number] = result
        while self.next in self._waiting:
            self.next += 1
            yield self._waiting.pop(self.next - 1)


def _shared_out(crew: list[_Worker], tasks: Iterator[Task]) -> Iterator[Any]:
    numbered = enumerate(tasks)
    order: _Reordering[Any] = _Reordering()
    given = 0
    while True:
        for worker in sorted(crew, key=lambda worker: len(worker.numbers)):
            room = min(_AHEAD - len(worker.numbers), order.next + _UNORDERED * len(crew) - given)
            for number, task in islice(numbered, max(room, 0)):
                worker.give(number, task)
                given += 1
        busy = {worker.connection: worker for worker in crew if worker.numbers}
        if not busy:
            return
        for connection in wait(list(busy)):
            yield from order.put(*busy[connection].take())  # type: ignore[index]


@contextmanager
def _started(make: Callable[[], Callable[[Any], Any]], count: int) -> Iterator[list[_Worker]]:
    crew: list[_Worker] = []
    try:
        with _without_interrupts():
            for _ in range(count):
                crew.append(_start(make))
        yield crew
    finally:
        for worker in crew:
            worker.connection.close()
            worker.process.terminate()
        for worker in crew:
            worker.process.join()


def _start(make: Callable[[], Callable[[Any], Any]]) -> _Worker:
    # Not forked: a copy of a process whose libraries run threads may hang.
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(make, there), daemon=True)
    process.start()
    there.close()  # so that only the worker holds it, and its death is noticed
    return _Worker(process, here)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Processes started here never see Ctrl-C, which a terminal sends to all of them: this one ends them.

    They inherit the block of the signal. Here another thread may still receive an interrupt, for which
    Python runs the handler in the main thread, so that the handler waits until the end as well.
    """
    resource_tracker.ensure_running()  # multiprocessing's own process, whose start would undo the block
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


def _serve(make: Callable[[], Callable[[Any], Any]], connection: Connection[Any, Any]) -> None:
    """The life of a worker: it ends when the other side of the connection is closed or dead."""
    with suppress(BrokenPipeError, ConnectionResetError):
        try:
            work = make()
            # A thread receives ahead; without it both sides could wait for each other to receive.
            for task in prefetch(_received(connection), depth=_AHEAD):
                connection.send(work(task))
        except (BrokenPipeError, ConnectionResetError):
            raise
        except BaseException as error:
            connection.send(Failure(error))


def _received(connection: Connection[Any, Any]) -> Iterator[Any]:
    with suppress(EOFError, ConnectionResetError):
        while True:
            yield connection.recv()
