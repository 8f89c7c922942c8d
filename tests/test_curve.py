"""The curve of a training as it is read back."""

from __future__ import annotations

from pathlib import Path

from dpe.training.curve import read_curve


def test_a_record_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text('{"step": 1}\n{"step": 2')
    assert read_curve(tmp_path / "training.jsonl") == [{"step": 1}]
