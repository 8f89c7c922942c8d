"""Arguments that are refused because of each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpe.commands.options import refuse_two_streams, require_files
from dpe.errors import UserError


def test_standard_input_is_one_input() -> None:
    refuse_two_streams(Path("a"), Path("-"), None, Path("a"))
    with pytest.raises(UserError, match="can be read once only"):
        refuse_two_streams(Path("-"), None, Path("a"), Path("-"))


def test_what_is_read_twice_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    require_files(tmp_path / "a", None)
    for path, says in ((Path("-"), "cannot be read twice"), (Path("/dev/null"), "read out of order")):
        with pytest.raises(UserError, match=says):
            require_files(tmp_path / "a", path)
