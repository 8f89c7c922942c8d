"""Which weights become `model.safetensors`: those of the best epoch, or of an end that scores better.

At its end a training tries two more candidates: weights within an epoch, and an average of epochs. If it is
prolonged later they must leave no trace: the best epoch's weights, kept beside, become the model again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from dpe.text.files import whole_file
from dpe.training.checkpoint import MODEL, save_model
from dpe.training.position import Position, Rank

_BEST_EPOCH = "best-epoch.safetensors"


class KeptWeights:
    """Only the first of several processes writes; all keep count in the position."""

    def __init__(self, directory: Path, model: nn.Module, position: Position, *, writes: bool) -> None:
        self._model, self._position, self._writes = model, position, writes
        self._directory = directory
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

    def go_on(self) -> None:
        """Training goes on past an earlier end: the best epoch's weights are the kept ones again."""
        if self._writes and self._best_epoch.exists():
            self._best_epoch.replace(self._kept)

    def keep_for_average(self, scores: Mapping[str, float], *, epochs: int) -> None:
        """Keep the weights after an epoch beside those of the epochs before it, so many in all."""
        if self._writes and epochs > 1:
            epoch = self._position.epoch
            save_model(self._epoch_path(epoch), self._model, scores)
            self._epoch_path(epoch - epochs).unlink(missing_ok=True)

    def epochs_to_average(self, epochs: int) -> list[Path]:
        """The weights of the last epochs, so many at most, the latest first."""
        last = self._position.epoch
        paths = map(self._epoch_path, range(last, max(last - epochs, 0), -1))
        return [path for path in paths if path.exists()]

    def _epoch_path(self, epoch: int) -> Path:
        return self._directory / f"epoch-{epoch:04}.safetensors"

    def _keep_if_better(self, scores: Mapping[str, float]) -> None:
        if self._writes and _rank(scores) < self._position.kept:
            save_model(self._kept, self._model, {"step": self._position.step, **scores})


def _rank(scores: Mapping[str, float]) -> Rank:
    """Among equal scores (BLEU is 0 as long as no words match) the fewest bits are the best."""
    return scores["score"], scores["dev_bits"]
