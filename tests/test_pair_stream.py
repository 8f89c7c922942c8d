"""`dpe cut-pairs`: a filter of pairs that keeps their order, waits for nothing and forgets no line."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from dpe import OnTheFly, Segmenter
from dpe.corpus_run.pair_stream import LINES_AT_ONCE, PairStream, StreamCutter, StreamLine
from dpe.errors import UserError
from dpe.text.bpe import BpeDropout
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.segmenters import make_segmenter
from tests.segment_command import ROOT, TEXT, Dpe
from tests.segmenters import PAIRS

CUT = ["cut-pairs", "--segmenter", "segmenter", "--device", "cpu"]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)


@pytest.fixture(autouse=True)
def _stand_there(segment_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(segment_place)


def sides(lines: str) -> tuple[str, str]:
    """What stands before and behind the tabs, as two texts."""
    rows = [line.split("\t") for line in lines.splitlines()]
    return "".join(f"{row[0]}\n" for row in rows), "".join(f"{row[1]}\n" for row in rows)


@pytest.mark.parametrize("drawn", [[], ["--mode", "sample", "--temperature", "2"]])
@pytest.mark.parametrize("name", ["segmenter", "lm"])
def test_both_sides_are_those_of_encode_and_segment(dpe: Dpe, name: str, drawn: list[str]) -> None:
    draw = ["--seed", "4", "--epoch", "2"]
    options = ["--segmenter", name, "--device", "cpu", *draw, *drawn]
    by_source = ["--source-dropout", "0.5"] if name == "segmenter" else []
    out, err = dpe("cut-pairs", *options, "--source-dropout", "0.5", stdin=TSV)
    dropout = ["--method", "bpe-dropout", "--dropout", "0.5"]
    sources, _ = dpe("encode", "--vocab", "segmenter/vocab.model", *dropout, *draw, "x.en")
    text = TEXT if name == "segmenter" else TEXT[2:]
    targets, _ = dpe("segment", *options, *by_source, "--workers", "1", *text)
    assert sides(out) == (sources, targets)
    assert "400 lines, 0 without a pair" in err


def test_a_line_has_the_draws_of_its_number(dpe: Dpe) -> None:
    """Also where a stream goes on that ended before."""
    options = [*CUT, "--source-dropout", "0.5"]
    whole, _ = dpe(*options, stdin=TSV)
    half = TSV.splitlines(keepends=True)[150:]
    rest, _ = dpe(*options, "--first-line", "150", stdin="".join(half))
    assert rest.splitlines() == whole.splitlines()[150:]
    shifted, _ = dpe(*options, "--first-line", "151", stdin="".join(half))
    assert shifted != rest
    dropped = [*TSV.splitlines(keepends=True)[:99], "no pair\n", *TSV.splitlines(keepends=True)[100:]]
    out, _ = dpe(*options, "--bad-lines", "drop", stdin="".join(dropped))
    assert out.splitlines() == [*whole.splitlines()[:99], *whole.splitlines()[100:]]


@pytest.mark.parametrize("format", ["pieces", "subword-nmt", "ids"])
def test_plain_sources_and_formats(dpe: Dpe, format: str) -> None:
    out, _ = dpe(*CUT, "--format", format, stdin=TSV)
    sources, _ = dpe("encode", "--vocab", "segmenter/vocab.model", "--format", format, "x.en")
    options = ["--workers", "1", "--format", format]
    targets, _ = dpe("segment", "--segmenter", "segmenter", "--device", "cpu", *options, *TEXT)
    assert sides(out) == (sources, targets)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("bpe", {}),
        ("bpe-dropout", {"dropout": 0.4}),
        ("uniform", {"skew": 0.5}),
        ("longest-match", {}),
    ],
)
def test_targets_by_counts_need_no_segmenter(dpe: Dpe, method: str, options: dict[str, float]) -> None:
    vocabulary = Segmenter.load("segmenter").vocabulary
    given = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    command = ["cut-pairs", "--vocab", "segmenter/vocab.model", "--target-method", method, "--seed", "3"]
    out, _ = dpe(*command, *given, "--source-dropout", "0.2", stdin=TSV)
    source, target = BpeDropout(vocabulary, dropout=0.2), make_segmenter(method, vocabulary, **options)
    assert out == "".join(
        f"{' '.join(source.cut(left, Draw(3, 0, n)))}\t"
        f"{' '.join(target.cut(right, Draw(3 + TARGET_STREAM, 0, n)))}\n"
        for n, (left, right) in enumerate(PAIRS)
    )


STRANGE = [
    b"a house\ttalo\t0-0\t\xff\xfe",  # further fields are not looked at
    b"no pair",
    b"a\t",
    b"\ttalo\r",
    b"",
    b"\xff\ttalo",
    "\u2028 x\x85\u2603\u2603\ttalo\u2581 \U0001f600\t\u2028".encode(),
]


@pytest.mark.parametrize("bad_lines", ["pass", "drop"])
def test_strange_lines(bad_lines: Any) -> None:
    """The last one has no end."""
    segmenter, said, out = Segmenter.load("segmenter"), list[str](), io.BytesIO()
    stream = io.BytesIO(b"\xef\xbb\xbf" + b"\n".join(STRANGE))
    pairs = PairStream(stream, first_line=0, bad_lines=bad_lines, report=said.append)
    pairs.cut(partial(StreamCutter, OnTheFly(segmenter), epoch=0, format="pieces"), out, workers=1)
    assert (pairs.lines, pairs.bad) == (len(STRANGE), 3)
    fate = "passed on as it is" if bad_lines == "pass" else "dropped"
    assert [line.split(":")[0] for line in said] == [f"standard input, line {n}" for n in (2, 5, 6)]
    assert all(line.endswith(f" It is {fate}.") for line in said)
    written = out.getvalue().split(b"\n")
    assert written.pop() == b""
    bad = [STRANGE[n] for n in (1, 4, 5)]
    assert [line for line in written if line in bad] == (bad if bad_lines == "pass" else [])
    cut = [line.split(b"\t") for line in written if line not in bad]
    assert [fields[2:] for fields in cut] == [[b"0-0", b"\xff\xfe"], [], [], ["\u2028".encode()]]
    given = [STRANGE[n].removesuffix(b"\r").split(b"\t")[:2] for n in (0, 2, 3, 6)]
    plain = [[segmenter.vocabulary.normalize(side.decode()) for side in pair] for pair in given]
    assert [[side.decode().replace(" ", "") for side in fields[:2]] for fields in cut] == plain


def test_a_line_that_is_no_pair_may_end_it(dpe: Dpe) -> None:
    """What stands before it is written; its number counts all lines."""
    whole, _ = dpe(*CUT, stdin=TSV)
    broken = TSV.replace("\n", "\nno pair\n", 250).replace("no pair\n", "", 249)
    out, err = dpe(*CUT, "--bad-lines", "stop", stdin=broken, code=2)
    assert out.splitlines() == whole.splitlines()[:250]
    assert err == "dpe: standard input, line 251: has no tab; a pair is source, tab, target.\n"


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process of its own, which is killed if it waits for what never comes."""
    command = [sys.executable, "-m", "dpe", "-q", *CUT, "--source-dropout", "0.5", *options]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        watchdog = Timer(240, process.kill)
        watchdog.start()
        yield process
        watchdog.cancel()


def answer(process: subprocess.Popen[str], line: str) -> str:
    """What is written about a line before another one comes."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def test_workers_answer_a_line_before_the_next_one_comes(dpe: Dpe) -> None:
    """Then many at once; then the end, in the middle of a line."""
    ones = ["a house\ttalo\n", "a house\ttalo\tmore\n"]
    with running("--workers", "2") as process:
        out = "".join(answer(process, one) for one in ones)
        assert out.count("\n") == 2
        more, _ = process.communicate(TSV.removesuffix("\n"))
    assert process.returncode == 0
    whole, _ = dpe(*CUT, "--source-dropout", "0.5", stdin="".join(ones) + TSV)
    assert out + more == whole


@pytest.mark.parametrize(("how", "code"), [("interrupt", 130), ("closed", 141)])
def test_it_ends_with_an_interrupt_and_with_its_reader(how: str, code: int) -> None:
    with running() as process:
        for _ in range(2):
            assert answer(process, "a house\ttalo\n")
        if how == "interrupt":
            process.send_signal(signal.SIGINT)
        else:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.close()
            process.stdin.write("a house\ttalo\n")
            process.stdin.flush()
        assert process.wait(timeout=120) == code
        assert process.stderr is not None
        assert process.stderr.read() == ("dpe: stopped.\n" if how == "interrupt" else "")


class Endless(io.RawIOBase):
    """A stream that has 100 more lines whenever it is read."""

    read_lines = 0

    def read1(self, _: int) -> bytes:
        self.read_lines += 100
        return b"a\tb\n" * 100


def echo() -> Callable[[Sequence[StreamLine]], bytes]:
    return lambda lines: b"".join(b"%d\n" % line.number for line in lines)


def slow_echo() -> Callable[[Sequence[StreamLine]], bytes]:
    def answer(lines: Sequence[StreamLine]) -> bytes:
        time.sleep(0.02)
        return b"".join(b"%d\n" % line.number for line in lines)

    return answer


class Watching(io.BytesIO):
    """Collects what is written until there is enough; then the reader goes."""

    def __init__(self, stream: Endless, most: int) -> None:
        super().__init__()
        self.stream, self.most, self.ahead = stream, most, [0]

    def flush(self) -> None:
        written = self.getvalue().count(b"\n")
        self.ahead.append(self.stream.read_lines - written)
        if written >= self.most:
            raise BrokenPipeError


@pytest.mark.parametrize("workers", [1, 2])
def test_little_of_an_endless_stream_is_read_ahead(workers: int) -> None:
    stream = Endless()
    out = Watching(stream, most=20_000)
    pairs = PairStream(stream, first_line=0, bad_lines="stop", report=print)  # type: ignore[arg-type]
    with pytest.raises(BrokenPipeError):
        pairs.cut(slow_echo if workers > 1 else echo, out, workers=workers)
    numbers = list(map(int, out.getvalue().split()))
    assert numbers == list(range(len(numbers)))
    assert max(out.ahead) <= (LINES_AT_ONCE * 16 * workers if workers > 1 else 100)


def test_a_stop_waits_for_answers_under_way() -> None:
    stream = io.BytesIO(b"a\tb\n" * 500 + b"no pair\n" + b"a\tb\n" * 500)
    out = io.BytesIO()
    with pytest.raises(UserError, match="line 501"):
        PairStream(stream, first_line=7, bad_lines="stop", report=print).cut(slow_echo, out, workers=2)
    assert out.getvalue().split() == [b"%d" % n for n in range(7, 507)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Target method dpe needs --segmenter"),
        (["--segmenter", "segmenter", "--vocab", "v"], "Target method dpe needs --segmenter"),
        (["--segmenter", "segmenter", "--target-method", "bpe"], "each other one needs --vocab"),
        (["--vocab", "absent", "--target-method", "bpe"], "absent"),
        (["--segmenter", "absent"], "absent does not contain a trained segmenter"),
        (["--segmenter", "segmenter", "--source-dropout", "1.5"], "source_dropout is 1.5"),
    ],
)
def test_mistakes_are_sentences(dpe: Dpe, arguments: list[str], says: str) -> None:
    out, err = dpe("cut-pairs", *arguments, code=2, stdin=TSV)
    assert err.startswith("dpe: ")
    assert says in err
    assert out == ""
