"""When and how a training stops, in one process: steps, averages, signals, another number of processes."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from dpe import Segmenter
from dpe.errors import UserError
from dpe.model.batch_order import epoch_windows
from dpe.model.checkpoint import load_tensors, save_tensors
from dpe.model.mixed import MixedTransformer
from dpe.model.settings import ModelSettings
from dpe.pool import in_order
from dpe.progress import Progress
from dpe.segmenter.training import SegmenterLines, SegmenterTask
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.segmenters import OwnCut
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.training.log import read_curve
from dpe.training.processes import Processes, Session
from dpe.training.state import KeptWeights, Position
from dpe.training.trainer import Trainer
from tests.epochs import batches_of
from tests.segmenters import DECODERS, SMALLEST, TARGETS, UPDATES, train


def evaluations(out: Path) -> list[tuple[int, int, float]]:
    records = [record for record in read_curve(out / "training.jsonl") if "dev_bits" in record]
    return [(record["epoch"], record["step"], record["dev_bits"]) for record in records]


@pytest.mark.parametrize("steps", [UPDATES - 1, UPDATES])
def test_a_training_killed_after_its_last_update_is_scored_when_it_goes_on(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(SegmenterTask, "evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "cut", steps=steps, save_seconds=0.0)
    cut, whole = (train(tmp_path / name, steps=steps) for name in ("cut", "whole"))
    assert (cut.step, cut.epoch, cut.kept_score) == (whole.step, whole.epoch, whole.kept_score)
    assert evaluations(tmp_path / "cut") == evaluations(tmp_path / "whole")
    assert (tmp_path / "cut" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("schedule", "half"),
    [("inverse-sqrt", math.sqrt(4 / (1 + UPDATES))), ("linear", 0.5), ("cosine", 0.5)],
)
def test_the_learning_rate_falls_by_the_schedule(tmp_path: Path, schedule: str, half: float) -> None:
    """The first update of the second of two epochs, here also of a training that was resumed in between."""
    rates: list[float] = []

    class Recorded(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Recorded)
        settings = {"epochs": 2, "schedule": schedule}  # warm-up is 4 updates
        train(tmp_path / "whole", **settings)
        whole, rates[:] = list(rates), []
        with patch.context() as killed:
            killed.setattr(Trainer, "_check_epoch", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path / "cut", save_seconds=0.0, **settings)
        train(tmp_path / "cut", **settings)
    assert rates == whole
    assert len(whole) == 2 * UPDATES
    assert whole[0] == pytest.approx(0.25e-3)
    assert whole[UPDATES] == pytest.approx(half * 1e-3)
    if schedule != "inverse-sqrt":
        assert whole[3:] == sorted(whole[3:], reverse=True)
        assert 0 < whole[-1] < 0.2e-3
        with pytest.raises(UserError, match="epochs is 2 there and 3 now"):
            train(tmp_path / "whole", **settings | {"epochs": 3})


def test_a_schedule_to_zero_needs_an_end() -> None:
    with pytest.raises(UserError, match="set epochs or steps"):
        ModelSettings(schedule="linear")


def test_steps_that_end_with_an_epoch_complete_it(tmp_path: Path) -> None:
    at_once = train(tmp_path / "at_once", steps=2 * UPDATES, patience=1)
    train(tmp_path / "in_two", steps=UPDATES, patience=1)
    in_two = train(tmp_path / "in_two", steps=2 * UPDATES, patience=1)
    assert (
        (in_two.epoch, in_two.step, in_two.updates) == (at_once.epoch, at_once.step, 0) == (2, 2 * UPDATES, 0)
    )
    assert evaluations(tmp_path / "in_two") == evaluations(tmp_path / "at_once")


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("patience", [1, None])
def test_an_end_within_an_epoch_leaves_no_trace_in_a_longer_training(
    tmp_path: Path, decoder: str, patience: int | None
) -> None:
    at_once = train(tmp_path / "at_once", steps=4 * UPDATES, patience=patience, decoder=decoder)
    early = train(tmp_path / "in_two", steps=2 * UPDATES + 2, patience=patience, decoder=decoder)
    assert early.at_end < early.best  # it still learns, so the weights at the end are kept
    in_two = train(tmp_path / "in_two", steps=4 * UPDATES, patience=patience, decoder=decoder)
    assert (in_two.epoch, in_two.step, in_two.kept_score) == (at_once.epoch, at_once.step, at_once.kept_score)
    kept = [load_tensors(tmp_path / name / "model.safetensors") for name in ("at_once", "in_two")]
    assert kept[0][1] == kept[1][1]
    assert all(torch.equal(weights, kept[1][0][name]) for name, weights in kept[0][0].items())


@pytest.mark.parametrize("decoder", DECODERS)
def test_a_trained_segmenter_is_loaded_as_it_was_trained(tmp_path: Path, decoder: str) -> None:
    """A model without the setting, as before it existed, has the paper's decoder."""
    trained = train(tmp_path / "out", epochs=3, decoder=decoder)
    stored = json.loads((tmp_path / "out" / "settings.json").read_text(encoding="utf-8"))["settings"]
    assert stored.get("decoder", "characters") == decoder
    assert "decoder" not in stored or decoder == "words"
    segmenter = Segmenter.load(tmp_path / "out")
    scores = segmenter.score(None, TARGETS)
    bits = sum(score.log_probability for score in scores) / -math.log(2)
    assert bits / sum(score.characters for score in scores) == pytest.approx(trained.kept_score, rel=1e-4)
    for target, cut in zip(TARGETS, segmenter.best(None, TARGETS), strict=True):
        assert "".join(cut.pieces) == segmenter.vocabulary.normalize(target)


def test_the_best_epoch_comes_back_when_a_training_goes_on(tmp_path: Path) -> None:
    train(tmp_path / "out", steps=UPDATES + 2)
    beside = load_tensors(tmp_path / "out" / "best-epoch.safetensors")[1]
    assert beside["step"] == UPDATES
    position = Position(best=beside["score"], at_end=0.0)
    assert position.leave_end()
    KeptWeights(tmp_path / "out", torch.nn.Linear(1, 1), position, writes=True).resume()
    assert load_tensors(tmp_path / "out" / "model.safetensors")[1] == beside
    assert position.kept_score == beside["score"]


def test_a_start_with_the_earlier_end_tries_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = UPDATES + 2
    train(tmp_path / "out", steps=end)
    before = load_tensors(tmp_path / "out" / "model.safetensors")
    assert before[1]["step"] == end  # it still learns, so the weights at the end are kept
    with monkeypatch.context() as killed:
        killed.setattr(Trainer, "_train_epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "out", steps=9 * UPDATES)
    again = train(tmp_path / "out", steps=end)
    after = load_tensors(tmp_path / "out" / "model.safetensors")
    assert again.kept_score == after[1]["score"]
    assert after[1] == before[1]
    assert all(torch.equal(weights, after[0][name]) for name, weights in before[0].items())


def test_ends_within_the_first_epoch_are_no_best_epoch(tmp_path: Path) -> None:
    for steps in (2, UPDATES - 1):
        train(tmp_path / "out", steps=steps)
    assert load_tensors(tmp_path / "out" / "model.safetensors")[1]["step"] == UPDATES - 1
    assert not (tmp_path / "out" / "best-epoch.safetensors").exists()


def test_the_epoch_under_way_is_the_one_that_is_shown(tmp_path: Path) -> None:
    train(tmp_path / "out", steps=UPDATES + 2)
    assert [(epoch, step) for epoch, step, _ in evaluations(tmp_path / "out")] == [
        (1, UPDATES),
        (2, UPDATES + 2),
    ]


def test_a_lost_model_is_told(tmp_path: Path) -> None:
    train(tmp_path / "out", steps=2)
    (tmp_path / "out" / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has lost its model"):
        train(tmp_path / "out", steps=2)


@pytest.mark.parametrize("epochs_before", [0, 1])
def test_without_a_whole_epoch_nothing_is_averaged(tmp_path: Path, epochs_before: int) -> None:
    if epochs_before:  # of which no weights were kept
        train(tmp_path / "out", epochs=epochs_before)
    position = train(tmp_path / "out", epochs=1, steps=None if epochs_before else 2, average=2)
    assert position.averaged_at == -1
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_signal_that_comes_while_dev_is_scored_is_obeyed(
    epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, count = SegmenterTask.evaluate, 0

    def interrupted(self: SegmenterTask, processes: Processes) -> dict[str, float]:
        nonlocal count
        count += 1
        if count == epoch:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(self, processes)

    monkeypatch.setattr(SegmenterTask, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "out", epochs=2)
    _, state = load_tensors(tmp_path / "out" / "last.safetensors")
    assert (state["epoch"], state["updates"]) == (epoch, 0)


def test_all_processes_stop_where_one_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum over the processes says that another one was told, at the third question."""
    asked = []

    def sum_scalars(_: Processes, values: Any) -> list[float]:
        values = list(values)
        asked.append(len(values))
        return [1.0] if asked.count(1) == 3 else values

    monkeypatch.setattr(Processes, "sum_scalars", sum_scalars)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "out", epochs=2)
    assert load_tensors(tmp_path / "out" / "last.safetensors")[1]["step"] == 3


def test_an_update_is_divided_among_the_processes_or_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, dropout=0.0)
    settings = replace(trainer.settings, accumulate=3)
    with pytest.raises(UserError, match=r"accumulate is 3, but there are 2 processes.* a multiple of 2"):
        Trainer(trainer.task, settings, tmp_path, Session(), Processes(world=2))
    shares = [
        Trainer(trainer.task, replace(settings, accumulate=6), tmp_path, Session(), Processes(rank, 3))
        for rank in range(3)
    ]
    assert [list(one._own_shares) for one in shares] == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("updates", [UPDATES - 1, UPDATES])
def test_an_epoch_that_an_older_version_began_starts_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], updates: int
) -> None:
    """Its batches had other lines, so how many there were does not say which lines are left."""
    train(tmp_path / "out", steps=updates)
    path = tmp_path / "out" / "last.safetensors"
    tensors, state = load_tensors(path)
    new = ("window", "window_updates", "left_out", "batch_order")
    older = {key: value for key, value in state.items() if key not in new}
    save_tensors(path, tensors, older | {"world": 2})
    train(tmp_path / "out", steps=updates, progress=Progress())
    assert "older version" not in capsys.readouterr().err  # there is nothing to train
    position = train(tmp_path / "out", epochs=2, progress=Progress())
    said = capsys.readouterr().err
    assert "was saved by an older version" in said
    assert ("its epoch starts again" in said) is (updates < UPDATES)
    assert position.step == updates + (2 if updates < UPDATES else 1) * UPDATES
    train(tmp_path / "out", epochs=3, progress=Progress())
    assert "older version" not in capsys.readouterr().err


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lines that trainings load, in windows of 10 lines."""
    load, lines = SegmenterLines.__call__, list[int]()

    def counted(self: SegmenterLines, numbers: list[int]) -> Any:
        lines.extend(numbers)
        return load(self, numbers)

    monkeypatch.setattr(SegmenterLines, "__call__", counted)
    monkeypatch.setitem(epoch_windows.__kwdefaults__, "window", 10)
    return lines


@pytest.mark.parametrize("steps", [4, 5, 6, 7])
def test_a_resumed_training_loads_no_line_of_the_windows_before(
    tmp_path: Path, loaded: list[int], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of ten lines has two batches."""
    whole = train(tmp_path / "whole", epochs=2)
    assert loaded[:40] != loaded[40:]
    assert whole.step == 16
    every, loaded[:] = loaded[:40], []
    with monkeypatch.context() as stopped:
        stopped.setattr(Trainer, "_must_stop", lambda trainer, _: trainer.position.step == steps)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "cut", epochs=2)
    loaded.clear()
    assert train(tmp_path / "cut", epochs=2).step == whole.step
    assert loaded[:-40] == every[(steps - 1) // 2 * 10 :]
    one, other = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("whole", "cut"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_the_number_of_workers_that_load_changes_nothing(tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        train(out, epochs=1, load_workers=workers)
        found.append(load_tensors(out / "last.safetensors")[0])
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
    assert multiprocessing.active_children() == []


def test_an_error_of_a_worker_that_loads_is_one_sentence(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(TARGETS), encoding="utf-8")
    vocabulary = learn_vocabulary(TARGETS, VocabularySettings(size=30))
    lines = SegmenterLines(ParallelText.open(None, text), vocabulary, OwnCut(vocabulary), SMALLEST)
    text.write_text("a line less", encoding="utf-8")
    with (
        pytest.raises(UserError, match="changed while it was in use"),
        closing(in_order(partial(partial, lines), [[0], [1]], workers=2)) as loaded,
    ):
        list(loaded)


def test_an_infinite_gradient_of_a_finite_loss_does_not_reach_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path / "out", epochs=1)
    before = load_tensors(tmp_path / "out" / "last.safetensors")[0]
    loss, steps = SegmenterTask.loss, []

    def infinite(self: SegmenterTask, batch: Any) -> tuple[torch.Tensor, float, int]:
        nats, shown, units = loss(self, batch)
        return nats + torch.sqrt(nats * 0), shown, units  # 0, whose gradient is infinite

    monkeypatch.setattr(SegmenterTask, "loss", infinite)
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *_: steps.append(1))
    sentence = rf"Gradient is NaN or infinite at step {UPDATES + 1}; lower .* so far"
    with pytest.raises(UserError, match=sentence):
        train(tmp_path / "out", epochs=2)
    assert not steps
    after = load_tensors(tmp_path / "out" / "last.safetensors")[0]
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_a_thread_can_train(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: train(tmp_path / "out", steps=1))
    thread.start()
    thread.join()
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lower the learning rate"):
        train(tmp_path / "out", learning_rate=1e30, epochs=3)


def test_a_score_that_is_no_number_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "out", epochs=1)
    evaluate = SegmenterTask.evaluate
    nan = {"score": math.nan, "dev_bits": math.nan}
    monkeypatch.setattr(SegmenterTask, "evaluate", lambda *given: evaluate(*given) | nan)
    sentence = (
        rf"development text is NaN or infinite at step {2 * UPDATES}; lower .* The best model so far is in "
    )
    with pytest.raises(UserError, match=sentence):
        train(tmp_path / "out", epochs=3)
    assert evaluations(tmp_path / "out")[-1] == (2, 2 * UPDATES, None)
    assert load_tensors(tmp_path / "out" / "last.safetensors")[1]["step"] == UPDATES


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ({"steps": 2}, "to step 10: more than the 2 steps asked for"),
        ({"epochs": 1}, "to step 10: more than the 1 epochs asked for"),
        ({"epochs": 2}, "to step 10\n"),
        ({"epochs": 2, "steps": 99}, "to step 10\n"),
    ],
)
def test_a_training_says_what_is_there_and_where_the_model_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: dict[str, int], says: str
) -> None:
    bits = train(tmp_path / "out", epochs=2).kept_score
    train(tmp_path / "out", progress=Progress(), **ending)
    said = capsys.readouterr().err
    assert f"{tmp_path / 'out'} is already trained {says}" in said
    model = tmp_path / "out" / "model.safetensors"
    assert said.endswith(f"the best of 2 epochs is in {model} ({bits:.4g} bits per character)\n")


def test_settings_can_be_corrected_until_something_is_saved(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="lower the learning rate"):
        train(tmp_path / "out", learning_rate=1e30, epochs=1)
    assert train(tmp_path / "out", steps=1).step == 1
    with pytest.raises(UserError, match="other settings"):
        train(tmp_path / "out", learning_rate=2e-3, steps=2)


def test_another_vocabulary_that_lies_there_is_kept(tmp_path: Path) -> None:
    there = tmp_path / "out" / "vocab.model"
    learn_vocabulary(TARGETS, VocabularySettings(size=25)).save(there)
    before = there.read_bytes()
    with pytest.raises(UserError, match=r"vocab\.model already exists"):
        train(tmp_path / "out", steps=1)
    assert there.read_bytes() == before


def test_two_processes_do_not_train_in_one_directory(tmp_path: Path) -> None:
    (tmp_path / "out" / "cache").mkdir(parents=True)
    hold = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(1); input()"
    command = [sys.executable, "-uc", hold, str(tmp_path / "out" / "cache" / "training.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        with pytest.raises(UserError, match="another process is training there"):
            train(tmp_path / "out", steps=1)
        other.communicate(b"\n")
    assert train(tmp_path / "out", steps=1).step == 1


def test_what_a_kill_left_of_a_save_goes(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    left, other = tmp_path / "out" / ".last.safetensors.0123456789ab", tmp_path / "out" / ".notes"
    for path in (left, other):
        path.write_text("half")
    train(tmp_path / "out", steps=1)
    assert [left.exists(), other.exists()] == [False, True]


def test_a_training_without_an_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="would never end"):
        train(tmp_path / "out")


def test_a_seed_may_be_negative(tmp_path: Path) -> None:
    assert train(tmp_path / "out", seed=-1, steps=2).step == 2


@pytest.mark.parametrize(
    "settings", [{"accumulate": 0}, {"learning_rate": 0.0}, {"learning_rate": float("nan")}]
)
def test_settings_that_train_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        ModelSettings(**settings)


def test_the_rate_rises_and_falls_and_gradients_are_clipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = torch.optim.Adam.step

    def recorded(self: torch.optim.Adam, *arguments: Any) -> Any:
        (group,) = self.param_groups
        rates.append(group["lr"])
        assert group["betas"] == (0.9, 0.98)
        assert torch.cat([p.grad.flatten() for p in group["params"]]).norm() < 1.0 + 1e-4
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", recorded)
    train(tmp_path / "out", steps=9)
    assert rates == pytest.approx([1e-3 * min(n / 4, (4 / n) ** 0.5) for n in range(1, 10)])


def make_trainer(out: Path, *, dropout: float, accumulate: int = 1) -> Trainer:
    """A trainer at its start, whose gradients are not clipped."""
    text = ParallelText.open(None, TARGETS)
    vocabulary = learn_vocabulary(TARGETS, VocabularySettings(size=30))
    settings = replace(
        SMALLEST,
        dropout=dropout,
        accumulate=accumulate,
        learning_rate=1e-3,
        warmup=4,
        clip=1e9,
        batch=160,
        steps=1,
    )
    torch.manual_seed(1)
    model = MixedTransformer.of(settings, vocabulary, source=False)
    task = SegmenterTask(model, vocabulary, text, text, cut_source=OwnCut(vocabulary), settings=settings)
    return Trainer(task, settings, out, Session(), Processes())


def test_the_step_is_along_the_gradient_of_the_mean_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(tmp_path, dropout=0.0, accumulate=2)
    task, parameters = trainer.task, list(trainer.model.parameters())
    batches = [task.collate(examples, 0) for examples in islice(batches_of(task, 0), 2)]
    losses = [task.loss(batch) for batch in batches]
    mean = (losses[0][0] + losses[1][0]) / (losses[0][2] + losses[1][2])
    wanted = torch.autograd.grad(mean, parameters)
    steps: list[list[torch.Tensor]] = []
    monkeypatch.setattr(trainer.optimizer, "step", lambda: steps.append([p.grad for p in parameters]))
    trainer._update(batches)
    torch.testing.assert_close(steps, [list(wanted)])


def test_dropout_is_another_one_in_every_epoch(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, dropout=0.5)
    batch = trainer.task.collate(next(batches_of(trainer.task, 0)), 0)
    nats = []
    for epoch in (0, 1, 0):
        trainer.position.epoch = epoch
        nats.append(trainer._backward(batch, 0)[0])
    assert nats[0] == nats[2] != nats[1]


def test_another_text_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "out", steps=1)
    there = Vocabulary.load(tmp_path / "out" / "vocab.model")
    targets = [*TARGETS[:-1], "talossa autossa"]
    with pytest.raises(UserError, match=r"other settings \(another data\."):
        train(tmp_path / "out", targets=targets, vocabulary=there, steps=2)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("model.safetensors", "already exists and was not created by dpe"),
        ("last.safetensors", "already exists and was not created by dpe"),
        ("training.jsonl", "already exists and was not created by dpe"),
        ("training.png", "already exists and was not created by dpe"),
        ("settings.json", "was not written by dpe"),
    ],
)
def test_files_of_others_are_kept(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('{"text": "a"}\n')
    with pytest.raises(UserError, match=f"{name} {says}"):
        train(tmp_path / "out", steps=1)
    assert (tmp_path / "out" / name).read_text() == '{"text": "a"}\n'
