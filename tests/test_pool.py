"""Processes that answer in order, and of which none is left: not after an error, not after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dpe.errors import UserError
from dpe.pool import in_order

ROOT = Path(__file__).parents[1]


class Square:
    """Any callable can be made in the workers; those here are this module's classes and functions."""

    def __call__(self, task: int) -> int:
        time.sleep(0.002 * (task % 5))  # so that results come out of order
        return task * task


class Kill:
    def __call__(self, task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task * task


class Odd(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def fail_at_3(error: Exception) -> Callable[[int], int]:
    def work(task: int) -> int:
        if task == 3:
            raise error
        return task

    return work


def make_ill() -> Callable[[int], int]:
    return fail_at_3(UserError("the text is ill."))


def make_odd() -> Callable[[int], int]:
    return fail_at_3(Odd("very ", "odd"))


def make_nothing() -> Callable[[int], int]:
    raise UserError("there is no model.")


class Worker:
    """Answers with its process and how many of its kind were made there."""

    made = 0

    def __init__(self) -> None:
        Worker.made += 1

    def __call__(self, task: int) -> tuple[int, int]:
        time.sleep(0.01)
        return os.getpid(), Worker.made


class Sleep:
    def __call__(self, task: int) -> int:
        time.sleep(0 if task == 0 else 600)
        return os.getpid()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_are_in_the_order_of_the_tasks(workers: int) -> None:
    assert list(in_order(Square, range(200), workers=workers)) == [n * n for n in range(200)]
    assert list(in_order(Square, [], workers=workers)) == []


def test_every_worker_makes_its_own_once() -> None:
    answers = list(in_order(Worker, range(40), workers=2))
    assert {made for _, made in answers} == {1}
    assert 1 <= len({pid for pid, _ in answers}) <= 2
    assert os.getpid() not in {pid for pid, _ in answers}
    assert {pid for pid, _ in in_order(Worker, range(2), workers=1)} == {os.getpid()}


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (Kill, UserError, "A worker process died"),
        (make_ill, UserError, "^the text is ill.$"),
        (make_nothing, UserError, "^there is no model.$"),
        (make_odd, RuntimeError, r"(?s)in work.*raise error.*Odd: very odd"),
    ],
)
def test_failures_of_a_worker_arrive(
    make: Callable[[], Callable[[int], int]], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        list(in_order(make, range(300), workers=2))
    assert workers_of(os.getpid()) == []


def test_a_few_tasks_are_read_ahead() -> None:
    tasks = iter(range(10_000))
    results = in_order(Square, tasks, workers=2)
    for _ in range(200):
        last = next(results)
    assert last == 199**2
    assert next(tasks) < 200 + 2 * 16
    results.close()


def test_a_result_does_not_wait_for_more_tasks() -> None:
    """As of a text that somebody types."""
    typed: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(1_000):
            typed.append(task)
            yield task
            time.sleep(0.3)

    results = in_order(Square, tasks(), workers=2)
    assert next(results) == 0
    assert len(typed) < 2 * 16
    results.close()


def test_while_there_is_no_task_results_are_given() -> None:
    """As to a program that waits for one before it gives the next task."""
    given: list[int] = []

    def tasks() -> Iterator[int | None]:
        for task in range(5):
            yield task
            while len(given) <= task:
                yield None

    for result in in_order(Square, tasks(), workers=2):
        given.append(result)
    assert given == [0, 1, 4, 9, 16]


def test_closed_early_it_leaves_no_process() -> None:
    results = in_order(Sleep, range(100), workers=2)
    assert next(results) in workers_of(os.getpid())
    begin = time.monotonic()
    results.close()
    assert workers_of(os.getpid()) == []
    assert time.monotonic() - begin < 60  # nothing is waited for


@contextmanager
def program() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A program with two workers that sleep, and their process ids; it has a process group of its own."""
    code = (
        "from dpe.pool import in_order; from tests.test_pool import Sleep, workers_of\n"
        "import contextlib, os\n"
        "with contextlib.closing(in_order(Sleep, range(50), workers=2)) as results:\n"
        "    next(results); print(workers_of(os.getpid()), flush=True); next(results)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        workers = json.loads(process.stdout.readline() or "[]")
        assert len(workers) == 2, process.communicate()
        yield process, workers
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_a_killed_program(number: signal.Signals) -> None:
    with program() as (process, workers):
        process.send_signal(number)
        process.wait(timeout=60)
        assert_gone(workers)


@pytest.mark.parametrize("send", [os.kill, os.killpg])  # to the program alone; from a terminal, to all
def test_an_interrupt_ends_program_and_workers(send: Callable[[int, int], None]) -> None:
    with program() as (process, workers):
        send(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert_gone(workers)
        assert errors.count("Traceback") == 1  # of the program; the workers do not notice
        assert errors.endswith("KeyboardInterrupt\n")


def test_a_killed_worker_ends_program_and_workers() -> None:
    with program() as (process, workers):
        os.kill(workers[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert_gone(workers)
        assert "A worker process died, possibly out of memory; run the same command again" in errors


def workers_of(pid: int) -> list[int]:
    """The living worker processes of a process."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return sorted(child for child in children if b"spawn_main" in command_of(child))


def command_of(pid: int) -> bytes:
    """Its command; of one that has ended nothing."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def assert_gone(workers: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(command_of(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.02)
