"""Every table of docs/results.md and docs/cuts.md is what a command above it prints, or what results/ has."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpe.cli import run
from dpe.evaluation.morphology import BoundaryScores, Interval, Selection, SystemScores, morphology_tables
from dpe.evaluation.tables import markdown

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("results.md", "cuts.md")}
# Of the commands, those that need only the files in results/.
COMMANDS = [
    (name, command)
    for name, page in PAGES.items()
    for command in re.findall(r"^    dpe (table results/.*)$", page, flags=re.MULTILINE)
]


def printed_by(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert run(shlex.split(command)) == 0
    return capsys.readouterr().out.splitlines()


def test_there_are_commands() -> None:
    assert {name for name, _ in COMMANDS} == set(PAGES)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_every_line_that_a_command_prints_is_on_the_page(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    printed = printed_by(command, capsys)
    assert printed
    for line in printed:
        assert line in PAGES[name].splitlines(), line


@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_the_page_has_its_source(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    known = {row for path in (ROOT / "results").glob("*-morphology*.json") for row in morphology_rows(path)}
    known |= {row for path in (ROOT / "results").glob("*-cuts.json") for row in comparison_rows(path)}
    known |= {line for page, command in COMMANDS if page == name for line in printed_by(command, capsys)}
    rows = [line for line in PAGES[name].splitlines() if re.match(r"\|.*\d.*\|", line)]
    assert len(rows) > 20
    for row in rows:
        assert row in known, row


def morphology_rows(path: Path) -> Iterator[str]:
    for table in morphology_tables([selection(one) for one in json.loads(path.read_text(encoding="utf-8"))]):
        yield from markdown(table).splitlines()


def selection(found: dict[str, Any]) -> Selection:
    return Selection(found["words"], found["unit"], [system_scores(one) for one in found["systems"]])


def system_scores(found: dict[str, Any]) -> SystemScores:
    gain = found["f1_gain_interval"]
    return SystemScores(
        name=found["name"],
        scores=BoundaryScores(**found["scores"]),
        intervals={field: Interval(**ends) for field, ends in found["intervals"].items()},
        f1_gain=found["f1_gain"],
        f1_gain_interval=Interval(**gain) if gain else None,
    )


def comparison_rows(path: Path) -> Iterator[str]:
    """The most frequent words that are cut differently, and the shares by frequency."""
    comparison = json.loads(path.read_text(encoding="utf-8"))["comparison"]["comparison"]
    for word in comparison["top"]:
        yield f"| {word['frequency']:,} | {word['word']} | {word['a']} | {word['b']} |"
    for band in comparison["bands"]:
        types, tokens = (band[f"different_{unit}"] / band[unit] for unit in ("types", "tokens"))
        cells = (band["label"], f"{band['types']:,}", f"{types:.1%}", f"{band['tokens']:,}", f"{tokens:.1%}")
        yield f"| {' | '.join(cells)} |".replace("%", " %")


def test_every_file_of_results_is_named() -> None:
    for path in (ROOT / "results").iterdir():
        assert any(path.name in page for page in PAGES.values()), path.name


def test_the_numbers_of_the_readme_are_on_the_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    numbers = re.findall(r"\d+\.\d\d ± \d+\.\d\d", readme)
    assert len(numbers) > 5
    assert all(number in PAGES["results.md"] for number in numbers)
