"""Keys, locks and things that are made once, between blocks and between processes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpe.errors import UserError
from dpe.store import key_of, lock, make_once, try_lock
from tests.forked import FORK, at_the_same_time

ROOT = Path(__file__).parents[1]


def is_free(path: Path) -> bool:
    with try_lock(path) as free:
        return free


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another program that holds the lock; killed at the end."""
    code = (
        "import sys, time; from pathlib import Path; from dpe.store import try_lock\n"
        "with try_lock(Path(sys.argv[1])) as free: print(free, flush=True); time.sleep(600)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "True\n"
            yield process
        finally:
            process.kill()


def test_a_key_is_of_the_content(tmp_path: Path) -> None:
    assert key_of({"a": 1, "b": [2, None]}) == key_of({"b": (2, None), "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert len(key_of({})) == 16


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with holder(path) as process:
        assert not is_free(path)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert is_free(path)


def test_two_blocks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with try_lock(path) as free:
        assert free
        assert not is_free(path)
        with try_lock(tmp_path / "other") as other:
            assert other
    assert is_free(path)
    with pytest.raises(KeyError), lock(path):
        raise KeyError
    assert is_free(path)


def test_a_forked_process_neither_holds_nor_releases_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    ended = FORK.Event()
    with try_lock(path):
        child = FORK.Process(target=ended.wait, args=(60,))
        child.start()
        at_the_same_time(lambda: None, [()])  # one that ends while the lock is held
        assert not is_free(path)
    assert child.is_alive()
    assert is_free(path)
    ended.set()
    child.join()


def test_a_lock_whose_file_its_holder_removed_is_one_lock(tmp_path: Path) -> None:
    path, counter = tmp_path / "lock", tmp_path / "counter"
    counter.write_text("0")

    def count() -> None:
        for _ in range(50):
            with lock(path):
                number = int(counter.read_text())
                time.sleep(0.0005)
                counter.write_text(str(number + 1))
                path.unlink()

    at_the_same_time(count, [(), ()])
    assert counter.read_text() == "100"


def test_who_waits_for_a_lock_says_so_once(tmp_path: Path) -> None:
    path, said = tmp_path / "lock", list[str]()
    with lock(path, waiting=lambda: said.append("waiting")):
        assert said == []
    with holder(path) as process:

        def waiting() -> None:
            said.append("waiting")
            process.kill()

        with lock(path, waiting=waiting):
            assert not is_free(path)
    assert said == ["waiting"]


def test_a_thing_is_made_once(tmp_path: Path) -> None:
    thing, log = tmp_path / "thing", tmp_path / "log"

    def make(path: Path) -> None:
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.3)
        path.mkdir()

    at_the_same_time(lambda: print(make_once(thing, make)), [(), ()])
    assert log.read_text() == "made\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "thing"]
    assert make_once(thing, make) == thing
    assert log.read_text() == "made\n"


def test_a_thing_whose_making_failed_is_made_again(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        raise UserError("full disk")

    with pytest.raises(UserError, match="full disk"):
        make_once(tmp_path / "thing", fail)
    assert make_once(tmp_path / "thing", Path.touch).exists()


def test_a_lock_that_cannot_be_created_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (("file/lock", "file is a file"), ("file/deep/lock", "Not a directory")):
        with (
            pytest.raises(UserError, match=f"{path}: cannot be written: .*{reason}"),
            try_lock(tmp_path / path),
        ):
            pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_not_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    import fcntl

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    for hold in (try_lock, lock):
        with pytest.raises(UserError, match="does not support file locks"), hold(tmp_path / "lock"):
            pass
