"""A stage of a run in two processes: the artifact of one, errors as sentences, and no process left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from dpe.errors import UserError
from dpe.experiment.artifacts import Artifacts
from dpe.experiment.run import in_order, run_stages
from dpe.model.checkpoint import load_tensors
from dpe.progress import QUIET, Progress
from dpe.training import launch
from dpe.training.launch import in_processes
from dpe.training.processes import Session
from dpe.training.state import Position
from tests.experiments import MINUSCULE, experiment

ROOT = Path(__file__).parents[1]
WORDS = ('segmenter.decoder="words"', "segmenter.accumulate=2")


def test_two_processes_make_the_artifact_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a decoder over words. They may change from start to start."""
    started: list[int] = []
    elastic_launch = launch.elastic_launch

    def noted(config: launch.LaunchConfig, work: object) -> object:
        started.append(config.nproc_per_node)
        return elastic_launch(config, work)  # type: ignore[arg-type]

    monkeypatch.setattr(launch, "elastic_launch", noted)
    models, records = [], []
    for name, more in (("one", ()), ("two", ("resources.segmenters.processes=2",))):
        made = experiment(tmp_path / name, MINUSCULE, 'systems=["dpe"]', *WORDS, *more)
        run_stages(in_order([made.segmenter("mixed")]), Artifacts(made.root), Progress(QUIET))
        directory = made.root / "segmenters" / "mixed"
        models.append(load_tensors(directory / "model.safetensors")[0])
        records.append(json.loads((directory / "artifact.json").read_text()))
    assert started == [2]
    assert models[0].keys() == models[1].keys()
    for key, tensor in models[0].items():
        torch.testing.assert_close(models[1][key], tensor, rtol=1e-3, atol=1e-4, msg=key)
    assert records[0]["signature"] == records[1]["signature"]
    assert records[0]["settings"] == records[1]["settings"]
    assert records[0]["facts"]["steps"] == records[1]["facts"]["steps"]


def test_processes_must_divide_the_batches_of_an_update(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"processes is 3, among which .* accumulate is 2; set it to a mult"):
        experiment(tmp_path, MINUSCULE, *WORDS, "resources.segmenters.processes=3")


def complain(*, session: Session) -> Position:
    raise UserError("there is no text.")


def die(*, session: Session) -> Position:
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
    raise AssertionError


def wait(*, session: Session) -> Position:
    print(os.getpid(), flush=True)
    time.sleep(600)
    raise AssertionError


def test_what_a_process_says_is_told_and_a_lost_one_ends_the_others() -> None:
    with pytest.raises(UserError, match=r"^there is no text\.$"):
        in_processes(complain, Session(), 2)
    begin = time.monotonic()
    with pytest.raises(UserError, match="A process of the training was lost, possibly out of memory"):
        in_processes(die, Session(), 2)
    assert time.monotonic() - begin < 300


def test_processes_end_with_a_killed_program() -> None:
    code = (
        "from dpe.training.launch import in_processes; from dpe.training.processes import Session\n"
        "from tests.test_launch import wait\n"
        "if __name__ == '__main__': in_processes(wait, Session(), 2)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    program = subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    children = [int(program.stdout.readline()) for _ in range(2)]
    program.kill()
    program.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
