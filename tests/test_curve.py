"""The curve of a training as it is read back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from dpe.evaluation.plots import draw_training_curve
from dpe.experiment.report import _curve
from dpe.training.log import _line, read_curve


def test_a_record_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text('{"step": 1}\n{"step": 2')
    assert read_curve(tmp_path / "training.jsonl") == [{"step": 1}]


def test_what_is_no_number_is_null_and_no_point_of_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "training.jsonl"
    records = [
        {"step": 1, "train_bits": 2.0, "dev_bits": 2.5},
        {"step": 2, "train_bits": math.inf, "dev_bits": math.nan},
    ]
    path.write_text("".join(map(_line, records)))
    last = path.read_text().splitlines()[-1]
    assert json.loads(last, parse_constant=pytest.fail) == {"step": 2, "train_bits": None, "dev_bits": None}
    draw_training_curve(read_curve(path), tmp_path / "training.png")
    assert _curve(read_curve(path), "dev_bits", "dev", 0)[0].points == [(1, 2.5)]
