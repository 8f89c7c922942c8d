"""The files of a trained model: averaged, and refused where they are of another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dpe.errors import UserError
from dpe.model.checkpoint import average_weights, put_weights, read_settings, save_tensors
from tests.segmenters import learned_vocabulary, save_segmenter


def test_an_average_is_the_mean(tmp_path: Path) -> None:
    for n in (1, 2, 6):
        save_tensors(tmp_path / str(n), {"w": torch.full((2,), float(n))}, {})
    assert average_weights(tmp_path / str(n) for n in (1, 2, 6))["w"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("weights", "says"),
    [({}, "differs in bias"), ({"weight": torch.ones(2, 1), "bias": torch.ones(1)}, "differs in weight")],
)
def test_weights_of_another_network_are_refused(weights: dict[str, torch.Tensor], says: str) -> None:
    with pytest.raises(UserError, match=says):
        put_weights(torch.nn.Linear(1, 1), weights, name="last.safetensors")


def test_a_model_of_another_format_is_refused(tmp_path: Path) -> None:
    directory = save_segmenter(tmp_path / "s", learned_vocabulary())
    path = directory / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 3}))
    with pytest.raises(UserError, match="has format 3; this version of dpe reads 1 and 2"):
        read_settings(directory, "segmenter")
