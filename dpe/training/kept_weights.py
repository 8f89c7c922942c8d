"""Which weights become `model.safetensors`: those of the best epoch, or of an end that scores better.

What is tried only because the training ends (part of an epoch, an average of epochs) must not show when it
goes on later: then the best epoch's weights, which stay beside, are the kept ones again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from torch import nn

from dpe.text.files import whole_file
from dpe.training.checkpoint import MODEL, save_model
from dpe.training.position import Position

_BEST_EPOCH = "best-epoch.safetensors"


class KeptWeights:
    """Only the first of several processes writes; all keep count in the position."""

    def __init__(self, directory: Path, model: nn.Module, position: Position, *, writes: bool) -> None:
        self._model, self._position, self._writes = model, position, writes
        self._kept, self._best_epoch = directory / MODEL, directory / _BEST_EPOCH

    @property
    def is_lost(self) -> bool:
        """Whether somebody has removed what cannot be made again."""
        return math.isfinite(self._position.kept_score) and not self._kept.exists()

    def after_epoch(self, scores: Mapping[str, float]) -> None:
        position, score = self._position, scores["score"]
        position.worse_epochs = 0 if score < position.best else position.worse_epochs + 1
        self._keep_if_better(scores)
        position.best = min(position.best, score)

    def at_end(self, scores: Mapping[str, float]) -> None:
        position, score = self._position, scores["score"]
        keeps_epoch = math.isfinite(position.best) and not self._best_epoch.exists()
        if self._writes and score < position.kept_score and keeps_epoch:
            with whole_file(self._best_epoch) as file:
                file.write(self._kept.read_bytes())
        self._keep_if_better(scores)
        position.at_end = min(position.at_end, score)

    def go_on(self) -> None:
        """Training goes on past an earlier end: the best epoch's weights are the kept ones again."""
        self._position.at_end = math.inf
        if self._writes and self._best_epoch.exists():
            self._best_epoch.replace(self._kept)

    def _keep_if_better(self, scores: Mapping[str, float]) -> None:
        if self._writes and scores["score"] < self._position.kept_score:
            save_model(self._kept, self._model, {"step": self._position.step, **scores})
