"""Parts of a corpus run: each made alone, and together the bytes and the record of one run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dpe.corpus_run import run as corpus_run
from dpe.text.corpus import write_lines
from tests.segment_command import SEGMENT, TEXT, Dpe
from tests.segmenters import PAIRS

WINDOW = 100
SHARDS = ("0:100", "100:300", "300:")
DRAWS = ["--source-dropout", "0.5", "--mode", "sample", "--batch-characters", "700"]  # by the line's number


@pytest.fixture(autouse=True)
def _stand_there(segment_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(segment_place)
    monkeypatch.setattr(corpus_run, "WINDOW", WINDOW)


def record(path: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads(path.with_name(f".{path.name}.dpe.json").read_text())
    return content


def make(dpe: Dpe, place: Path, *options: str, shards: tuple[str, ...] = SHARDS) -> list[str]:
    """The parts, named so that their order is not that of the text."""
    parts = [str(place / f"{9 - number}.txt") for number in range(len(shards))]
    for shard, part in zip(shards, parts, strict=True):
        dpe(*options, "--lines", shard, "--out", part)
    return sorted(parts)


@pytest.mark.parametrize("name", ["segment", "score"])
def test_joined_parts_are_what_one_run_writes(dpe: Dpe, tmp_path: Path, name: str) -> None:
    draws = DRAWS if name == "segment" else ["--source-dropout", "0.5"]
    command = [name, *SEGMENT[1:], *TEXT, *draws]
    dpe(*command, "--out", str(tmp_path / "whole.gz"))
    parts = make(dpe, tmp_path, *command)
    _, said = dpe("join", *parts, "--out", str(tmp_path / "joined.gz"))
    assert "400 lines of 3 parts" in said
    assert (tmp_path / "joined.gz").read_bytes() == (tmp_path / "whole.gz").read_bytes()
    assert record(tmp_path / "joined.gz") == record(tmp_path / "whole.gz")
    assert sum(len(Path(part).read_bytes().splitlines()) for part in parts) == 400
    _, said = dpe(*command, "--out", str(tmp_path / "joined.gz"))
    assert "already finished" in said
    _, said = dpe("join", *parts, "--out", str(tmp_path / "joined.gz"))
    assert "400 lines" in said


def test_counts_of_joined_parts_are_those_of_one_run(dpe: Dpe, tmp_path: Path) -> None:
    command = ["distill", *SEGMENT[1:], *TEXT]
    dpe(*command, "--out", str(tmp_path / "whole.model"))
    for number, shard in enumerate(SHARDS):
        dpe(*command, "--lines", shard, "--out", str(tmp_path / f"part-{number}.model"))
    assert not list(tmp_path.glob("part-*.model"))
    parts = sorted(map(str, tmp_path.glob("part-*.model.pieces.gz")))
    dpe("join", *parts, "--out", str(tmp_path / "joined.model.pieces.gz"))
    _, said = dpe(*command, "--out", str(tmp_path / "joined.model"))
    assert "already finished" in said
    assert (tmp_path / "joined.model").read_bytes() == (tmp_path / "whole.model").read_bytes()
    totals = record(tmp_path / "joined.model.pieces.gz")["totals"]
    assert totals == record(tmp_path / "whole.model.pieces.gz")["totals"]


def test_a_killed_part_goes_on_and_a_finished_one_is_left_alone(
    dpe: Dpe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*SEGMENT, *TEXT, *DRAWS, "--lines", "100:", "--out", str(tmp_path / "part.txt")]
    dpe(*command)
    whole = (tmp_path / "part.txt").read_bytes()
    begin = [*command, "--force"]
    append = corpus_run.ResumableOutput.append

    def killed(self: corpus_run.ResumableOutput, *lines: object, **more: object) -> None:
        append(self, *lines, **more)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(corpus_run.ResumableOutput, "append", killed)
        dpe(*begin, code=130)
    _, said = dpe(*command)
    assert "resuming after 100 lines" in said
    assert "300 lines in all" in said
    assert (tmp_path / "part.txt").read_bytes() == whole
    assert "already finished" in dpe(*command)[1]
    _, said = dpe(*command[:-3], "200:", *command[-2:], code=2)
    assert "lines was 100: and is 200:" in said


def test_windows_end_where_shards_do_whatever_is_in_them(
    dpe: Dpe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window of very long lines ends early; the next one must not run past a shard's end."""
    monkeypatch.setattr(corpus_run, "_WINDOW_CHARACTERS", 3_000)
    command = [*SEGMENT, *TEXT, "--format", "jsonl"]
    dpe(*command, "--out", str(tmp_path / "whole"))
    parts = make(dpe, tmp_path, *command)
    dpe("join", *parts, "--out", str(tmp_path / "joined"))
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("50:100", "the bounds must be multiples of 100"),
        ("0:150", "the bounds must be multiples of 100"),
        ("100", "must be FIRST:END, as in --lines 2000:4000"),
        ("-100:", "must be FIRST:END"),
        ("0:x", "must be FIRST:END"),
        ("200:100", "has no lines"),
        ("100:100", "has no lines"),
        ("400:", "The text has 400 lines, so there is no line 400 to begin at."),
        ("1000:1100", "The text has 400 lines, so there is no line 1,000 to begin at."),
    ],
)
def test_lines_that_are_no_shard_are_refused(dpe: Dpe, tmp_path: Path, lines: str, says: str) -> None:
    _, said = dpe(*SEGMENT, *TEXT, "--lines", lines, "--out", str(tmp_path / "part"), code=2)
    assert says in said
    assert not (tmp_path / "part").exists()


def test_the_last_shard_may_end_beyond_the_text(dpe: Dpe, tmp_path: Path) -> None:
    dpe(*SEGMENT, *TEXT, "--out", str(tmp_path / "whole"))
    parts = make(dpe, tmp_path, *SEGMENT, *TEXT, shards=("0:300", "300:600"))
    dpe("join", *parts, "--out", str(tmp_path / "joined"))
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    ("shards", "says"),
    [
        (("100:300", "300:"), "Lines 0:100 are missing"),
        (("0:100", "300:"), "Lines 100:300 are missing"),
        (("0:100", "100:300"), "Lines 300: are missing, up to the end of the text"),
        (("0:200", "100:"), "Two parts have line 100"),
        (("0:100", "0:100", "100:"), "Two parts have line 0"),
    ],
)
def test_parts_must_have_every_line_once(
    dpe: Dpe, tmp_path: Path, shards: tuple[str, ...], says: str
) -> None:
    parts = make(dpe, tmp_path, *SEGMENT, *TEXT, shards=shards)
    _, said = dpe("join", *parts, "--out", str(tmp_path / "joined"), code=2)
    assert says in said
    assert not list(tmp_path.glob("*joined*"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (["--segmenter", "other"], "was made with another segmenter than"),
        (["--seed", "7"], "was made with another seed than"),
        (["--target", "same.fi"], None),
        (["--target", "changed.fi"], "was made from another text than"),
    ],
)
def test_parts_must_be_made_in_the_same_way(
    dpe: Dpe, tmp_path: Path, change: list[str], says: str | None
) -> None:
    targets = [target for _, target in PAIRS]
    write_lines(Path("same.fi"), targets)
    write_lines(Path("changed.fi"), ["talo", *targets[1:]])  # in a line of the other part
    first, second = (str(tmp_path / name) for name in ("first", "second"))
    dpe(*SEGMENT, *TEXT, *DRAWS, "--lines", ":200", "--out", first)
    dpe(*SEGMENT, *TEXT, *DRAWS, *change, "--lines", "200:", "--out", second)
    _, said = dpe("join", first, second, "--out", str(tmp_path / "joined"), code=2 if says else 0)
    assert (says or "400 lines of 2 parts") in said


def test_parts_that_cannot_be_trusted_are_refused(dpe: Dpe, tmp_path: Path) -> None:
    first, _ = parts = make(dpe, tmp_path, *SEGMENT, *TEXT, shards=(":200", "200:"))
    join, content = ["join", *parts, "--out", str(tmp_path / "joined")], Path(first).read_bytes()
    sidecar = Path(first).with_name(f".{Path(first).name}.dpe.json")
    about = sidecar.read_text()

    def refused() -> str:
        said = dpe(*join, code=2)[1]
        assert not (tmp_path / "joined").exists()
        Path(first).write_bytes(content)
        sidecar.write_text(about)
        return said

    Path(first).write_bytes(content[:-1])
    assert f"{first} was changed or removed after it was made" in refused()
    Path(first).unlink()
    assert f"{first} was changed or removed after it was made" in refused()
    Path(first).write_bytes(content.replace(b"\n", b" ", 1))  # of the same size
    assert f"{first} has 199 lines instead of 200" in refused()
    sidecar.unlink()
    assert f"{first} has no record of how it was made" in refused()
    sidecar.write_text("{")
    assert "is damaged" in refused()
    sidecar.write_text(about.replace('"finished": true', '"finished": false'))
    assert f"{first} is not finished" in refused()
    dpe(*join)
    dpe("join", *parts, "--out", first, code=2)  # an input
    assert Path(first).read_bytes() == content


def test_a_join_starts_over_what_a_killed_run_left_but_not_what_others_made(
    dpe: Dpe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dpe(*SEGMENT, *TEXT, "--out", str(tmp_path / "whole"))
    parts = make(dpe, tmp_path, *SEGMENT, *TEXT)
    out, finish = str(tmp_path / "joined"), corpus_run.ResumableOutput.finish

    def killed(self: corpus_run.ResumableOutput, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(corpus_run.ResumableOutput, "finish", killed)
        dpe("join", *parts, "--out", out, code=130)
    assert finish is corpus_run.ResumableOutput.finish
    dpe("join", *parts, "--out", out)
    assert Path(out).read_bytes() == (tmp_path / "whole").read_bytes()
    Path(tmp_path / "mine").write_text("mine\n")
    assert "already exists" in dpe("join", *parts, "--out", str(tmp_path / "mine"), code=2)[1]


def test_a_compressed_part_is_joined_by_its_lines(dpe: Dpe, tmp_path: Path) -> None:
    dpe(*SEGMENT, *TEXT, "--out", str(tmp_path / "whole"))
    parts = [str(tmp_path / "a.gz"), str(tmp_path / "b.xz")]
    for shard, part in zip((":300", "300:"), parts, strict=True):
        dpe(*SEGMENT, *TEXT, "--lines", shard, "--out", part)
    dpe("join", *parts, "--out", str(tmp_path / "joined.gz"))
    assert gzip.decompress((tmp_path / "joined.gz").read_bytes()) == (tmp_path / "whole").read_bytes()
    Path(parts[0]).write_bytes(gzip.compress(b"other\n"))
    assert "was changed" in dpe("join", *parts, "--out", str(tmp_path / "again"), code=2)[1]
