"""How often a training is evaluated, and how many segmentations change from one evaluation to the next."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from dpe.model.checkpoint import LAST, MODEL, load_tensors
from dpe.progress import Progress
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.training import SegmenterTask
from dpe.training.log import read_curve
from dpe.training.processes import Processes
from dpe.training.trainer import Trainer
from tests.segmenters import PAIRS, UPDATES, learned_vocabulary, train

# A text of five updates an epoch whose segmentations change from evaluation to evaluation.
VOCABULARY, LINES = learned_vocabulary(), [target for _, target in PAIRS[:12]]
SETTINGS: dict[str, Any] = {"targets": LINES, "vocabulary": VOCABULARY, "learning_rate": 0.05}


def evaluations(out: Path) -> list[dict[str, Any]]:
    """The records of evaluations, without their times."""
    records = [record for record in read_curve(out / "training.jsonl") if "dev_bits" in record]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def changes(out: Path) -> list[float | None]:
    return [record.get("dev_cuts_changed") for record in evaluations(out)]


def assert_same_trainings(one: Path, other: Path) -> None:
    """The same evaluations, weights, optimiser and position."""
    assert evaluations(one) == evaluations(other)
    for name in (LAST, MODEL):
        (first, state), (second, other_state) = (load_tensors(path / name) for path in (one, other))
        assert first.keys() == second.keys()
        assert all(torch.equal(tensor, second[key]) for key, tensor in first.items())
        assert state | {"seconds": 0} == other_state | {"seconds": 0}


def words_of_best(directory: Path, weights: Path) -> Iterator[list[str]]:
    """The best segmentation of each development word, by weights that were kept for an average."""
    shutil.copy(weights, directory / MODEL)
    for cut in Segmenter.load(directory).best(None, LINES):
        word: list[str] = []
        for piece in cut.pieces:
            if piece.startswith("▁") and word:
                yield word
                word = []
            word.append(piece)
        yield word


def test_the_share_of_words_that_are_segmented_otherwise(tmp_path: Path) -> None:
    out = tmp_path / "out"
    train(out, steps=12, average=6, evaluate_updates=2, **SETTINGS)
    assert "dev_cuts_changed" not in load_tensors(out / MODEL)[1]
    shutil.copytree(out, tmp_path / "copy")
    paths = [out / f"evaluation-000{number}.safetensors" for number in range(1, 7)]
    words = [list(words_of_best(tmp_path / "copy", path)) for path in paths]
    wanted = [
        sum(one != other for one, other in zip(before, now, strict=True)) / len(now)
        for before, now in pairwise(words)
    ]
    assert len(words[0]) == sum(len(line.split()) for line in LINES)
    assert changes(out)[:6] == [None, *wanted]
    assert any(0 < share < 1 for share in wanted)
    assert changes(out)[6:] == [None]  # the average is compared with no evaluation


def test_it_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "out", epochs=2, progress=Progress(), **SETTINGS)
    first, second, _ = capsys.readouterr().err.splitlines()
    assert "dev_cuts_changed" not in first
    assert f", dev_cuts_changed {changes(tmp_path / 'out')[1]:.4g}" in second


class _Stop(Exception):
    pass


def killed_at(step: int, monkeypatch: pytest.MonkeyPatch, out: Path, **settings: Any) -> None:
    """Train and lose everything after the save at a step."""
    save = Trainer._save

    def last_save(self: Trainer) -> None:
        save(self)
        if self.position.step == step:
            raise _Stop

    with monkeypatch.context() as once:
        once.setattr(Trainer, "_save", last_save)
        with pytest.raises(_Stop):
            train(out, save_seconds=0.0, **settings)


@pytest.mark.parametrize("every", [None, 2, 3, UPDATES])
@pytest.mark.parametrize("step", [3, 4, UPDATES, UPDATES + 1, 2 * UPDATES + 2])
def test_a_training_killed_anywhere_ends_alike(
    every: int | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"epochs": 3, "average": 2, **SETTINGS, "evaluate_updates": every}
    train(tmp_path / "whole", **settings)
    killed_at(step, monkeypatch, tmp_path / "killed", **settings)
    train(tmp_path / "killed", **settings)
    assert_same_trainings(tmp_path / "whole", tmp_path / "killed")


def test_an_evaluation_after_the_updates_of_an_epoch_is_that_of_the_epoch(tmp_path: Path) -> None:
    settings = {"epochs": 3, "patience": 2, **SETTINGS}
    train(tmp_path / "epochs", **settings)
    train(tmp_path / "updates", **settings, evaluate_updates=UPDATES)
    assert_same_trainings(tmp_path / "epochs", tmp_path / "updates")


def test_evaluations_do_not_change_what_is_learned(tmp_path: Path) -> None:
    for name, every in (("epochs", None), ("updates", 2)):
        train(tmp_path / name, epochs=3, evaluate_updates=every, **SETTINGS)
    one, other = (load_tensors(tmp_path / name / LAST)[0] for name in ("epochs", "updates"))
    assert all(torch.equal(tensor, other[key]) for key, tensor in one.items() if key != "best_cuts")
    steps = [record["step"] for record in evaluations(tmp_path / "updates")]
    assert steps == [2, 4, 6, 8, 10, 12, 14, 15]  # the last one because it is the end
    assert [record["epoch"] for record in evaluations(tmp_path / "updates")] == [1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("ending", [{"epochs": 1}, {"steps": UPDATES}, {"steps": UPDATES + 1}])
def test_an_end_between_evaluations_leaves_no_trace_in_a_longer_training(
    ending: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"evaluate_updates": 4, **SETTINGS}
    early = train(tmp_path / "in_two", **settings, **ending)
    assert early.at_end < early.best  # it still learns, so the weights at the end are kept
    with (
        monkeypatch.context() as once
    ):  # prolonged, but killed before any update: the earlier end is tried again
        once.setattr(Trainer, "_train_epoch", lambda *_: (_ for _ in ()).throw(_Stop))
        with pytest.raises(_Stop):
            train(tmp_path / "in_two", **settings, epochs=3)
    again = train(tmp_path / "in_two", **settings, **ending)
    assert (again.kept, again.step, again.scored_at) == (early.kept, early.step, early.step)
    train(tmp_path / "in_two", **settings, epochs=3)
    train(tmp_path / "at_once", **settings, epochs=3)
    kept = [load_tensors(tmp_path / name / MODEL) for name in ("in_two", "at_once")]
    assert kept[0][1] == kept[1][1]
    assert all(torch.equal(weights, kept[1][0][name]) for name, weights in kept[0][0].items())
    on_schedule = [
        [record for record in evaluations(tmp_path / name) if record["step"] % 4 == 0]
        for name in ("in_two", "at_once")
    ]
    assert on_schedule[0] == on_schedule[1]


def test_patience_and_average_count_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate, scores = SegmenterTask.evaluate, iter([3.0, 2.0, 2.5, 2.6, 9.0])

    def scored(self: SegmenterTask, processes: Processes) -> dict[str, float]:
        score = next(scores)
        return evaluate(self, processes) | {"score": score, "dev_bits": score}

    monkeypatch.setattr(SegmenterTask, "evaluate", scored)
    position = train(tmp_path / "out", epochs=9, evaluate_updates=3, patience=2, average=3)
    assert (position.step, position.epoch, position.worse_epochs) == (12, 2, 2)
    assert load_tensors(tmp_path / "out" / MODEL)[1]["step"] == 6
    kept = sorted(path.name for path in (tmp_path / "out").glob("evaluation-*"))
    assert kept == [f"evaluation-000{number}.safetensors" for number in (2, 3, 4)]
    assert evaluations(tmp_path / "out")[-1]["averaged"] == 3


def test_a_training_stops_when_few_segmentations_change(tmp_path: Path) -> None:
    train(tmp_path / "whole", epochs=8, evaluate_updates=2, **SETTINGS)
    shares = changes(tmp_path / "whole")
    limit = 0.04
    stop = next(number for number, share in enumerate(shares) if share is not None and share < limit)
    assert 0 < stop < len(shares) - 2
    settings = {"epochs": 8, "evaluate_updates": 2, **SETTINGS}
    position = train(tmp_path / "out", **settings, until_cuts_change_less_than=limit)
    assert changes(tmp_path / "out") == shares[: stop + 1]
    assert position.cuts_changed == shares[stop]
    again = train(tmp_path / "out", **settings, until_cuts_change_less_than=limit)
    assert again.step == position.step == 2 * (stop + 1)
    train(tmp_path / "out", **settings)  # prolonged
    assert_same_trainings(tmp_path / "out", tmp_path / "whole")


def test_a_signal_that_comes_within_an_evaluation_is_obeyed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = SegmenterTask.evaluate

    def interrupted(self: SegmenterTask, processes: Processes) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(self, processes)

    with monkeypatch.context() as once:
        once.setattr(SegmenterTask, "evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "out", epochs=2, evaluate_updates=3)
    state = load_tensors(tmp_path / "out" / LAST)[1]
    assert (state["step"], state["scored_at"]) == (3, 3)
