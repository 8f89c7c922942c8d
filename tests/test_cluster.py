"""A Ray cluster gives what one process gives, whatever is killed, and does again only what was lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dpe.corpus_run import cluster as ray_cluster
from dpe.corpus_run import run as corpus_run
from dpe.corpus_run.cluster import Cluster, Step, _Actor, _Dispatcher, connected
from dpe.corpus_run.run import NumberedPairs
from dpe.errors import UserError
from dpe.pool import in_order
from dpe.progress import QUIET, Progress
from tests.experiments import MINUSCULE
from tests.killed_workers import KillAlways, KillOnce, Square, make_ill, make_nothing
from tests.noted_cutter import BATCH, batches, corpus
from tests.segment_command import TEXT, Dpe

pytest.importorskip("ray", reason="Ray is not installed: pip install -c constraints.txt '.[ray]'")
ROOT = Path(__file__).parents[1]
WINDOW = 100  # lines, about six batches


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Of two workers. Commands in this process use it; others connect to its address."""
    pytest.MonkeyPatch().setenv("PYTHONPATH", str(ROOT))  # where workers find tests/
    with connected("local", cpus=2, progress=Progress(QUIET)) as found:
        assert found is not None
        yield found


@pytest.fixture
def address(cluster: Cluster) -> str:
    return str(cluster.ray.get_runtime_context().gcs_address)


@pytest.fixture
def place(segment_place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the segmenters and the text, and what one process makes of them."""
    shutil.copytree(segment_place, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(corpus_run, "WINDOW", WINDOW)
    run, text, _ = corpus(tmp_path, None, tmp_path / "plain.notes")
    run.write(text, tmp_path / "plain", {}, force=False)
    return tmp_path


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_tasks(cluster: Cluster, workers: int) -> None:
    start = partial(cluster.actors, on_gpu=False)
    assert list(in_order(Square, range(200), workers=workers, start=start)) == [n * n for n in range(200)]
    assert list(in_order(Square, [], workers=workers, start=start)) == []


def test_only_the_tasks_of_lost_actors_are_done_again(cluster: Cluster, tmp_path: Path) -> None:
    make, start = partial(KillOnce, tmp_path, (5, 30)), partial(cluster.actors, on_gpu=False)
    assert list(in_order(make, range(60), workers=2, start=start)) == [n * n for n in range(60)]
    begun = Counter((tmp_path / "begun").read_text().split())
    assert begun == Counter({str(task): 1 + (task in (5, 30)) for task in range(60)})
    assert cluster.state.endswith("2 lost")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_ill, "^the text is ill.$"),
        (make_nothing, "^The machine .* of the cluster cannot begin: there is no model. All machines need"),
        (KillAlways, "^2 workers were lost with the same lines, possibly out of memory"),
    ],
)
def test_failures_of_a_worker_arrive(
    cluster: Cluster, make: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "_ATTEMPTS", 2)
    with pytest.raises(UserError, match=says):
        list(in_order(make, range(50), workers=2, start=partial(cluster.actors, on_gpu=False)))


def test_every_machine_must_have_this_version() -> None:
    assert "instead of 0.0.1; install that" in str(_Actor(Square, "0.0.1").begin())


def test_a_worker_killed_in_the_middle_of_a_batch_changes_nothing(cluster: Cluster, place: Path) -> None:
    notes = place / "ray.notes"
    run, text, said = corpus(place, cluster, notes, 210)
    record = run.write(text, place / "ray", {}, force=False)
    assert (place / "ray").read_bytes() == (place / "plain").read_bytes()
    assert record.lines == 400
    plain, made = batches(place / "plain.notes"), batches(notes)
    assert made - plain == Counter({batch: 1 for batch in plain if 210 in batch})
    assert set(made) == set(plain)
    assert any("2 of 2 workers" in state and " a second" in state for state in said.states)
    assert any(state.endswith("1 lost") for state in said.states)


def test_a_killed_driver_is_resumed_where_its_record_ends(
    cluster: Cluster, address: str, place: Path
) -> None:
    code = (
        "import sys; from pathlib import Path; import dpe.corpus_run.run as r\n"
        "from dpe.corpus_run.cluster import connected; from dpe.progress import QUIET, Progress\n"
        "from tests.noted_cutter import corpus\n"
        f"r.WINDOW = {WINDOW}; place = Path(sys.argv[1])\n"
        "with connected(sys.argv[2], cpus=None, progress=Progress(QUIET)) as cluster:\n"
        "    run, text, _ = corpus(place, cluster, place / 'first.notes')\n"
        "    run.write(text, place / 'ray', {}, force=False)\n"
    )
    command = [sys.executable, "-c", code, str(place), address]
    driver = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    sidecar, lines = place / ".ray.dpe.json", 0
    while not lines and driver.poll() is None:
        lines = json.loads(sidecar.read_text())["lines"] if sidecar.exists() else 0
        time.sleep(0.01)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    lines = json.loads(sidecar.read_text())["lines"]
    assert 0 < lines < 400
    assert lines % WINDOW == 0
    run, text, _ = corpus(place, cluster, place / "second.notes")
    run.write(text, place / "ray", {}, force=False)
    assert (place / "ray").read_bytes() == (place / "plain").read_bytes()
    later = Counter({batch: 1 for batch in batches(place / "plain.notes") if batch[0] >= lines})
    assert batches(place / "second.notes") == later


def test_the_command_makes_only_the_parts_that_were_removed(
    cluster: Cluster, place: Path, dpe: Dpe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    submit, lines = _Dispatcher.submit, list[int]()

    def counted(self: Any, task: NumberedPairs) -> Any:
        lines.extend(task.numbers)
        return submit(self, task)

    monkeypatch.setattr(_Dispatcher, "submit", counted)
    shards = {"0:200": "a", "200:": "b"}

    def make_parts() -> str:
        command = ["segment", "--segmenter", "segmenter", *TEXT, "--batch-characters", str(BATCH)]
        options = ["--workers", "1", "--device", "cpu", "--ray"]
        return "".join(
            dpe(*command, "--lines", shard, "--out", part, *options)[1] for shard, part in shards.items()
        )

    make_parts()
    assert sorted(lines) == list(range(400))
    lines.clear()
    Path("b").unlink()
    assert make_parts().count("already finished") == 1
    assert sorted(lines) == list(range(200, 400))
    dpe("join", *shards.values(), "--out", "joined")
    assert Path("joined").read_bytes() == Path("plain").read_bytes()
    _, said = dpe("segment", "--segmenter", "segmenter", *TEXT, "--ray", code=2)
    assert "give --out" in said


def test_a_model_that_is_replaced_meanwhile_is_refused(cluster: Cluster, place: Path) -> None:
    """By the worker that takes over."""
    run, text, _ = corpus(place, cluster, place / "notes", 10, place / "other")
    with pytest.raises(UserError, match="has another segmenter than when the work began"):
        run.write(text, place / "ray", {}, force=False)


def test_a_worker_that_does_not_see_the_model_says_so(cluster: Cluster, place: Path) -> None:
    run, text, _ = corpus(place, cluster, place / "notes")
    shutil.move(place / "segmenter", place / "elsewhere")
    with pytest.raises(UserError, match=r"The machine .* cannot begin: .*segmenter.* same places"):
        run.write(text, place / "ray", {}, force=False)


def test_what_needs_a_step_that_failed_is_not_done(cluster: Cluster) -> None:
    steps = [Step(name, needs, cpus=1, gpus=0) for name, needs in
             [("a", ()), ("b", ("a",)), ("ill", ("a",)), ("c", ("b",)), ("d", ("ill", "b"))]]  # fmt: skip

    def work(step: Step) -> str:
        if step.name == "ill":
            raise UserError("this is ill.")
        return step.name

    found = {name: str(result) for name, result in cluster.steps(work, steps)}
    failed = {"ill": "this is ill.", "d": "not made, because a stage that it needs failed"}
    assert found == {"a": "a", "b": "b", "c": "c"} | failed
    with pytest.raises(UserError, match="asks for 3 CPUs and 0 GPUs, and this machine's cluster has 2 and 0"):
        list(cluster.steps(work, [Step("a", (), cpus=3, gpus=0)]))


def test_a_run_whose_worker_and_driver_are_killed_ends_as_one_that_was_not(
    cluster: Cluster, address: str, tmp_path: Path, dpe: Dpe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings, of which each goes on from its last save."""
    from tests.test_run import outputs

    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(MINUSCULE)
    command = ["run", "mine.toml", "--device", "cpu", "--set", 'systems=["bpe", "bpe-dropout"]',
               "--set", "decoding.beam=1", "--set", "translator.epochs=4"]  # fmt: skip
    shown, _ = dpe(*command, "--threads", "1", "--out", "plain")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.Popen(
        [sys.executable, "-m", "dpe", *command, "--out", "ray", "--ray", address],
        env=environment, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    saved = [Path(f"ray/translators/{name}/seed-1/last.safetensors") for name in ("bpe", "bpe-dropout")]
    while not any(path.exists() for path in saved) and killed.poll() is None:
        time.sleep(0.01)
    workers = stage_workers()
    os.kill(workers[0], signal.SIGKILL)
    while workers[0] in stage_workers():
        time.sleep(0.01)
    assert killed.poll() is None
    killed.kill()
    killed.wait()
    said, errors = dpe(*command, "--out", "ray", "--ray")
    assert said == shown
    assert "[1/" in errors
    assert outputs(Path("ray")) == outputs(Path("plain"))
    resumed = [json.loads(line) for path in saved for line in (path.parent / "training.jsonl").open()]
    assert [one["epoch"] for one in resumed if "dev_bleu" in one] == [1, 2, 3, 4] * 2
    said, errors = dpe(*command, "--out", "ray", "--ray")
    assert said == shown


def stage_workers() -> list[int]:
    """Processes of the cluster that make a translator."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(b"ray::translators/"):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found
