"""What is shown while work lasts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dpe.progress import Progress


def test_one_live_line_inside_another_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, shown = Progress(), io.StringIO()
    monkeypatch.setitem(progress.__dict__, "_console", Console(file=shown, force_terminal=True))
    with progress.live():
        with progress.live():
            progress.update("inner")
        progress.update("outer")
        assert progress._status is not None
        assert progress._status.status == "outer"
    with pytest.raises(KeyError), progress.live():
        raise KeyError
    assert progress._status is None
