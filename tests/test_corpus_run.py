"""What `dpe segment` is made of: lines that are answered in order, an output that can be resumed."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from dpe.corpus_run import run as corpus_run
from dpe.corpus_run.lines import LineScorer
from dpe.corpus_run.output import Record, ResumableOutput
from dpe.corpus_run.run import CorpusRun, CorpusText, _Reader
from dpe.errors import UserError
from dpe.progress import QUIET, Progress
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.settings import SegmentSettings
from dpe.store import try_lock
from dpe.text.corpus import Pair, write_lines
from dpe.text.text_file import ParallelText
from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segmenter and a text."""
    directory = tmp_path_factory.mktemp("workers")
    save_segmenter(directory / "segmenter", learned_vocabulary())
    write_lines(directory / "x.en", (source for source, _ in PAIRS))
    write_lines(directory / "x.fi", (target for _, target in PAIRS))
    return directory


def scoring(place: Path) -> tuple[CorpusRun, CorpusText]:
    """A text to score, and how."""
    scorer = partial(LineScorer, place / "segmenter", SegmentSettings())
    run = CorpusRun(
        scorer, device=torch.device("cpu"), workers=1, batch_characters=4_000, progress=Progress(QUIET)
    )
    return run, CorpusText(place / "x.en", place / "x.fi", has_source=True)


def test_totals_of_a_resumed_score_are_of_all_lines(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_run, "WINDOW", 100)
    run, text = scoring(place)
    whole = run.write(text, tmp_path / "whole", {}, force=False)
    append = ResumableOutput.append

    def killed(self: ResumableOutput, *lines: Any, **more: Any) -> None:
        append(self, *lines, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(ResumableOutput, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            run.write(text, tmp_path / "cut", {}, force=False)
    cut = run.write(text, tmp_path / "cut", {}, force=False)
    assert cut.totals == pytest.approx(whole.totals)
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_lines_are_answered_with_one_thread_which_is_undone(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_partitions, threads, before = ScoredBatch.log_partitions, set[int](), torch.get_num_threads()

    def counted(self: ScoredBatch) -> torch.Tensor:
        threads.add(torch.get_num_threads())
        return log_partitions(self)

    monkeypatch.setattr(ScoredBatch, "log_partitions", counted)
    run, text = scoring(place)
    torch.set_num_threads(2)
    try:
        run.write(text, tmp_path / "out", {}, force=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == {1}


def test_an_output_has_one_writer(tmp_path: Path) -> None:
    first = ResumableOutput(tmp_path / "out", {}, force=False)
    with pytest.raises(UserError, match="another process is writing it"):
        ResumableOutput(tmp_path / "out", {}, force=False)
    first.close()


def test_an_output_is_looked_at_by_its_only_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a process that ends meanwhile cannot change what was found."""
    find, looked = ResumableOutput._find, []

    def alone(self: ResumableOutput, fresh: Record) -> Record | None:
        with try_lock(tmp_path / ".out.dpe.lock") as is_free:
            looked.append(is_free)
        return find(self, fresh)

    monkeypatch.setattr(ResumableOutput, "_find", alone)
    ResumableOutput(tmp_path / "out", {}, force=False).close()
    assert looked == [False]
    with try_lock(tmp_path / ".out.dpe.lock") as is_free:
        assert is_free


def test_an_output_that_another_process_has_finished_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = ResumableOutput(out, {}, force=False)
    first.append(["one"], count=1, digest="", totals={})
    first.finish()
    first.publish()
    second = ResumableOutput(out, {}, force=False)
    assert second.record == first.record
    second.publish()
    assert out.read_text() == "one\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.dpe.json", "out"]


def test_a_setting_that_is_absent_is_one_that_is_none(tmp_path: Path) -> None:
    """So a new option with a default of None does not make an old output stale."""
    out = tmp_path / "out"
    first = ResumableOutput(out, {"seed": 1, "old": None}, force=False)
    first.append(["one"], count=1, digest="", totals={})
    first.close()
    resumed = ResumableOutput(out, {"seed": 1, "new": None}, force=False)
    assert resumed.record.lines == 1
    resumed.close()
    with pytest.raises(UserError, match=r"another configuration \(new was None and is 2\)"):
        ResumableOutput(out, {"seed": 1, "new": 2}, force=False)


@pytest.mark.parametrize("has_source", [True, False])
def test_a_text_that_is_open_is_the_text_of_its_files(place: Path, has_source: bool) -> None:
    files = CorpusText(place / "x.en" if has_source else None, place / "x.fi", has_source)
    text = ParallelText.open(place / "x.en" if has_source else None, place / "x.fi")
    assert list(text) == list(files)
    assert text.count() == files.count()


def test_a_compressed_output_that_was_changed_does_not_count_as_finished(tmp_path: Path) -> None:
    out = tmp_path / "out.gz"
    first = ResumableOutput(out, {}, force=False)
    first.append(["one"], count=1, digest="", totals={})
    first.finish()
    first.publish()
    assert ResumableOutput(out, {}, force=False).record.finished
    out.write_bytes(gzip.compress(b"other\n"))
    with pytest.raises(UserError, match="was changed after it was made"):
        ResumableOutput(out, {}, force=False)


@pytest.mark.parametrize(("lines", "is_short"), [(0, True), (1_000, True), (1_001, False)])
def test_a_short_stream_is_noticed_and_no_line_lost(lines: int, is_short: bool) -> None:
    reader = _Reader(Pair(None, str(number)) for number in range(lines))
    assert reader.is_short() is is_short
    windows = list(reader.windows())
    assert [pair.target for window in windows for pair in window.pairs] == [str(n) for n in range(lines)]
