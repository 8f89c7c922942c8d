"""One training loop for both models: accumulation, schedule, checkpoints, resume, many processes.

Every random choice is a function of (seed, epoch, batch): batches, segmentations and dropout masks. So a
training that was killed and started again with as many threads ends with the weights of one that was not, and
N processes make the updates of one.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from dpe.errors import UserError
from dpe.files import remove_leftovers
from dpe.model.batch_order import Window, epoch_windows, prefetch
from dpe.model.checkpoint import MODEL, Identified, average_weights, put_weights, write_settings
from dpe.model.device import keep_freed_memory
from dpe.model.settings import ModelSettings
from dpe.pool import in_order
from dpe.progress import QUIET, Progress
from dpe.store import try_lock
from dpe.text.draws import torch_seed
from dpe.text.vocabulary import Vocabulary
from dpe.training.log import TrainingLog
from dpe.training.processes import Processes, Session
from dpe.training.state import BATCH_ORDER, KeptWeights, Position, load_position, save_position
from dpe.training.task import Task, bits_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def model_directory(
    directory: Path,
    kind: str,
    settings: Identified,
    vocabulary: Vocabulary,
    about: dict[str, Any],
    *,
    processes: Processes,
) -> Iterator[None]:
    """Start a model directory, or check that it was started in the same way; one training at a time."""
    with ExitStack() as stack:
        if processes.first:
            if not stack.enter_context(try_lock(directory / "cache" / "training.lock")):
                raise UserError(f"{directory}: another process is training there; wait until it ends.")
            write_settings(directory, kind, settings, vocabulary, about)
            remove_leftovers(directory)
        processes.wait()
        yield


class Trainer:
    """Trains a task in a directory, resuming what is there."""

    def __init__(
        self, task: Task, settings: ModelSettings, directory: Path, session: Session, processes: Processes
    ) -> None:
        self.task, self.settings, self.directory = task, settings, directory
        self.session, self.processes = session, processes
        self.progress = session.progress if processes.first else Progress(QUIET)
        self.model = task.model.to(self.processes.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.position, self.best_cuts = load_position(directory, self.model, self.optimizer)
        self._own_shares = self._share_out()
        self.kept = KeptWeights(
            directory, self.model, self.position, writes=processes.first, every=settings.evaluate_updates
        )
        self.log = TrainingLog(
            directory, task, self.position, settings, progress=self.progress, writes=processes.first
        )

    def _share_out(self) -> range:
        """Which batches of an update this process has: together the updates are the same for any number."""
        processes, accumulate = self.processes, self.settings.accumulate
        if accumulate % processes.world:
            raise UserError(
                f"accumulate is {accumulate}, but there are {processes.world} processes, among which the "
                f"batches of an update are divided; set it to a multiple of {processes.world}."
            )
        return range(processes.rank, accumulate, processes.world)

    def train(self) -> Position:
        """Train to the end; the weights to use are then in `model.safetensors`."""
        if self.settings.epochs is self.settings.steps is self.settings.patience is None:
            raise UserError("The training would never end; set epochs, steps or patience.")
        if self.kept.is_lost:
            raise UserError(f"{self.directory} has lost its {MODEL}; remove the directory to train again.")
        if self.position.step:
            self.log.started(finished=self._finished())
        if self.processes.device.type == "cpu":
            keep_freed_memory()
            if self.settings.bf16:
                self.progress.say("bf16 is for GPUs; this CPU trains in float32")
        if not self._finished():
            self._take_over()
            if self.position.leave_end(self.settings.evaluate_updates):
                self._save()  # before the weights are put back, so that no kill separates the two
            self.kept.resume()
        with self.progress.live(), put_off() as signals:
            while not self._finished():
                complete = self._train_epoch(signals)
                self._check_epoch(complete=complete)
                position = self.position
                train_bits = bits_of(position.nats, position.units)
                if complete:
                    position.next_epoch()
                if self._is_due():
                    self._evaluate(train_bits, signals)
        if self.settings.average > 1 and self.position.averaged_at != self.position.step:
            self._average()
        self.log.ended()
        return self.position

    def _take_over(self) -> None:
        """A training of an older version: where it stood within an epoch means other lines now."""
        position = self.position
        if position.batch_order != BATCH_ORDER:
            again = "its epoch starts again, and " if position.updates else ""
            self.progress.say(
                f"{self.directory} was saved by an older version, whose batches had other lines: {again}from "
                "here on the weights will differ"
            )
            position.batch_order, position.examples = BATCH_ORDER, 0

    def _finished(self) -> bool:
        position, settings = self.position, self.settings
        share, changed = settings.until_cuts_change_less_than, position.cuts_changed
        scored = position.scored_at == position.step  # or killed before it was scored
        past = scored or position.updates > 0  # the last epoch's end
        return (
            (settings.epochs is not None and position.epoch >= settings.epochs and past)
            or (settings.steps is not None and position.step >= settings.steps and scored)
            or (settings.patience is not None and position.worse_epochs >= settings.patience)
            or (share is not None and changed is not None and changed < share)
        )

    def _at_limit(self) -> bool:
        """Whether there are as many epochs or steps as wanted."""
        position, settings = self.position, self.settings
        epochs = settings.epochs is not None and position.epoch >= settings.epochs
        return epochs or (settings.steps is not None and position.step >= settings.steps)

    def _is_due(self) -> bool:
        """Whether an evaluation belongs here and has not been made yet."""
        position = self.position
        scheduled = position.is_scheduled(self.settings.evaluate_updates)
        return position.scored_at != position.step and (scheduled or self._at_limit())

    def _train_epoch(self, signals: list[int]) -> bool:
        """The updates left in this epoch; False when the training ends before it does."""
        last_save = time.monotonic()
        self.log.restart()
        for batches in self._updates():
            # Before an update and not after it, so that the last one of an epoch completes it.
            if self._at_limit():
                return False
            if self._is_due():
                self._evaluate(bits_of(self.position.nats, self.position.units), signals)
                if self._finished():
                    return False
                self.log.restart()
            self._update(batches)
            self.log.updated()
            if self._must_stop(signals):
                self._save()
                raise KeyboardInterrupt
            if time.monotonic() - last_save >= self.session.save_seconds:
                self._save()
                last_save = time.monotonic()
        return True

    def _must_stop(self, signals: list[int]) -> bool:
        """Whether any process was told to stop: all must end at the same update."""
        return self.processes.sum_scalars([len(signals)])[0] > 0

    def _check_epoch(self, *, complete: bool) -> None:
        """Tell what the first epoch left out; without an update there would be no end."""
        left_out = self.task.left_out(self.position.left_out)
        if complete and not self.position.updates:
            raise UserError(f"Nothing is left to train on: {left_out or 'the text is empty'}.")
        if left_out and not self.position.epoch:
            self.progress.say(left_out)

    def _updates(self) -> Iterator[list[Any]]:
        """For each update its batches; None stands where only another process has one."""
        position, task, own = self.position, self.task, self._own_shares
        for window in prefetch(self._windows(), depth=1):
            counts = [0.0] * self.settings.accumulate
            for share, some in zip(own, window.batches, strict=True):
                counts[share] = len(some)
            *counts, left_out = self.processes.sum_scalars([*counts, window.left_out])
            updates = range(position.window_updates, int(max(counts)))
            groups = (some[n] if n < len(some) else None for n in updates for some in window.batches)
            ready = prefetch(g if g is None else task.collate(g, position.epoch) for g in groups)
            while batches := list(islice(ready, len(own))):
                yield batches
            position.window += 1
            position.window_updates = 0
            position.left_out += int(left_out)

    def _windows(self) -> Iterator[Window[Any]]:
        """This process's batches in the windows that are left in this epoch, each loaded when needed."""
        position, settings, task = self.position, self.settings, self.task
        make = partial(partial, task.lines(position.epoch))  # a worker calls it, and has what it was sent
        return epoch_windows(
            task.example_count,
            partial(in_order, make, workers=self.session.load_workers),
            lambda example: example.size,
            budget=task.budget,
            seed=settings.seed,
            epoch=position.epoch,
            shares=settings.accumulate,
            own=self._own_shares,
            start=position.window,
        )

    def _update(self, batches: list[Any]) -> None:
        """One step of the optimiser, along the gradient of the mean loss over the units of all batches."""
        position = self.position
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        sums = torch.zeros(3, dtype=torch.float64)  # nats, units, examples
        for index, batch in enumerate(batches):
            if batch is not None:
                sums += torch.tensor(self._backward(batch, index), dtype=torch.float64)
        nats, units, examples = self.processes.sum_scalars(sums.tolist())
        if not math.isfinite(nats):
            raise self._not_finite(f"Loss is NaN or infinite at step {position.step + 1}")
        self._step(units)
        position.nats += nats
        position.units += units
        position.examples += int(examples)
        position.updates += 1
        position.window_updates += 1
        position.step += 1

    def _not_finite(self, what: str) -> UserError:
        kept = self.directory / MODEL
        saved = f"The best model so far is in {kept}." if kept.exists() else "Nothing was saved before."
        return UserError(f"{what}; lower the learning rate and train in another directory. {saved}")

    def _backward(self, batch: Any, index: int) -> tuple[float, int, int]:
        """Add the gradient of one batch. Its dropout masks depend on where it stands, not on who runs it."""
        settings, position, processes = self.settings, self.position, self.processes
        number = position.updates * settings.accumulate + self._own_shares[index]
        torch.manual_seed(torch_seed(settings.seed, position.epoch, number))
        device = processes.device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=settings.bf16 and device == "cuda"):
            loss, nats, units = self.task.loss(batch.to(processes.device))
        loss.backward()  # type: ignore[no-untyped-call]
        return float(nats), units, len(batch.lines)  # waits for a GPU, which has all its work by now

    def _step(self, units: float) -> None:
        """Divide, clip, and take the step at this step's learning rate; never along an infinite gradient."""
        parameters = list(self.model.parameters())
        for parameter in parameters:
            if parameter.grad is None:  # this process had no batch
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        self.processes.sum_tensors(gradients)
        for gradient in gradients:
            gradient.div_(max(units, 1.0))
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip))
        position = self.position
        if not math.isfinite(norm):
            raise self._not_finite(f"Gradient is NaN or infinite at step {position.step + 1}")
        share = self.settings.share_done(position.epochs_done(self.task.example_count), position.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate_at(position.step + 1, share)
        self.optimizer.step()

    def _evaluate(self, train_bits: float, signals: list[int]) -> None:
        """Score on the development text; keep the best weights; note the curve; save."""
        position = self.position
        scores = self.task.evaluate(self.processes)
        if not math.isfinite(scores["dev_bits"]):  # nothing is saved: such weights lead nowhere
            self.log.scored({"train_bits": train_bits, **scores})
            raise self._not_finite(f"Loss of the development text is NaN or infinite at step {position.step}")
        cuts, share = self.task.best_cuts, None
        if cuts is not None and self.best_cuts is not None and cuts.shape == self.best_cuts.shape:
            share = int((cuts != self.best_cuts).sum()) / max(len(cuts), 1)
        if position.is_scheduled(self.settings.evaluate_updates):
            self.kept.after_epoch(scores)
            self.kept.keep_for_average(scores, count=self.settings.average)
            self.best_cuts, position.cuts_changed = cuts, share
        else:
            self.kept.at_end(scores)
        changed = {} if share is None else {"dev_cuts_changed": share}
        self.log.scored({"train_bits": train_bits, **scores, **changed})
        position.scored_at = position.step
        self._save()
        self.processes.wait()
        if self._must_stop(signals):  # during the evaluation, which has saved everything
            raise KeyboardInterrupt

    def _average(self) -> None:
        """Try the mean of the last evaluations' weights; it becomes the model if it scores better."""
        paths = self.kept.to_average(self.settings.average)
        if not paths:
            self.progress.say("no whole epoch to average")
            return
        trained = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        put_weights(self.model, average_weights(paths), name="the average")
        scores = self.task.evaluate(self.processes)
        self.kept.at_end(scores)
        self.log.scored({"averaged": len(paths), **scores})
        put_weights(self.model, trained, name="the model")
        self.position.averaged_at = self.position.step
        self._save()

    def _save(self) -> None:
        self.position.seconds, self.position.records = self.log.seconds, self.log.records
        if self.processes.first:
            save_position(self.directory, self.position, self.model, self.optimizer, self.best_cuts)


@contextmanager
def put_off() -> Iterator[list[int]]:
    """Let the current update finish and be saved; the list holds the signals that came."""
    received: list[int] = []
    with _handled(lambda number, _: received.append(number)):
        yield received


@contextmanager
def at_once() -> Iterator[None]:
    """Inside `put_off`, stop at once what can be resumed where it was."""
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def _handled(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Only the main thread may, and needs to, handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
