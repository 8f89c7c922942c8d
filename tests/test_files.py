"""A file is absent or whole, compressed files are those of the standard tools, damage is a sentence."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from dpe.errors import UserError
from dpe.files import (
    Stamp,
    cached_file,
    file_hash,
    reading,
    remove_leftovers_of,
    whole_compressed_files,
    whole_directory,
    whole_file,
    whole_files,
    whole_text_file,
    zstd,
)
from tests.texts import COMPRESS


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_and_fail(error: type[BaseException], *files: BinaryIO) -> None:
    for file in files:
        file.write(b"half")
    raise error


def test_file_appears_only_at_the_end_and_nothing_else_remains(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "out.bin"
    with whole_file(path) as file:
        file.write(b"a\x00b")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"a\x00b"
    assert names(path.parent) == ["out.bin"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("before", [None, b"old"])
def test_exception_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException], before: bytes | None
) -> None:
    path = tmp_path / "out"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(error), whole_file(path) as file:
        write_and_fail(error, file)
    assert names(tmp_path) == ([] if before is None else ["out"])
    if before is not None:
        assert path.read_bytes() == before


def test_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    program = (
        "import pathlib, sys, time\n"
        "from dpe.files import whole_file\n"
        "with whole_file(pathlib.Path(sys.argv[1])) as file:\n"
        "    file.write(b'half' * 100000); file.flush(); print('ready', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    assert path.read_bytes() == b"old"


def test_files_that_belong_together_appear_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_files(one, two) as (left, right):
        write_and_fail(ZeroDivisionError, left, right)
    assert names(tmp_path) == ["one"]
    assert one.read_bytes() == b"old"
    with whole_files(one, two) as (left, right):
        left.write(b"1")
        right.write(b"2")
    assert (one.read_bytes(), two.read_bytes()) == (b"1", b"2")


def test_one_file_named_twice_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="two outputs"),
        whole_files(tmp_path / "a", tmp_path / "b" / ".." / "a"),
    ):
        pass
    assert "a" not in names(tmp_path)


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "out"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_through_a_link_the_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_file(tmp_path / "link") as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"


def test_device_and_pipe_are_written_not_replaced(tmp_path: Path) -> None:
    with whole_files(Path("/dev/null"), Path("/dev/null")) as (file, _):
        file.write(b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as process:
        with whole_file(tmp_path / "pipe") as file:
            file.write(b"through")
        assert process.communicate()[0] == b"through"
    assert names(tmp_path) == ["pipe"]


def test_full_disk_is_a_sentence() -> None:
    sentence = "/dev/full: cannot be written: No space left"
    with pytest.raises(UserError, match=sentence), whole_file(Path("/dev/full")) as file:
        file.write(b"x" * 100_000)


@pytest.mark.parametrize("place", ["directory", "file/below"])
def test_impossible_place_is_a_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"), whole_file(tmp_path / place):
        pass
    assert names(tmp_path) == ["directory", "file"]


def test_text_file_is_utf8_with_newlines_as_given(tmp_path: Path) -> None:
    with whole_text_file(tmp_path / "out") as file:
        file.write("ä\r\n\u2028\n")
    assert (tmp_path / "out").read_bytes() == "ä\r\n\u2028\n".encode()
    with pytest.raises(UnicodeEncodeError), whole_text_file(tmp_path / "other") as file:
        file.write("half \ud800")
    assert names(tmp_path) == ["out"]


def test_compressed_files_are_read_by_the_standard_library_and_back(tmp_path: Path) -> None:
    content = b"".join(b"%d\n" % number for number in range(50_000))
    paths = [tmp_path / name for name in ("a", "a.gz", "a.xz", "a.zst")]
    with whole_compressed_files(*paths) as files:
        for file in files:
            file.write(content)
    assert paths[0].read_bytes() == content
    assert gzip.decompress(paths[1].read_bytes()) == content
    assert lzma.decompress(paths[2].read_bytes()) == content
    assert zstd.decompress(paths[3].read_bytes()) == content
    assert paths[3].read_bytes()[:4] == bytes.fromhex("28B52FFD")  # RFC 8878
    for path in paths:
        with reading(path) as stream:
            assert stream.read() == content


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_bytes_depend_on_the_content_only(tmp_path: Path, suffix: str) -> None:
    content = b"".join(b"%d same\n" % number for number in range(50_000))
    for name, step in (("one", len(content)), ("two", 999)):
        with whole_compressed_files(tmp_path / (name + suffix)) as (file,):
            for begin in range(0, len(content), step):
                file.write(content[begin : begin + step])
    compressed = (tmp_path / f"one{suffix}").read_bytes()
    assert compressed == (tmp_path / f"two{suffix}").read_bytes()
    if suffix == ".gz":
        assert compressed[3:8] == bytes(5)  # RFC 1952: no flags (so no name) and no time


@pytest.mark.parametrize("suffix", COMPRESS)
def test_several_compressed_parts_in_one_file_are_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one\n") + COMPRESS[suffix](b"two\n"))
    with reading(path) as stream:
        assert list(stream) == [b"one\n", b"two\n"]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_damaged_compressed_file_is_a_sentence(tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"a{suffix}"
    compressed = COMPRESS[suffix](os.urandom(200_000))
    middle = len(compressed) // 2
    path.write_bytes(
        {
            "cut": compressed[:middle],
            "flip": compressed[:middle] + bytes([compressed[middle] ^ 255]) + compressed[middle + 1 :],
            "foreign": b"plain text\n" * 10,
            "empty": b"",
        }[damage]
    )
    with pytest.raises(UserError, match=f"{path.name}: is damaged or incomplete"), reading(path) as stream:
        stream.read()


def test_missing_file_and_directory_are_sentences(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(UserError, match=f"{path}: cannot be read: {why}"), reading(path):
            pass


def test_cached_name_follows_the_state_and_older_ones_go(tmp_path: Path) -> None:
    text, cache = tmp_path / "te[x]t", tmp_path / "cache"
    cache.mkdir()
    text.write_bytes(b"1")
    first = cached_file(text, Stamp.of(text), cache, "lines")
    first.touch()
    (cache / "unrelated").touch()
    assert cached_file(text, Stamp.of(text), cache, "lines") == first
    assert first.exists()
    text.write_bytes(b"12")
    second = cached_file(text, Stamp.of(text), cache, "lines")
    assert second != first
    assert names(cache) == ["unrelated"]


def test_cached_names_of_equal_names_elsewhere_differ(tmp_path: Path) -> None:
    stamp = Stamp(size=1, time=1)
    one = cached_file(tmp_path / "one" / "train.de", stamp, tmp_path, "lines")
    assert one != cached_file(tmp_path / "two" / "train.de", stamp, tmp_path, "lines")


def test_the_faster_of_two_processes_fills_a_directory(tmp_path: Path) -> None:
    with whole_directory(tmp_path / "out") as slower:
        (slower / "file").write_text("slower")
        with whole_directory(tmp_path / "out") as faster:
            (faster / "file").write_text("faster")
    assert (tmp_path / "out" / "file").read_text() == "faster"
    assert names(tmp_path) == ["out"]


def test_what_a_kill_left_of_one_file_is_removed(tmp_path: Path) -> None:
    left, others, own = ".out[1].gz.0123456789ab", ".out2.gz.0123456789ab", ".out[1].gz.txt"
    for name in (left, others, own):
        (tmp_path / name).write_text("x")
    remove_leftovers_of(tmp_path / "out[1].gz")
    assert names(tmp_path) == sorted([others, own])


def test_a_hash_is_that_of_the_bytes_or_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert file_hash(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(UserError, match="absent: cannot be read: No such file"):
        file_hash(tmp_path / "absent")


@pytest.mark.parametrize("other", ["out.jsonl", "out.gz", "out.0123456789ab"])
def test_a_file_that_another_process_writes_is_no_leftover(tmp_path: Path, other: str) -> None:
    with whole_file(tmp_path / other) as file:
        remove_leftovers_of(tmp_path / "out")
        file.write(b"x")
    assert (tmp_path / other).read_bytes() == b"x"


def test_leftovers_of_long_names_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    with whole_file(tmp_path / f"{'a' * 200}1") as file:
        remove_leftovers_of(tmp_path / f"{'a' * 200}2")
        file.write(b"x")
    assert (tmp_path / f"{'a' * 200}1").exists()
