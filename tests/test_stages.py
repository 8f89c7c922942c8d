"""Stages and their artifacts: what is made, what is not made again, and by which process."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpe.errors import UserError
from dpe.experiment.artifacts import Artifacts, Stage, State
from dpe.experiment.run import (
    describe,
    in_order,
    run_stages,
    shared_run,
)
from dpe.progress import QUIET, Progress
from dpe.store import try_lock
from tests.forked import at_the_same_time

ROOT = Path(__file__).parents[1]
SILENT = Progress(QUIET)
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


class Toy:
    """Three stages in a row and one beside them; `made` lists those that were made, in order."""

    def __init__(self, root: Path) -> None:
        self.artifacts, self.made = Artifacts(root), list[str]()

    def stage(self, name: str, setting: int, *needs: Stage, files: tuple[Path, ...] = ()) -> Stage:
        def make(directory: Path) -> Mapping[str, Any]:
            self.made.append(name)
            inputs = "".join((self.artifacts.directory(need) / "out").read_text() for need in needs)
            (directory / "out").write_text(f"{inputs}{name}{setting} ")
            return {"setting": setting}

        return Stage(
            name=name, settings={"setting": setting}, needs=needs, make=make, outputs=("out",), files=files
        )

    def run(self, a: int = 1, b: int = 1, c: int = 1) -> list[str]:
        """Make everything with these settings; gives what had to be made."""
        self.made.clear()
        run_stages(self.stages(a, b, c), self.artifacts, SILENT)
        return list(self.made)

    def stages(self, a: int = 1, b: int = 1, c: int = 1) -> list[Stage]:
        first = self.stage("a", a)
        middle = self.stage("x/b", b, first)
        return in_order([self.stage("x/c", c, middle), self.stage("d", 1, first)])

    def text(self, name: str) -> str:
        return (self.artifacts.root / name / "out").read_text()


def test_every_stage_is_made_once_after_its_needs(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    assert toy.run() == ["a", "x/b", "x/c", "d"]
    assert toy.text("x/c") == "a1 x/b1 x/c1 "
    assert toy.run() == []


def test_a_changed_setting_makes_again_only_what_depends_on_it(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.run()
    assert toy.run(c=2) == ["x/c"]
    assert toy.run(b=2, c=2) == ["x/b", "x/c"]
    assert toy.text("x/c") == "a1 x/b2 x/c2 "
    assert set(toy.run(a=3, b=2, c=2)) == {"a", "x/b", "x/c", "d"}


def test_what_was_made_before_comes_back_with_its_settings(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.run()
    toy.run(b=2)
    assert [toy.artifacts.state(stage) for stage in toy.stages()] == [State.DONE] * 4
    assert toy.run() == []
    assert toy.text("x/c") == "a1 x/b1 x/c1 "


def growing(artifacts: Artifacts, limit: int, *needs: Stage) -> Stage:
    """Counts up to a limit, going on from what is there."""

    def make(directory: Path) -> Mapping[str, Any]:
        count = directory / "count"
        begun = len(count.read_text()) if count.exists() else 0
        count.write_text("x" * limit)
        (directory / "cache").mkdir(exist_ok=True)
        return {"begun": begun, "steps": limit}

    return Stage(
        name="x/count",
        settings={"limit": limit},
        needs=needs,
        make=make,
        outputs=("count",),
        goes_on_from=lambda before: before["limit"] <= limit,
    )


def test_what_only_has_to_be_longer_goes_on_from_the_longest(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)

    def begun(limit: int, *needs: Stage) -> int:
        stage = growing(artifacts, limit, *needs)
        run_stages(in_order([stage]), artifacts, SILENT)
        record = artifacts.record("x/count")
        assert record is not None
        return int(record["facts"]["begun"])

    assert [begun(5), begun(8)] == [0, 5]
    assert begun(3) == 0  # a shorter one is made from the start
    assert begun(9) == 8
    assert begun(5) == 0  # brought back, not made again
    assert (tmp_path / "x/count/count").read_text() == "xxxxx"
    other = Toy(tmp_path).stage("a", 1)
    assert begun(10, other) == 0  # of other needs


def test_a_kill_right_after_the_copy_of_a_shorter_one_does_no_harm(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    run_stages([growing(artifacts, 5)], artifacts, SILENT)
    artifacts.settle(growing(artifacts, 8))  # all that the killed run did
    run_stages([growing(artifacts, 5)], artifacts, SILENT)
    assert (tmp_path / "x/count/count").read_text() == "xxxxx"
    run_stages([growing(artifacts, 8)], artifacts, SILENT)
    assert (tmp_path / "x/count/count").read_text() == "xxxxxxxx"


def test_a_copy_that_a_kill_left_is_not_what_a_longer_one_goes_on_from(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    run_stages([growing(artifacts, 5)], artifacts, SILENT)
    (tmp_path / "x/count").rename(tmp_path / "x/count.copy")  # nothing but the copy of a killed run
    run_stages([growing(artifacts, 8)], artifacts, SILENT)
    assert (tmp_path / "x/count/count").read_text() == "xxxxxxxx"
    record = artifacts.record("x/count")
    assert record is not None
    assert record["facts"]["begun"] == 0


def test_files_that_no_run_has_made_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "out").write_text("the user's own")
    with pytest.raises(UserError, match="contains files that were not created by dpe"):
        Toy(tmp_path).run()
    assert (tmp_path / "a" / "out").read_text() == "the user's own"


def test_a_file_from_outside_counts_by_its_content(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one")
    toy = Toy(tmp_path / "run")
    before = toy.stage("a", 1, files=(text,)).signature
    (tmp_path / "elsewhere").write_text("one")
    assert toy.stage("a", 1, files=(tmp_path / "elsewhere",)).signature == before
    text.write_text("two")
    assert toy.stage("a", 1, files=(text,)).signature != before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("cut sh")])
def test_a_lost_or_shortened_output_is_made_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    toy = Toy(tmp_path)
    toy.run()
    damage(tmp_path / "x" / "b" / "out")
    assert toy.run() == ["x/b"]


def test_a_stage_that_failed_is_unfinished_and_made_again(tmp_path: Path) -> None:
    toy = Toy(tmp_path)

    def fail(directory: Path) -> Mapping[str, Any]:
        (directory / "half").write_text("left")
        raise UserError("full disk")

    broken = Stage(name="a", settings={"setting": 1}, needs=(), make=fail, outputs=("out",))
    with pytest.raises(UserError, match="full disk"):
        run_stages([broken], toy.artifacts, SILENT)
    assert toy.artifacts.state(broken) is State.UNFINISHED
    assert (tmp_path / "a" / "half").exists()  # what is there may help to go on
    assert toy.run() == ["a", "x/b", "x/c", "d"]


def test_a_stage_that_failed_before_it_made_anything_leaves_nothing(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)

    def fail(directory: Path) -> Mapping[str, Any]:
        raise UserError("too large")

    def stage(setting: int) -> Stage:
        return Stage(name="a", settings={"setting": setting}, needs=(), make=fail, outputs=("out",))

    with pytest.raises(UserError, match="too large"):
        run_stages([stage(1)], artifacts, SILENT)
    assert artifacts.state(stage(1)) is State.UNFINISHED
    assert artifacts.state(stage(2)) is State.TO_DO
    with pytest.raises(UserError, match="too large"):
        run_stages([stage(2)], artifacts, SILENT)
    assert [path.name for path in tmp_path.glob("a*")] == ["a"]


def test_the_plan_says_how_far_each_stage_is(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    toy.run()
    lines = describe(toy.stages(b=2), toy.artifacts)
    assert [line.split("  ", 2)[0].strip() for line in lines] == ["a", "x/b", "x/c", "d"]
    states = [line.split("  ")[-1] for line in lines]
    again = State.CHANGED.value
    assert states == ["done", f"{again}: setting is 1 there and 2 now", f"{again}: x/b has changed", "done"]


def test_the_plan_says_that_a_file_has_changed(tmp_path: Path) -> None:
    toy, file = Toy(tmp_path / "run"), tmp_path / "text"
    for content in ("old", "new"):
        file.write_text(content)
        stage = toy.stage("a", 1, files=(file,))
        if content == "old":
            run_stages([stage], toy.artifacts, SILENT)
    assert describe([stage], toy.artifacts)[0].endswith(": a file that it reads has changed")


@contextmanager
def other_process(code: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python that has printed a line, and so holds its locks; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def holding(context: str) -> str:
    return (
        "import time; from pathlib import Path; from dpe.experiment.run import *\n"
        f"with {context} as held: print('ready', flush=True); time.sleep(600)"
    )


def test_a_stage_belongs_to_one_living_process(tmp_path: Path) -> None:
    code = holding(f"try_lock(Artifacts(Path({str(tmp_path)!r})).lock_file('x/b'))")
    artifacts = Artifacts(tmp_path)
    with other_process(code) as process:
        with try_lock(artifacts.lock_file("x/b")) as is_ours:
            assert not is_ours
        with try_lock(artifacts.lock_file("x/c")) as is_ours:
            assert is_ours
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with try_lock(artifacts.lock_file("x/b")) as is_ours:
            assert is_ours


def test_processes_with_other_settings_are_refused_while_one_works(tmp_path: Path) -> None:
    code = holding(f"shared_run(Path({str(tmp_path)!r}), {{'size': 1}})")
    with other_process(code):
        with shared_run(tmp_path, {"size": 1}):
            pass
        with pytest.raises(UserError, match="other settings"), shared_run(tmp_path, {"size": 2}):
            pass
    with shared_run(tmp_path, {"size": 2}):
        pass


def test_processes_that_start_together_with_equal_settings_are_both_let_in(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from dpe.experiment.run import *\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for n in range(200):\n"
        f"    with shared_run(Path({str(tmp_path)!r}) / str(n), {{'size': 1}}): pass\n"
    )
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=ENVIRONMENT, **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(timeout=240) for process in processes] == [0, 0]


def test_two_processes_share_the_stages(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = f"""
import time
from pathlib import Path
from dpe.experiment.artifacts import Artifacts, Stage
from dpe.experiment.run import run_stages
from dpe.progress import QUIET
from dpe.progress import Progress
def make(name):
    def work(directory):
        with open({str(log)!r}, "a") as file: file.write(name + chr(10))
        time.sleep(0.3)
        (directory / "out").write_text("x")
        return {{}}
    return work
first = Stage(name="first", settings={{}}, needs=(), make=make("first"), outputs=("out",))
rest = [Stage(name=f"s{{n}}", settings={{"n": n}}, needs=(first,), make=make(f"s{{n}}"), outputs=("out",))
        for n in range(4)]
run_stages([first, *rest], Artifacts(Path({str(tmp_path / "run")!r})), Progress(QUIET))
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT) for _ in range(2)]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    lines = log.read_text().split()
    assert lines[0] == "first"
    assert sorted(lines) == ["first", "s0", "s1", "s2", "s3"]


def test_a_record_that_a_kill_cut_short_is_not_somebodys_file(tmp_path: Path) -> None:
    toy = Toy(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".artifact.json.0123456789ab").write_text("{")
    assert toy.run() == ["a", "x/b", "x/c", "d"]
    assert not (tmp_path / "a" / ".artifact.json.0123456789ab").exists()


class OldToy(Toy):
    """Stages whose settings leave their defaults out, in a run of a version that recorded all of them."""

    def stage(self, name: str, setting: int, *needs: Stage, files: tuple[Path, ...] = ()) -> Stage:
        def same_settings(recorded: Mapping[str, Any]) -> bool:
            return {"extra": 0} | recorded == {"extra": 0, "setting": setting}

        return replace(super().stage(name, setting, *needs, files=files), same_settings=same_settings)

    def age(self, *stages: Stage) -> None:
        """Give the records the form that the earlier version wrote."""
        signatures: dict[str, str] = {}
        for stage in stages:
            path = self.artifacts.directory(stage) / "artifact.json"
            record = {key: value for key, value in json.loads(path.read_text()).items() if key != "format"}
            settings = record["settings"] | {"extra": 0}
            needs = {need.name: signatures[need.name] for need in stage.needs}
            hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in stage.files]
            about = {"settings": settings, "needs": list(needs.values()), "files": hashes}
            digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
            signatures[stage.name] = record["signature"] = digest[:16]
            path.write_text(json.dumps(record | {"settings": settings, "needs": needs}))

    def adopt(self, *stages: Stage) -> list[str]:
        """Adopt records in order; gives the stages that are done then."""
        for stage in stages:
            self.artifacts.adopt(stage)
        return [stage.name for stage in stages if self.artifacts.state(stage) is State.DONE]


@pytest.fixture
def old(tmp_path: Path) -> OldToy:
    toy = OldToy(tmp_path / "run")
    toy.run()
    toy.age(*toy.stages())
    toy.made.clear()
    return toy


def test_a_run_of_an_earlier_version_is_up_to_date(old: OldToy) -> None:
    before = {path: path.read_bytes() for path in old.artifacts.root.rglob("out")}
    assert [old.artifacts.state(stage) for stage in old.stages()] == [State.CHANGED] * 4
    assert old.adopt(*old.stages()) == ["a", "x/b", "x/c", "d"]
    assert old.run() == []
    assert {path: path.read_bytes() for path in old.artifacts.root.rglob("out")} == before
    record = old.artifacts.record("x/b")
    assert record is not None
    assert record["settings"] == {"setting": 1}
    assert record["facts"] == {"setting": 1}
    old.adopt(*old.stages())
    assert old.artifacts.record("x/b") == record
    assert old.run(b=2) == ["x/b", "x/c"]
    assert old.run() == []  # what was adopted comes back with its settings


def test_an_earlier_run_is_adopted_stage_by_stage(old: OldToy) -> None:
    """As of a kill between two stages, or of a plan of some systems only."""
    first, middle, last, _ = old.stages()
    assert old.adopt(last) == []  # its needs come first
    assert old.adopt(first, middle) == ["a", "x/b"]
    assert OldToy(old.artifacts.root).adopt(*old.stages()) == ["a", "x/b", "x/c", "d"]
    assert old.run() == []


def test_an_earlier_run_with_another_setting_is_made_again_from_there(old: OldToy) -> None:
    assert old.adopt(*old.stages(b=2)) == ["a", "d"]
    assert old.run(b=2) == ["x/b", "x/c"]
    assert len(list((old.artifacts.root / "x").glob("b.*"))) == 1  # the old one is kept


@pytest.mark.parametrize("change", ["settings", "needs", "signature"])
def test_a_record_of_an_earlier_version_must_agree_with_itself(old: OldToy, change: str) -> None:
    path = old.artifacts.root / "x" / "b" / "artifact.json"
    record = json.loads(path.read_text())
    other = {"settings": {"setting": 1}, "needs": {"a": "0" * 16}, "signature": "0" * 16}
    path.write_text(json.dumps(record | {change: other[change]}))
    assert old.adopt(*old.stages()) == ["a", "d"]


def test_an_earlier_run_of_another_file_is_not_adopted(tmp_path: Path) -> None:
    toy, file = OldToy(tmp_path / "run"), tmp_path / "text"
    file.write_text("one")
    run_stages([toy.stage("a", 1, files=(file,))], toy.artifacts, SILENT)
    toy.age(toy.stage("a", 1, files=(file,)))
    file.write_text("two")
    assert toy.adopt(toy.stage("a", 1, files=(file,))) == []
    file.write_text("one")
    assert toy.adopt(toy.stage("a", 1, files=(file,))) == ["a"]


def test_an_unfinished_stage_of_an_earlier_version_is_resumed(old: OldToy) -> None:
    path = old.artifacts.root / "a" / "artifact.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"finished": False}))
    (old.artifacts.root / "a" / "half").write_text("left")
    old.adopt(*old.stages())
    assert old.artifacts.state(old.stages()[0]) is State.UNFINISHED
    assert old.run() == ["a"]
    assert (old.artifacts.root / "a" / "half").exists()


def test_processes_that_adopt_a_run_together_make_nothing(old: OldToy) -> None:
    def start() -> None:
        old.adopt(*old.stages())
        assert old.run() == []

    at_the_same_time(start, [(), (), ()])
