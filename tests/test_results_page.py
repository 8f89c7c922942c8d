"""The tables of docs/results.md are what the commands above them print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from dpe.cli import run

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
# Of the commands, those that need only the files in results/.
COMMANDS = re.findall(r"^    dpe (table results/.*)$", PAGE, flags=re.MULTILINE)


def test_there_are_commands() -> None:
    assert COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_line_that_a_command_prints_is_on_the_page(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed
    for line in printed:
        assert line in PAGE.splitlines(), line


def test_every_file_of_results_is_used() -> None:
    for path in (ROOT / "results").iterdir():
        assert path.name in PAGE


def test_the_numbers_of_the_readme_are_on_the_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    numbers = re.findall(r"\d+\.\d\d ± \d+\.\d\d", readme)
    assert len(numbers) > 5
    assert all(number in PAGE for number in numbers)
