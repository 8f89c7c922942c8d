"""What `dpe segment` is made of: processes that answer in order, an output that can go on."""

from __future__ import annotations

import gzip
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from dpe.corpus_run import run as corpus_run
from dpe.corpus_run.lines import EpochDraws, LineScorer
from dpe.corpus_run.output import ResumableOutput
from dpe.corpus_run.pool import ordered_results
from dpe.corpus_run.run import CorpusRun, CorpusText, _Reader
from dpe.errors import UserError
from dpe.progress import QUIET, Progress
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.text.corpus import Pair, write_lines
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
    make = partial(LineScorer, place / "segmenter", EpochDraws(), device="cpu", batch_characters=4_000)
    run = CorpusRun(make=make, workers=1, batch_characters=4_000, progress=Progress(QUIET))
    return run, CorpusText(place / "x.en", place / "x.fi", has_source=True)


def test_totals_of_a_score_that_goes_on_are_of_all_lines(
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


def test_an_output_that_another_process_has_just_ended_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = ResumableOutput(out, {}, force=False)
    first.append(["one"], count=1, digest="", totals={})
    unfinished = first.record
    first.finish()
    first.publish()
    monkeypatch.setattr(ResumableOutput, "_find", lambda *_: unfinished)  # as it was before that
    with pytest.raises(UserError, match="just ended"):
        ResumableOutput(out, {}, force=False)
    assert out.read_text() == "one\n"
    assert not (tmp_path / "out.partial").exists()


def test_a_packed_output_that_was_changed_does_not_count_as_finished(tmp_path: Path) -> None:
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


class Kill:
    """Work that ends its process at task 3; `Fail` raises there instead."""

    def __call__(self, task: int) -> int:
        if task == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return task * task


class Fail:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __call__(self, task: int) -> int:
        if task == 3 and self.error is not None:
            raise self.error
        time.sleep(0.002 * (task % 5))  # so that results come out of order
        return task * task


def make_ill() -> Fail:
    return Fail(UserError("the text is ill."))


def test_workers_hand_back_in_order_and_pass_on_failures() -> None:
    """Any callable can be made in the workers; those here are this module's classes."""
    assert list(ordered_results(Fail, range(300), workers=2)) == [n * n for n in range(300)]
    with pytest.raises(UserError, match="killed by signal 9"):
        list(ordered_results(Kill, range(300), workers=2))
    with pytest.raises(UserError, match="the text is ill"):
        list(ordered_results(make_ill, range(300), workers=2))
