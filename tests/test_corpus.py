"""Lines in are lines out, whatever the characters, the compression and the way of reading."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.text.corpus import Pair, read_lines, read_pairs, read_tsv, write_lines
from dpe.text.text_file import ParallelText, TextFile
from tests.texts import BOM, SUFFIXES, characters, lines_by_definition, written

# What the module's docstring says is lost is left out.
line = st.text(characters, max_size=12).filter(lambda text: not text.endswith("\r"))
lines = st.lists(line, max_size=8).filter(lambda texts: not (texts and texts[0].startswith("\ufeff")))


def everything_agrees(path: Path, cache: Path | None) -> list[str]:
    """Read by stream, by number and by iteration, and return the lines that all three gave."""
    streamed = list(read_lines(path))
    file = TextFile.open(path, cache=cache)
    assert [file[number] for number in reversed(range(len(file)))] == streamed[::-1]
    assert list(file) == streamed
    return streamed


@given(lines, st.sampled_from(SUFFIXES), st.booleans())
def test_lines_written_are_the_lines_read(texts: list[str], suffix: str, cached: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"text{suffix}"
        write_lines(path, texts)
        assert everything_agrees(path, Path(directory) / "cache" if cached else None) == texts


@given(
    st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", "é".encode(), BOM])),
    st.sampled_from(SUFFIXES),
)
def test_bytes_are_cut_as_defined(parts: list[bytes], suffix: str) -> None:
    data = b"".join(parts)
    with tempfile.TemporaryDirectory() as directory:
        path = written(Path(directory) / f"text{suffix}", data)
        assert everything_agrees(path, Path(directory) / "cache") == lines_by_definition(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (BOM, []),
        (b"\n", [""]),
        (BOM + b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"\n\na\n\n", ["", "", "a", ""]),
        (b"a\r\nb\r\r\nc\r", ["a", "b\r", "c\r"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\u0085c\fd\ve\x1cf\u2029\ng".encode(), ["a\u2028b\u0085c\fd\ve\x1cf\u2029", "g"]),
        (BOM + b"a\n" + BOM + b"b", ["a", "\ufeffb"]),
        (BOM + BOM + b"a", ["\ufeffa"]),
        (b"\x00\n", ["\x00"]),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_line_is(tmp_path: Path, data: bytes, expected: list[str], cached: bool, suffix: str) -> None:
    path = written(tmp_path / f"text{suffix}", data)
    assert everything_agrees(path, tmp_path / "cache" if cached else None) == expected


@pytest.mark.parametrize("wrong", [b"caf\xe9", b"\xed\xa0\x80", b"\xc3", b"\xff\xfe"])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("last", [True, False])
def test_invalid_utf8_names_file_and_line(tmp_path: Path, wrong: bytes, suffix: str, last: bool) -> None:
    path = written(tmp_path / f"text{suffix}", b"one\ntwo\n" + wrong + (b"" if last else b"\nfour\n"))
    stream = read_lines(path)
    assert [next(stream), next(stream)] == ["one", "two"]
    with pytest.raises(UserError, match=f"^{path}, line 3: "):
        next(stream)
    with pytest.raises(UserError, match=f"^{path}, line 3: "):
        TextFile.open(path, cache=tmp_path / "cache")
    with pytest.raises(UserError, match=f"^{path}, line 3: "):
        TextFile.open(path)
    assert not list((tmp_path / "cache").glob("*.lines"))


def test_text_larger_than_a_chunk(tmp_path: Path) -> None:
    """Characters and line ends fall on either side of every place where the indexer reads on."""
    texts = ["é" * (number * 7919 % 200_000) for number in range(60)]
    write_lines(tmp_path / "text", texts)
    assert (tmp_path / "text").stat().st_size > 8 << 20
    assert everything_agrees(tmp_path / "text", None) == texts


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_file_and_directory_are_sentences(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"directory{suffix}").mkdir()
    for name in (f"none{suffix}", f"directory{suffix}"):
        with pytest.raises(UserError, match=name):
            list(read_lines(tmp_path / name))
        with pytest.raises(UserError, match=name):
            TextFile.open(tmp_path / name)


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_incomplete_compressed_file_is_a_sentence_and_leaves_no_text(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"text{suffix}", os.urandom(50_000).hex().encode())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=f"{path.name}: is damaged or incomplete"):
        list(read_lines(path))
    with pytest.raises(UserError, match=f"{path.name}: is damaged or incomplete"):
        TextFile.open(path, cache=tmp_path / "cache")
    assert not [left for left in (tmp_path / "cache").iterdir() if left.suffix != ".lock"]


def test_standard_input_and_output_are_utf8_in_any_locale() -> None:
    program = "from dpe.text.corpus import *; write_lines(None, read_lines(None))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="ä\r\n\n\u2028\r\nend".encode(),
        capture_output=True,
        env=environment,
        check=True,
    )
    assert done.stdout == "ä\n\n\u2028\nend\n".encode()


def standard_input(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


@pytest.mark.parametrize("path", [None, Path("-")])
def test_standard_input_errors_name_it(monkeypatch: pytest.MonkeyPatch, path: Path | None) -> None:
    standard_input(monkeypatch, b"good\nb\xe4d\n")
    with pytest.raises(UserError, match=r"^standard input, line 2: byte 0xE4 "):
        list(read_lines(path))


@pytest.mark.parametrize("path", [None, Path("-")])
def test_dash_is_standard_output(capsysbinary: pytest.CaptureFixture[bytes], path: Path | None) -> None:
    write_lines(path, ["é", ""])
    assert capsysbinary.readouterr().out == "é\n\n".encode()


def test_line_with_a_newline_is_refused_and_no_file_appears(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="newline"):
        write_lines(tmp_path / "out.gz", ["good", "two\nlines"])
    assert not list(tmp_path.iterdir())


def test_interrupted_lines_leave_the_old_file(tmp_path: Path) -> None:
    def interrupted() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    for suffix in SUFFIXES:
        path = written(tmp_path / f"out{suffix}", b"old\n")
        with pytest.raises(KeyboardInterrupt):
            write_lines(path, interrupted())
        assert list(read_lines(path)) == ["old"]
    assert len(list(tmp_path.iterdir())) == len(SUFFIXES)


def tsv_of(pairs: Iterable[Pair]) -> list[str]:
    return [f"{pair.source}\t{pair.target}" for pair in pairs]


@settings(max_examples=30)  # each writes seven files to the disk
@given(st.lists(st.tuples(line, line)), st.sampled_from(SUFFIXES))
def test_pairs_from_files_and_tsv_agree(rows: list[tuple[str, str]], suffix: str) -> None:
    pairs = [Pair(*(text.replace("\t", " ").replace("\ufeff", " ") for text in row)) for row in rows]
    with tempfile.TemporaryDirectory() as directory:
        source, target, both = (Path(directory) / f"{name}{suffix}" for name in ("s", "t", "tsv"))
        write_lines(source, (str(pair.source) for pair in pairs))
        write_lines(target, (pair.target for pair in pairs))
        write_lines(both, tsv_of(pairs))
        assert list(read_pairs(source, target)) == pairs
        assert list(read_tsv(both)) == pairs
        cache = Path(directory) / "cache"
        text = ParallelText.open(source, target, cache=cache)
        assert len(text) == len(pairs)
        assert [text[number] for number in range(len(pairs))] == list(text) == pairs
        assert list(read_pairs(None, target)) == [Pair(None, pair.target) for pair in pairs]
        assert list(ParallelText.open(None, target)) == [Pair(None, pair.target) for pair in pairs]


@pytest.mark.parametrize(("left", "right"), [(2, 3), (3, 2), (0, 1), (1, 0)])
def test_unequal_counts_name_both_files(tmp_path: Path, left: int, right: int) -> None:
    source, target = written(tmp_path / "s", b"x\n" * left), written(tmp_path / "t", b"x\n" * right)
    with pytest.raises(UserError, match=f"^{source} has {left} lines but {target} has {right}"):
        ParallelText.open(source, target)
    pairs = read_pairs(source, target)
    assert [next(pairs) for _ in range(min(left, right))] == [Pair("x", "x")] * min(left, right)
    long, short = (source, target) if left > right else (target, source)
    with pytest.raises(
        UserError, match=f"^{long}, line {min(left, right) + 1}: .*{short} ends after {min(left, right)} "
    ):
        next(pairs)


@pytest.mark.parametrize("wrong", [b"no tab", b"a\tb\tc", b""])
def test_tsv_line_without_exactly_one_tab_is_named(tmp_path: Path, wrong: bytes) -> None:
    path = written(tmp_path / "tsv", b"a\tb\n" + wrong + b"\n\t\n")
    with pytest.raises(UserError, match=f"^{path}, line 2: has {wrong.count(9)} tabs"):
        list(read_tsv(path))


def test_tsv_of_a_mark_alone_has_no_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "tsv", BOM)
    assert list(read_tsv(path)) == []


def test_pairs_from_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = written(tmp_path / "source", b"s\n")
    standard_input(monkeypatch, b"t\n")
    assert list(read_pairs(source, None)) == [Pair("s", "t")]
    standard_input(monkeypatch, b"t\nu\n")
    assert list(read_pairs(None, None)) == [Pair(None, "t"), Pair(None, "u")]
    standard_input(monkeypatch, b"s\tt\n")
    assert list(read_tsv(None)) == [Pair("s", "t")]
    standard_input(monkeypatch, b"t\nextra\n")
    with pytest.raises(UserError, match=f"^standard input, line 2: .*{source} ends after 1 "):
        list(read_pairs(source, Path("-")))
    with pytest.raises(UserError, match="both source and target"):
        list(read_pairs(Path("-"), None))
