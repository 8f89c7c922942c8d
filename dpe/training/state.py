"""Where a training stands, and which of its weights become `model.safetensors`.

The model is the best epoch's weights, or those of an end that scores better: weights within an epoch, or an
average of epochs. If the training is prolonged later, these must leave no trace: the best epoch's weights,
kept beside, become the model again. If evaluations come every N updates, each of them is an epoch in this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from dpe.files import whole_file
from dpe.model.checkpoint import LAST, MODEL, load_tensors, put_weights, save_model, save_tensors

BATCH_ORDER = 1  # raise it when a position within an epoch means other lines than before
Rank = tuple[float, float]  # a score and bits on the development text; lower is better


@dataclass
class Position:
    """Counters of a training, saved with the weights and the optimiser, so that it can be resumed."""

    epoch: int = 0  # completed epochs
    updates: int = 0  # updates done in the current epoch
    window: int = 0  # windows of lines completed in the current epoch
    window_updates: int = 0  # updates done in the current window
    left_out: int = 0  # lines of the completed windows that were too long
    examples: int = 0  # examples seen in the current epoch
    nats: float = 0.0  # loss summed over the current epoch
    units: float = 0.0  # characters or tokens it was summed over
    step: int = 0  # updates in all
    best: float = math.inf  # best score of an epoch so far; lower is better
    best_bits: float = math.inf  # its bits on the development text, which decide between equal scores
    at_end: float = math.inf  # best of what was tried only at the end
    at_end_bits: float = math.inf
    worse_epochs: int = 0  # epochs since the best one; evaluations, if they come every N updates
    cuts_changed: float | None = None  # share of dev words segmented otherwise than an evaluation before
    averaged_at: int = -1  # step at which the average was last tried
    scored_at: int | None = None  # step of the last development score; None in files of older versions
    seconds: float = 0.0
    records: int = 0  # of the curve
    world: int = 1  # not used; in files of older versions
    batch_order: int = 0  # how lines became batches; 0 in files of older versions

    def next_epoch(self) -> None:
        """An epoch is complete."""
        self.epoch += 1
        self.updates, self.window, self.window_updates, self.left_out = 0, 0, 0, 0
        self.examples, self.nats, self.units = 0, 0.0, 0.0

    @property
    def current_epoch(self) -> int:
        """The epoch in progress, or the last one; the first is 1."""
        return self.epoch + (self.updates > 0)

    def epochs_done(self, example_count: int) -> float:
        """Epochs so far, with the share of the current one."""
        return self.epoch + self.examples / max(example_count, 1)

    @property
    def best_epoch(self) -> Rank:
        return self.best, self.best_bits

    @property
    def kept(self) -> Rank:
        """Of the weights in `model.safetensors`."""
        return min(self.best_epoch, (self.at_end, self.at_end_bits))

    @property
    def kept_score(self) -> float:
        return self.kept[0]

    def is_scheduled(self, every: int | None) -> bool:
        """Whether an evaluation belongs here: at the end of an epoch, or every so many updates."""
        return self.updates == 0 if every is None else self.step % every == 0

    def leave_end(self, every: int | None = None) -> bool:
        """The training is prolonged: what was tried only at its earlier end no longer counts.

        Whether anything was. A start with the earlier end tries it again.
        """
        if self.at_end == math.inf:
            return False
        self.at_end = self.at_end_bits = math.inf
        self.averaged_at = -1
        if not self.is_scheduled(every):
            self.scored_at = -1
        return True


def save_position(
    directory: Path,
    position: Position,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    best_cuts: Tensor | None,
) -> None:
    """Write `last.safetensors`; `best_cuts` are of the last evaluation, as in `Task`."""
    tensors: dict[str, Tensor] = {f"model.{name}": weight for name, weight in model.named_parameters()}
    for name, parameter in model.named_parameters():
        moments = optimizer.state.get(parameter)
        if moments:
            tensors[f"mean.{name}"] = moments["exp_avg"]
            tensors[f"square.{name}"] = moments["exp_avg_sq"]
    if best_cuts is not None:
        tensors["best_cuts"] = best_cuts
    save_tensors(directory / LAST, tensors, asdict(position))


def load_position(
    directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Position, Tensor | None]:
    """Read `last.safetensors`, if it exists, into the model and the optimiser; and the `best_cuts` in it."""
    path = directory / LAST
    if not path.exists():
        return Position(scored_at=0, batch_order=BATCH_ORDER), None
    tensors, state = load_tensors(path)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    put_weights(model, weights, name=str(path))
    position = Position(**state)
    if position.scored_at is None:
        position.scored_at = position.step
    for name, parameter in model.named_parameters():
        if f"mean.{name}" in tensors:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(position.step), device=parameter.device),
                "exp_avg": tensors[f"mean.{name}"].to(parameter.device),
                "exp_avg_sq": tensors[f"square.{name}"].to(parameter.device),
            }
    return position, tensors.get("best_cuts")


_BEST_EPOCH = "best-epoch.safetensors"


class KeptWeights:
    """The weights to use. Only the first of several processes writes; all keep count in the position."""

    def __init__(
        self,
        directory: Path,
        model: nn.Module,
        position: Position,
        *,
        writes: bool,
        every: int | None = None,  # updates between evaluations; None: an epoch
    ) -> None:
        self._model, self._position, self._writes = model, position, writes
        self._directory, self._every = directory, every
        self._kept, self._best_epoch = directory / MODEL, directory / _BEST_EPOCH

    @property
    def is_lost(self) -> bool:
        """Whether model.safetensors was saved and has since been removed."""
        return math.isfinite(self._position.kept_score) and not self._kept.exists()

    def after_epoch(self, scores: Mapping[str, float]) -> None:
        position, rank = self._position, _rank(scores)
        self._keep_if_better(scores)
        position.worse_epochs += 1
        if rank < position.best_epoch:
            position.worse_epochs = 0
            position.best, position.best_bits = rank

    def at_end(self, scores: Mapping[str, float]) -> None:
        position, rank = self._position, _rank(scores)
        keeps_epoch = math.isfinite(position.best) and not self._best_epoch.exists()
        if self._writes and rank < position.kept and keeps_epoch:
            with whole_file(self._best_epoch) as file:
                file.write(self._kept.read_bytes())
        self._keep_if_better(scores)
        position.at_end, position.at_end_bits = min((position.at_end, position.at_end_bits), rank)

    def resume(self) -> None:
        """The training is prolonged past an earlier end: the best epoch's weights are the model again."""
        if self._writes and self._best_epoch.exists():
            self._best_epoch.replace(self._kept)

    def keep_for_average(self, scores: Mapping[str, float], *, count: int) -> None:
        """Keep the weights of this many last epochs, or evaluations."""
        if self._writes and count > 1:
            save_model(self._path(self._last), self._model, scores)
            self._path(self._last - count).unlink(missing_ok=True)

    def to_average(self, count: int) -> list[Path]:
        """The weights of at most this many last epochs, or evaluations, the latest first."""
        paths = map(self._path, range(self._last, max(self._last - count, 0), -1))
        return [path for path in paths if path.exists()]

    @property
    def _last(self) -> int:
        """The number of the last epoch or evaluation."""
        return self._position.epoch if self._every is None else self._position.step // self._every

    def _path(self, number: int) -> Path:
        kind = "epoch" if self._every is None else "evaluation"
        return self._directory / f"{kind}-{number:04}.safetensors"

    def _keep_if_better(self, scores: Mapping[str, float]) -> None:
        if self._writes and _rank(scores) < self._position.kept:
            save_model(self._kept, self._model, {"step": self._position.step, **scores})


def _rank(scores: Mapping[str, float]) -> Rank:
    """Among equal scores (BLEU is 0 as long as no words match) fewer bits are better."""
    return scores["score"], scores["dev_bits"]
