"""What a training tells: a live line at every update, a line at every score, and the curve as a file.

The curve, `training.jsonl`, has one JSON record a line in the order of the steps; `training.png` draws it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpe.errors import UserError
from dpe.evaluation.plots import draw_training_curve
from dpe.files import whole_text_file
from dpe.model.checkpoint import CURVE, MODEL, PICTURE
from dpe.progress import Progress, duration
from dpe.training.task import bits_of

if TYPE_CHECKING:
    from dpe.model.settings import ModelSettings
    from dpe.training.state import Position
    from dpe.training.task import Task

_STEPS_A_RECORD = 100  # points of the curve between two epochs


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Every whole record; a last line that was cut short by a kill is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records


class TrainingLog:
    """Reads the position and never changes it; seconds continue from those of earlier starts.

    Records of the curve after the position's belong to steps lost in a kill, and are removed. Only the first
    of several processes writes.
    """

    def __init__(
        self,
        directory: Path,
        task: Task,
        position: Position,
        settings: ModelSettings,
        *,
        progress: Progress,
        writes: bool,
    ) -> None:
        self._directory, self._task, self._position = directory, task, position
        self._settings, self._progress, self._writes = settings, progress, writes
        self._started = time.monotonic() - position.seconds
        self.records = position.records
        if writes:
            kept = read_curve(directory / CURVE)[: self.records]
            with whole_text_file(directory / CURVE) as file:
                file.writelines(map(_line, kept))
        self.restart()

    @property
    def seconds(self) -> float:
        """Of the whole training, all its starts together."""
        return time.monotonic() - self._started

    def started(self, *, finished: bool) -> None:
        """Tell how far earlier starts came."""
        position, settings = self._position, self._settings
        state = f"{'is already trained to' if finished else 'resumes from'} step {position.step:,}"
        asked = ((position.step, settings.steps, "steps"), (position.epoch, settings.epochs, "epochs"))
        more = [f"more than the {limit:,} {unit}" for done, limit, unit in asked if limit and done > limit]
        self._progress.say(f"{self._directory} {state}{f': {more[0]} asked for' if more else ''}")

    def ended(self) -> None:
        """Draw the curve, and tell where the model is and how good."""
        if self._writes:
            draw_training_curve(read_curve(self._directory / CURVE), self._directory / PICTURE)
        if math.isfinite(self._position.kept_score):
            count, what = self._position.current_epoch, "epoch"
            if self._settings.evaluate_updates is not None:
                count, what = -(-self._position.step // self._settings.evaluate_updates), "evaluation"
            score = self._task.shown(*self._position.kept)
            self._progress.say(
                f"the best of {count:,} {what}{'s' * (count != 1)} is in {self._directory / MODEL} ({score})"
            )

    def restart(self) -> None:
        """Loss and speed are counted from here on."""
        position = self._position
        self._nats, self._units, self._since = position.nats, position.units, time.monotonic()

    def scored(self, numbers: Mapping[str, float]) -> None:
        """A record of the curve, and the same as a line for the user."""
        position, seconds = self._position, round(self.seconds, 1)
        self._add({"epoch": position.current_epoch, "step": position.step, "seconds": seconds, **numbers})
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
        share = self._settings.share_done(position.epochs_done(self._task.example_count), position.step)
        left = f", {duration(self.seconds * (1 / share - 1))} left" if share else ""
        self._progress.update(
            f"epoch {position.current_epoch}, step {position.step:,}: {bits:.3f} bits per {unit}, "
            f"{speed:,.0f} {unit}s a second{left}"
        )
        if position.step % _STEPS_A_RECORD == 0:
            record = {"epoch": position.current_epoch, "step": position.step, "train_bits": bits}
            self._add(record | {f"{unit}s_per_second": round(speed)})
            self.restart()

    def _add(self, record: Mapping[str, Any]) -> None:
        self.records += 1
        if self._writes:
            path = self._directory / CURVE
            try:
                with path.open("a", encoding="utf-8") as file:
                    file.write(_line(record))
            except OSError as error:
                raise UserError(f"{path}: cannot be written: {error.strerror}.") from error


def _line(record: Mapping[str, Any]) -> str:
    """JSON has no NaN and no infinity; null stands for them."""
    numbers = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(numbers, allow_nan=False) + "\n"
