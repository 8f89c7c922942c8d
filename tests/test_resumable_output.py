"""Outputs of `dpe segment` that a kill cut short are resumed; finished ones and those of others are kept."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dpe import __version__
from dpe.text.corpus import write_lines
from tests.segment_command import SEGMENT, TEXT, Dpe, changed, start


@pytest.fixture(autouse=True)
def _stand_there(segment_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(segment_place)


def test_killed_and_started_again_gives_the_same_bytes(dpe: Dpe, tmp_path: Path) -> None:
    """Killed after the first window is certain, with half a line behind it."""
    lines = [f"{number} talo" for number in range(11_000)]
    write_lines(tmp_path / "long.fi", lines)
    options = [
        "segment", "--segmenter", "lm", "--device", "cpu", "--target", str(tmp_path / "long.fi"),
        "--batch-characters", "150", "--workers",
    ]  # fmt: skip
    out, record = tmp_path / "out", tmp_path / ".out.dpe.json"
    process = start(*options, "2", "--out", str(out))
    wait_for(lambda: record.exists() and json.loads(record.read_text())["lines"] > 0, process)
    process.kill()
    process.communicate()
    assert not out.exists()
    certain = json.loads(record.read_text())
    assert 0 < certain["lines"] < len(lines)
    with (tmp_path / "out.partial").open("ab") as file:
        file.write(b"half a li")
    _, err = dpe(*options, "1", "--out", str(out))
    assert f"resuming after {certain['lines']:,} lines" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.dpe.json", "long.fi", "out"]
    dpe(*options, "1", "--out", str(tmp_path / "whole"))
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    assert out.read_bytes().count(b"\n") == len(lines)


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_between_the_last_line_and_the_rename(dpe: Dpe, tmp_path: Path) -> None:
    """The moment is made by hand: the record says finished, the output is still aside."""
    for name in ("out", "out.gz"):
        options = [*SEGMENT, *TEXT, "--out", str(tmp_path / name)]
        dpe(*options)
        expected = (tmp_path / name).read_bytes()
        partial = gzip.decompress(expected) if name.endswith("gz") else expected
        (tmp_path / f"{name}.partial").write_bytes(partial)
        (tmp_path / name).unlink()
        dpe(*options)
        assert (tmp_path / name).read_bytes() == expected
        assert not (tmp_path / f"{name}.partial").exists()


def test_a_finished_output_is_kept(dpe: Dpe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = [*SEGMENT, *TEXT, "--source-dropout", "0.2", "--out", str(out)]
    dpe(*options)
    before, stamp = out.read_bytes(), out.stat().st_mtime_ns
    _, err = dpe(*options)
    assert "already finished" in err
    assert out.stat().st_mtime_ns == stamp
    for change in (
        ["--mode", "sample"], ["--format", "ids"], ["--seed", "2"], ["--source-dropout", "0.1"],
        ["--epoch", "3"], ["--mode", "n-best"], ["--batch-characters", "99"],
        ["--segmenter", "other"], ["--source", "x.fi"],
    ):  # fmt: skip
        _, err = dpe(*changed(options, *change), code=2)
        assert "--force" in err
        assert out.read_bytes() == before
    _, err = dpe(*changed(options, "--workers", "2"))  # changes no byte, so it is the same configuration
    assert "already finished" in err
    dpe(*options, "--format", "ids", "--force")
    assert out.read_bytes() != before
    dpe(*options, code=2)
    dpe(*options, "--force")
    assert out.read_bytes() == before


@pytest.mark.parametrize("command", [[*SEGMENT, "--format", "jsonl"], ["score", *SEGMENT[1:]]])
def test_lines_of_another_version_are_not_continued(
    command: list[str], dpe: Dpe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions differ in what they write about a line."""
    options = [*command, *TEXT, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as before:
        before.setattr("dpe.__version__", "0.1.0")
        dpe(*options)
    _, err = dpe(*options, code=2)
    assert f"(version was 0.1.0 and is {__version__})" in err


def test_outputs_of_others_are_kept_too(dpe: Dpe, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = [*SEGMENT, *TEXT, "--out", str(out)]
    out.write_text("precious\n")
    _, err = dpe(*options, code=2)
    assert "--force" in err
    assert out.read_text() == "precious\n"
    dpe(*options, "--force")
    with out.open("a") as file:
        file.write("edited\n")
    _, err = dpe(*options, code=2)
    assert "changed" in err
    out.unlink()
    dpe(*options)  # nothing is there to be lost
    assert "edited" not in out.read_text()
    empty = tmp_path / "empty"
    empty.touch()
    dpe(*SEGMENT, *TEXT, "--out", str(empty))
    assert empty.read_bytes() == out.read_bytes()


def test_interrupted_it_leaves_no_process_behind(tmp_path: Path) -> None:
    write_lines(tmp_path / "long.fi", (f"{number} talo" for number in range(60_000)))
    out = tmp_path / "out"
    process = start(
        "segment", "--segmenter", "lm", "--device", "cpu", "--target", str(tmp_path / "long.fi"),
        "--batch-characters", "150", "--workers", "2", "--out", str(out),
    )  # fmt: skip
    wait_for(lambda: (tmp_path / "out.partial").exists() and len(children(process.pid)) >= 2, process)
    below = children(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert b"Traceback" not in err
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{child}").exists() for child in below):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_an_input_called_partial_is_kept(dpe: Dpe, tmp_path: Path, force: list[str]) -> None:
    text = tmp_path / "x.partial"
    text.write_text("talo\nauto\n")
    options = ["--segmenter", "lm", "--target", str(text), "--out", str(tmp_path / "x"), *force]
    _, err = dpe("segment", *options, code=2)
    assert "x.partial is also an input" in err
    assert text.read_text() == "talo\nauto\n"


def test_somebodys_file_called_partial_is_kept(dpe: Dpe, tmp_path: Path) -> None:
    (tmp_path / "x.partial").write_text("precious\n")
    _, err = dpe("segment", "--segmenter", "lm", "--target", "x.fi", "--out", str(tmp_path / "x"), code=2)
    assert "x.partial already exists, and there is no record of how it was made" in err
    assert (tmp_path / "x.partial").read_text() == "precious\n"
