"""Text by line number: indexed once, changes noticed, the same in workers and in memory."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.text import text_file
from dpe.text.corpus import Pair, write_lines
from dpe.text.text_file import MemoryText, ParallelText, TextFile
from tests.forked import at_the_same_time
from tests.texts import SUFFIXES, characters, lines_by_definition, written


def test_pipe_cannot_be_read_out_of_order(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe: is not a file"):
        TextFile.open(tmp_path / "pipe")


def test_index_takes_eight_bytes_a_line(tmp_path: Path) -> None:
    count = 1_000_000
    (tmp_path / "text").write_bytes(b"".join(b"%d\n" % number for number in range(count)))
    in_memory = TextFile.open(tmp_path / "text")
    mapped = TextFile.open(tmp_path / "text", cache=tmp_path / "cache")
    (index,) = (tmp_path / "cache").iterdir()
    assert index.stat().st_size == 8 * count
    for file in (in_memory, mapped):
        assert file._line_ends is not None
        assert file._line_ends.nbytes == 8 * count
        for number in (0, 1, 123_456, count - 1):
            assert file[number] == str(number)


def test_numbers_outside_are_index_errors_and_negative_ones_count_back(tmp_path: Path) -> None:
    file = TextFile.open(written(tmp_path / "text", b"a\nb\n"))
    assert (file[-1], file[-2]) == ("b", "a")
    for number in (2, -3):
        with pytest.raises(IndexError):
            file[number]


def test_index_and_expanded_text_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = written(tmp_path / "text.xz", b"a\nb\n"), tmp_path / "cache"
    digest = TextFile.open(path, cache=cache).digest()
    assert digest == hashlib.sha256(b"a\nb\n").hexdigest() == TextFile.open(path).digest()
    before = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert len(before) == 3

    def nothing_is_written(path: Path) -> None:
        raise AssertionError(path)

    for function in ("whole_file", "whole_text_file", "file_hash"):
        monkeypatch.setattr(f"dpe.text.text_file.{function}", nothing_is_written)
    again = TextFile.open(path, cache=cache)
    assert (list(again), again.digest()) == (["a", "b"], digest)
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == before


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("change", ["size", "time"])
def test_changed_text_is_indexed_anew_and_old_files_go(tmp_path: Path, suffix: str, change: str) -> None:
    path, cache = written(tmp_path / f"text{suffix}", b"a\nb\n"), tmp_path / "cache"
    before = TextFile.open(path, cache=cache)
    assert list(before) == ["a", "b"]
    digest = before.digest()
    files = len(list(cache.iterdir()))
    status = path.stat()
    written(path, b"new\nand longer\nthan it was\n" if change == "size" else b"\ncd\n")
    later = 0 if change == "size" else 1
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + later))
    expected = lines_by_definition(b"new\nand longer\nthan it was\n" if change == "size" else b"\ncd\n")
    after = TextFile.open(path, cache=cache)
    assert list(after) == expected
    assert after.digest() != digest
    assert len(list(cache.iterdir())) == files


def test_processes_index_a_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = written(tmp_path / "text", b"a\nb\n"), tmp_path / "log"
    index = text_file._index

    def slowly(*given: Path) -> None:
        with log.open("a") as file:
            file.write("x")
        time.sleep(0.3)
        index(*given)

    monkeypatch.setattr(text_file, "_index", slowly)

    def start() -> None:
        assert TextFile.open(path, cache=tmp_path / "cache")[1] == "b"

    at_the_same_time(start, [(), ()])
    assert log.read_text() == "x"


def test_text_that_changes_in_use_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "text", b"a\nb\n")
    early, late = TextFile.open(path), TextFile.open(path)
    assert early[0] == "a"
    path.write_bytes(b"and more\n")
    for file, line in ((late, 1), (early, 0)):
        with pytest.raises(UserError, match="text: changed"):
            file[line]
    path.write_bytes(b"a\n")
    with pytest.raises(UserError, match="text: changed"):
        early[1]


def test_processes_that_expand_a_text_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    path, cache = written(tmp_path / "text.gz", b"a\nb\n"), tmp_path / "cache"
    mine = TextFile.open(path, cache=cache)
    (expanded,) = cache.glob("*.text")
    copy = expanded.read_bytes()
    expanded.unlink()
    expanded.write_bytes(copy)  # as another process does that began before mine had ended
    os.utime(expanded, ns=(1, 1))
    assert list(mine) == ["a", "b"]


def test_without_cache_compressed_text_leaves_nothing_after_exit(tmp_path: Path) -> None:
    """Nor does a forked child that ends first take the text from its parent."""
    path = written(tmp_path / "text.gz", b"a\nb\n")
    (tmp_path / "temporary").mkdir()
    program = (
        "import os, pathlib, sys\n"
        "from dpe.text.text_file import TextFile\n"
        "file = TextFile.open(pathlib.Path(sys.argv[1]))\n"
        "child = os.fork()\n"
        "if child == 0: print(file[0], flush=True); sys.exit()\n"
        "os.waitpid(child, 0); print(file[1], len(os.listdir(os.environ['TMPDIR'])))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        check=True,
    )
    assert done.stdout == "a\nb 1\n"
    assert not list((tmp_path / "temporary").iterdir())


def read_one(text: ParallelText, number: int) -> Pair:
    return text[number]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("cached", [True, False])
def test_workers_read_the_same_lines(tmp_path: Path, method: str, cached: bool) -> None:
    source = written(tmp_path / "source.gz", b"".join(b"s%d\n" % number for number in range(500)))
    target = written(tmp_path / "target", b"".join(b"t%d\n" % number for number in range(500)))
    text = ParallelText.open(source, target, cache=tmp_path / "cache" if cached else None)
    assert text[3] == Pair("s3", "t3")  # open before the workers start
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.starmap(read_one, [(text, number) for number in range(0, 500, 100)])
    assert found == [Pair(f"s{number}", f"t{number}") for number in range(0, 500, 100)]


def test_pickle_of_a_mapped_index_does_not_hold_it(tmp_path: Path) -> None:
    path = written(tmp_path / "text", b"\n" * 100_000)
    file = TextFile.open(path, cache=tmp_path / "cache")
    assert len(pickle.dumps(file)) < 2_000
    assert list(pickle.loads(pickle.dumps(file))) == list(file)


@given(st.lists(st.text(characters, max_size=12), max_size=8))
def test_lines_in_memory_are_those_of_a_file_and_so_is_their_digest(texts: list[str]) -> None:
    """Also where a line ends in a return or the first begins with a byte order mark."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "text"
        path.write_bytes("".join(f"{text}\n" for text in texts).encode())
        file = TextFile.open(path)
        for memory in (MemoryText(texts), pickle.loads(pickle.dumps(MemoryText(iter(texts))))):
            assert len(memory) == len(file)
            assert list(memory) == [memory[number] for number in range(len(memory))] == list(file)
            assert memory.digest() == file.digest()


def test_parallel_text_from_lists_is_that_of_files(tmp_path: Path) -> None:
    source, target = ["one", "", "three é"], ["yksi", "kaksi", "kolme"]
    files = tmp_path / "source", tmp_path / "target.gz"
    write_lines(files[0], source)
    write_lines(files[1], target)
    expected = ParallelText.open(*files)
    for text in (
        ParallelText.open(source, target),
        ParallelText.open(tuple(source), iter(target)),
        ParallelText.open(files[0], target, cache=tmp_path / "cache"),
        ParallelText.open(source, str(files[1])),
    ):
        assert len(text) == 3
        assert list(text) == list(expected)
        assert text[-1] == Pair("three é", "kolme")
        assert text.describe() == expected.describe()
    assert list(ParallelText.open(None, target)) == [Pair(None, line) for line in target]
    assert ParallelText.open(None, target).describe() == ParallelText.open(None, files[1]).describe()


def test_unequal_or_broken_lists_are_sentences(tmp_path: Path) -> None:
    path = written(tmp_path / "s", b"a\n")
    with pytest.raises(UserError, match=r"^the source has 2 lines but the target has 1; "):
        ParallelText.open(["a", "b"], ["c"])
    with pytest.raises(UserError, match=f"^{path} has 1 lines but the target has 2; "):
        ParallelText.open(path, ["a", "b"])
    for line, says in (("a\nb", "line break"), ("a\ud800", "surrogate"), (5, "must be a string, not int")):
        with pytest.raises(UserError, match=says):
            ParallelText.open(["a"], [line])  # type: ignore[list-item]
