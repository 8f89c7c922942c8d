"""Which weights become the model: the best score, and among equal scores the fewest bits."""

from __future__ import annotations

import math
from pathlib import Path

from torch import nn

from dpe.model.checkpoint import load_tensors
from dpe.training.state import KeptWeights, Position


def after_epochs(directory: Path, epochs: list[tuple[float, float]]) -> tuple[Position, int]:
    """Epochs by score and bits; the position after them and the step of the weights that were kept."""
    position = Position()
    kept = KeptWeights(directory, nn.Linear(1, 1), position, writes=True)
    for number, (score, bits) in enumerate(epochs, start=1):
        position.epoch = position.step = number
        kept.after_epoch({"score": score, "dev_bits": bits})
    return position, load_tensors(directory / "model.safetensors")[1]["step"]


def test_while_no_word_matches_fewer_bits_are_better(tmp_path: Path) -> None:
    position, step = after_epochs(tmp_path, [(-0.0, 6.2), (0.0, 6.1), (-0.0, 6.0)])  # BLEU 0 three times
    assert (position.worse_epochs, step) == (0, 3)


def test_a_better_score_counts_more_than_bits(tmp_path: Path) -> None:
    position, step = after_epochs(tmp_path, [(-5.0, 3.0), (-4.0, 2.0), (-5.0, 3.0)])
    assert (position.best, position.best_bits, position.worse_epochs, step) == (-5.0, 3.0, 2, 1)


def test_what_is_no_number_is_never_better(tmp_path: Path) -> None:
    position, step = after_epochs(tmp_path, [(1.0, 1.0), (math.nan, math.nan)])
    assert (position.best, position.worse_epochs, step) == (1.0, 1, 1)


def test_an_end_with_the_score_of_an_epoch_needs_fewer_bits(tmp_path: Path) -> None:
    position, _ = after_epochs(tmp_path, [(0.0, 6.0)])
    kept = KeptWeights(tmp_path, nn.Linear(1, 1), position, writes=True)
    position.step = 7
    kept.at_end({"score": 0.0, "dev_bits": 6.5})
    assert load_tensors(tmp_path / "model.safetensors")[1]["step"] == 1
    kept.at_end({"score": 0.0, "dev_bits": 5.5})
    assert load_tensors(tmp_path / "model.safetensors")[1]["step"] == 7
    assert position.kept == (0.0, 5.5)
