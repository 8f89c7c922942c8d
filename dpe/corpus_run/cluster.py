"""A Ray cluster: tasks are shared out to actors on its machines, and those of a lost one to the others.

The only module that knows Ray's interface. What a task gives depends on the task alone, so one that was lost
is simply done again. Ray could do that itself (`max_task_retries`), but only on the same actor, which waits
for ever where its machine does not come back; here any actor takes the task.
"""

from __future__ import annotations

import io
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from dpe import __version__
from dpe.choices import RAY_HERE
from dpe.errors import UserError
from dpe.machine import cores
from dpe.progress import VERBOSE, Progress

Task = TypeVar("Task")
Result = TypeVar("Result")

_SLOTS = 2  # tasks that an actor has at a time, so that it need not wait for the next one
_ATTEMPTS = 5  # a task whose actor is lost so often is the reason for that
_LOSSES = 100  # of an actor, or of a step that may take days: then something else is wrong
_SECONDS_BETWEEN_LOOKS = 1.0


class Cluster:
    """A connection to a cluster, by `connected`."""

    def __init__(self, ray: Any, address: str, progress: Progress) -> None:
        self.ray, self.address = ray, address
        self._progress = progress
        self._dispatcher: _Dispatcher[Any, Any] | None = None

    def device(self, asked: str) -> str:
        """What the actors compute on: `cuda` or `cpu`."""
        if asked not in ("auto", "cpu", "cuda"):
            raise UserError(f"--device {asked}: a cluster chooses its GPUs itself; give auto, cpu or cuda.")
        if asked == "cuda" and not self.gpus:
            raise UserError("The cluster has no GPU; give --device cpu, or start Ray where there is one.")
        return "cuda" if self.gpus and asked != "cpu" else "cpu"

    @property
    def gpus(self) -> int:
        return int(self.ray.cluster_resources().get("GPU", 0))

    @property
    def cpus(self) -> int:
        return int(self.ray.cluster_resources().get("CPU", 1))

    @property
    def state(self) -> str:
        """`7 of 8 workers, 1 lost`"""
        return self._dispatcher.state if self._dispatcher else "no workers yet"

    @contextmanager
    def actors(
        self, make: Callable[[], Callable[[Task], Result]], workers: int, *, on_gpu: bool
    ) -> Iterator[Callable[[Task], _Job[Task, Result]]]:
        """Hands tasks to actors, each of which calls `make` once; see `in_order`."""
        actor = self.ray.remote(_Actor).options(num_cpus=1, num_gpus=int(on_gpu), max_restarts=_LOSSES)
        handles = [actor.remote(make, __version__) for _ in range(workers)]
        dispatcher = self._dispatcher = _Dispatcher[Task, Result](handles, self.ray, self._progress)
        try:
            yield dispatcher.submit
        finally:
            for handle in handles:
                self.ray.kill(handle)

    def steps(
        self, work: Callable[[Step], Result], steps: Sequence[Step]
    ) -> Iterator[tuple[str, Result | UserError]]:
        """What `work` gives for each step, as they end. Each begins when those that it needs have ended.

        A step whose process is lost is done again, on any machine. What needs a step that failed is not done.
        """
        references: dict[str, Any] = {}
        for step in steps:
            self._refuse_too_large(step)
            task = self.ray.remote(_step).options(
                num_cpus=step.cpus, num_gpus=step.gpus, max_retries=_LOSSES, name=step.name
            )
            references[step.name] = task.remote(work, step, *(references[need] for need in step.needs))
        waiting = {reference: name for name, reference in references.items()}
        while waiting:
            (ended,), _ = self.ray.wait(list(waiting), num_returns=1)
            try:
                yield waiting.pop(ended), self.ray.get(ended)
            except self.ray.exceptions.WorkerCrashedError as error:
                raise UserError(f"{_LOSSES} workers were lost with one stage: {error}") from error

    def _refuse_too_large(self, step: Step) -> None:
        if (step.cpus > self.cpus or step.gpus > self.gpus) and self.address == RAY_HERE:
            raise UserError(
                f"{step.name} asks for {step.cpus} CPUs and {step.gpus} GPUs, and this machine's cluster has "
                f"{self.cpus} and {self.gpus}; change resources in the recipe."
            )


@dataclass(frozen=True)
class Step:
    """Some work that needs other steps."""

    name: str
    needs: tuple[str, ...]
    cpus: int
    gpus: int


class NotMade(UserError):
    """A step that was not done, because one that it needs failed."""


def _step(work: Callable[[Step], Any], step: Step, *needed: Any) -> Any:
    if any(isinstance(one, UserError) for one in needed):
        return NotMade("not made, because a stage that it needs failed")
    try:
        return work(step)
    except UserError as error:
        return error


@contextmanager
def connected(address: str | None, *, cpus: int | None, progress: Progress) -> Iterator[Cluster | None]:
    """The cluster at an address, none where that is None; one of this machine has so many CPUs.

    That one ends with the program. A program that is connected already keeps its connection. What Ray prints,
    partly to standard output, is shown by --verbose only.
    """
    if address is None:
        yield None
        return
    ray = _imported()
    with ExitStack() as stack:
        if not ray.is_initialized():
            stack.callback(ray.shutdown)
            stack.enter_context(redirect_stdout(_Said(progress)))
            _connect(ray, address, cpus or cores())
        yield Cluster(ray, address, progress)


def _imported() -> Any:
    # Of clusters that are started here; Ray reads these when it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    os.environ.setdefault("RAY_worker_niceness", "0")  # workers that give way starve on a busy machine
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as Ray will do, without its warning
    try:
        import ray  # noqa: PLC0415  (an extra, and slow)
    except ImportError as error:
        raise UserError("--ray needs Ray; pip install -c constraints.txt '.[ray]'.") from error
    return ray


def _connect(ray: Any, address: str, cpus: int) -> None:
    of_local = {"num_cpus": cpus, "include_dashboard": False} if address == RAY_HERE else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **of_local)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"--ray {address}: there is no Ray cluster that can be used ({reason.removesuffix('.')}); "
            "give its address, or --ray alone for one of this machine."
        ) from error


class _Said(io.TextIOBase):
    """Standard output while Ray runs, which prints there whatever it is told."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def write(self, text: str) -> int:
        if text.strip():
            self._progress.say(text.strip(), level=VERBOSE)
        return len(text)


class _Actor:
    """Answers tasks on some machine of the cluster. Where its process is lost, Ray starts it again.

    What a user must be told is returned, because Ray wraps what is raised.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]], version: str) -> None:
        self._make, self._version = make, version

    @cached_property
    def _work(self) -> Callable[[Any], Any]:
        machine = f"The machine {socket.gethostname()} of the cluster"
        if __version__ != self._version:
            raise UserError(f"{machine} has dpe {__version__} instead of {self._version}; install that.")
        try:
            return self._make()
        except UserError as error:
            raise UserError(
                f"{machine} cannot begin: {error} All machines need the same files at the same places, "
                "as on a shared file system."
            ) from error

    def begin(self) -> UserError | None:
        try:
            self._work  # noqa: B018  (is made here)
        except UserError as error:
            return error
        return None

    def answer(self, task: Any) -> Any:
        try:
            return self._work(task)
        except UserError as error:
            return error


class _Job(Generic[Task, Result]):
    """A task that was handed over, and its result once it is known."""

    def __init__(self, task: Task, dispatcher: _Dispatcher[Task, Result]) -> None:
        self.task, self.losses = task, 0
        self.results: list[Result] = []
        self._dispatcher = dispatcher

    def done(self) -> bool:
        self._dispatcher.collect(wait=False)
        return bool(self.results)

    def result(self) -> Result:
        while not self.results:
            self._dispatcher.collect(wait=True)
        return self.results[0]


class _Dispatcher(Generic[Task, Result]):
    """Which actor does what. An actor that was lost gets tasks again when it has begun a new life."""

    def __init__(self, actors: list[Any], ray: Any, progress: Progress) -> None:
        self._actors, self._progress = actors, progress
        errors = ray.exceptions
        self._losses = (
            *(errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError),
            *(errors.OutOfMemoryError, errors.ObjectLostError),
        )
        self._lives = [0] * len(actors)
        self._alive: set[int] = set()
        self._free: deque[int] = deque()  # an actor once for each task that it can take
        self._queue: deque[_Job[Task, Result]] = deque()
        self._ended: SimpleQueue[tuple[int, int, _Job[Task, Result] | None, Any]] = SimpleQueue()
        for number in range(len(actors)):
            self._begin(number)

    @property
    def state(self) -> str:
        lost = f", {sum(self._lives)} lost" if any(self._lives) else ""
        return f"{len(self._alive)} of {len(self._actors)} workers{lost}"

    def submit(self, task: Task) -> _Job[Task, Result]:
        job = _Job(task, self)
        self._queue.append(job)
        self.collect(wait=False)
        return job

    def collect(self, *, wait: bool) -> None:
        """Take the results that have arrived, or wait a while for one, and hand out tasks."""
        self._hand_out()
        try:
            self._take(*self._ended.get(wait, _SECONDS_BETWEEN_LOOKS))
            while True:
                self._take(*self._ended.get_nowait())
        except Empty:
            if wait and not self._alive:
                self._progress.update(f"waiting for the cluster: {self.state}")
        self._hand_out()

    def _hand_out(self) -> None:
        while self._queue and self._free:
            number, job = self._free.popleft(), self._queue.popleft()
            self._when_ended(number, job, self._actors[number].answer.remote(job.task))

    def _begin(self, number: int) -> None:
        """Ray answers when the actor has begun, on whichever machine and however late."""
        begin = self._actors[number].begin.options(max_task_retries=-1)
        self._when_ended(number, None, begin.remote())

    def _when_ended(self, number: int, job: _Job[Task, Result] | None, reference: Any) -> None:
        life = self._lives[number]
        # Ray calls this in a thread of its own.
        reference.future().add_done_callback(lambda future: self._ended.put((number, life, job, future)))

    def _take(self, number: int, life: int, job: _Job[Task, Result] | None, future: Any) -> None:
        """What became of a call: a result, an actor that has begun, an actor that was lost."""
        try:
            found = future.result()
        except self._losses as error:
            self._lose(number, life, job, error)
            return
        if isinstance(found, UserError):
            raise found
        if job is not None:
            job.results.append(found)
        if life == self._lives[number]:
            self._alive.add(number)
            self._free.extend([number] * (_SLOTS if job is None else 1))

    def _lose(self, number: int, life: int, job: _Job[Task, Result] | None, error: Exception) -> None:
        reason = str(error).strip().splitlines()[0]
        if job is None:
            raise UserError(f"A worker of the cluster cannot start: {reason}") from error
        job.losses += 1
        if job.losses == _ATTEMPTS:
            raise UserError(
                f"{_ATTEMPTS} workers were lost with the same lines, possibly out of memory: {reason}"
            ) from error
        self._queue.appendleft(job)
        if life == self._lives[number]:
            self._lives[number] += 1
            self._alive.discard(number)
            self._free = deque(one for one in self._free if one != number)
            self._begin(number)
