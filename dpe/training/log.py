"""What a training tells: a live line at every update, a line at every score, the records of the curve."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpe.errors import UserError
from dpe.files import whole_text_file
from dpe.model.checkpoint import CURVE, MODEL
from dpe.progress import duration
from dpe.training.settings import Session
from dpe.training.state import Position
from dpe.training.task import Task, bits_of

_STEPS_A_RECORD = 100  # points of the curve between two epochs


class TrainingLog:
    """Reads the position and never changes it; the seconds go on from those of earlier starts."""

    def __init__(self, directory: Path, task: Task, position: Position, session: Session) -> None:
        self._directory, self._task, self._position = directory, task, position
        self._stopping, self._progress = session.stopping, session.progress
        self._curve = Curve(directory, records=position.records, active=session.processes.first)
        self._started = time.monotonic() - position.seconds
        self.restart()

    @property
    def seconds(self) -> float:
        """Of the whole training, all its starts together."""
        return time.monotonic() - self._started

    @property
    def records(self) -> int:
        return self._curve.records

    def started(self, *, finished: bool) -> None:
        """What is there of earlier starts."""
        position, stopping = self._position, self._stopping
        state = f"{'is trained already, to' if finished else 'goes on from'} step {position.step:,}"
        asked = ((position.step, stopping.steps, "steps"), (position.epoch, stopping.epochs, "epochs"))
        more = [f"more than the {limit:,} {unit}" for done, limit, unit in asked if limit and done > limit]
        self._progress.say(f"{self._directory} {state}{f': {more[0]} asked for' if more else ''}")

    def ended(self) -> None:
        """Where the model is, and how good."""
        if math.isfinite(self._position.kept_score):
            epochs = self._position.current_epoch
            score = self._task.shown(*self._position.kept)
            self._progress.say(
                f"the best of {epochs:,} epoch{'s' * (epochs != 1)} is in {self._directory / MODEL} ({score})"
            )

    def restart(self) -> None:
        """Loss and speed are counted from here on."""
        position = self._position
        self._nats, self._units, self._since = position.nats, position.units, time.monotonic()

    def scored(self, numbers: Mapping[str, float]) -> None:
        """A record of the curve, and the same as a line for the user."""
        position, seconds = self._position, round(self.seconds, 1)
        record = {"epoch": position.current_epoch, "step": position.step, "seconds": seconds}
        self._curve.add({**record, **numbers})
        shown = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items() if name != "score")
        self._progress.say(
            f"epoch {position.current_epoch}, step {position.step:,}, {duration(seconds)}: {shown}"
        )

    def updated(self) -> None:
        """The live line; now and then a record of the curve."""
        position, unit = self._position, self._task.unit
        units = position.units - self._units
        bits = bits_of(position.nats - self._nats, units)
        speed = units / max(time.monotonic() - self._since, 1e-9)
        self._progress.update(
            f"epoch {position.current_epoch}, step {position.step:,}: {bits:.3f} bits a {unit}, "
            f"{speed:,.0f} {unit}s a second{self._time_left()}"
        )
        if position.step % _STEPS_A_RECORD == 0:
            record = {"epoch": position.current_epoch, "step": position.step, "train_bits": bits}
            self._curve.add(record | {f"{unit}s_per_second": round(speed)})
            self.restart()

    def _time_left(self) -> str:
        share = self._share_done()
        return f", {duration(self.seconds * (1 / share - 1))} left" if share else ""

    def _share_done(self) -> float:
        """How much of the whole training is behind us."""
        position, stopping = self._position, self._stopping
        epochs = position.epoch + position.examples / max(self._task.example_count, 1)
        by_epochs = epochs / stopping.epochs if stopping.epochs else 0.0
        by_steps = position.step / stopping.steps if stopping.steps else 0.0
        return max(by_epochs, by_steps)


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Every whole record; a last line that a kill cut short is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


class Curve:
    """Appends after the first `records`; later lines belong to steps lost in a kill, and are removed."""

    def __init__(self, directory: Path, *, records: int, active: bool) -> None:
        self.records = records
        self._path = directory / CURVE
        self._active = active  # only the first process writes
        if active:
            kept = read_curve(self._path)[:records]
            with whole_text_file(self._path) as file:
                file.writelines(map(_line, kept))

    def add(self, record: Mapping[str, Any]) -> None:
        self.records += 1
        if self._active:
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(_line(record))
            except OSError as error:
                raise UserError(f"{self._path}: cannot be written: {error.strerror}.") from error


def _line(record: Mapping[str, Any]) -> str:
    """JSON has no word for what is no number; null stands for it."""
    numbers = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(numbers, allow_nan=False) + "\n"
