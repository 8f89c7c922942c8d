"""What `dpe segment` is made of: processes that answer in order, an output that can go on."""

from __future__ import annotations

import gzip
import os
import signal
import time
from pathlib import Path

import pytest

from dpe.errors import UserError
from dpe.inference.corpus_run import _Reader
from dpe.inference.resumable_output import ResumableOutput
from dpe.inference.workers import ordered_results
from dpe.text.corpus import Pair


def test_an_output_that_another_process_has_just_ended_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = ResumableOutput(out, {}, force=False)
    first.append(["one"], count=1, text="", totals={})
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
    first.append(["one"], count=1, text="", totals={})
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
