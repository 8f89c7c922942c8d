"""results/*.md is what `make results` writes, and the numbers of the two pages stand in these tables."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from results.__main__ import RESULTS, page_of

DOCS = RESULTS.parent / "docs"
PAGES = [DOCS / "results.md", DOCS / "cuts.md"]
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
# By section: numbers that are in no table, because they are the paper's, thresholds, or from training logs.
ELSEWHERE = {
    "Translation results on real text": {"0.001"},  # the least p
    "What source dropout costs": {"0.6", "1.1"},  # the paper's table 7
    "Variants of DPE": {"0.08", "0.29"},  # the paper's table 6
    "What has not been run": {"1.4", "1.5"},  # training.jsonl
    "The source adds little": {"0.001"},  # the threshold of `dpe compare --source`
}


SECTIONS = [
    section
    for page in PAGES
    for section in page.read_text(encoding="utf-8").removeprefix("# ").split("\n## ")
]


def title(section: str) -> str:
    return section.partition("\n")[0]


def linked(section: str) -> list[Path]:
    return [RESULTS / name for name in re.findall(r"\]\(\.\./results/([\w.-]+)\)", section)]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_tables_are_up_to_date(path: Path) -> None:
    written = path.with_suffix(".md").read_text(encoding="utf-8")
    assert written == page_of(path), "run 'make results'"


def test_every_table_has_its_results() -> None:
    assert {path.stem for path in RESULTS.glob("*.md")} - {"README"} == {
        path.stem for path in RESULTS.glob("*.json")
    }


@pytest.mark.parametrize("section", SECTIONS, ids=title)
def test_numbers_stand_in_the_tables_that_the_section_links_to(section: str) -> None:
    """As they are, or rounded: 0.34 for 0.3417."""
    found = [
        number for path in linked(section) for number in NUMBER.findall(path.read_text(encoding="utf-8"))
    ]
    without_commands = re.sub(r"^    .*$|`[^`]*`", "", section, flags=re.MULTILINE)
    for claim in set(NUMBER.findall(without_commands)) - ELSEWHERE.get(title(section), set()):
        rounded = {Decimal(number).quantize(Decimal(claim), ROUND_HALF_UP) for number in found}
        assert Decimal(claim) in rounded, claim


def test_every_table_is_linked() -> None:
    from_pages = {path for section in SECTIONS for path in linked(section)}
    overview = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert all(path.exists() for path in from_pages)
    for path in RESULTS.glob("*.json"):
        table = path.with_suffix(".md")
        assert table in from_pages, table.name
        assert f"[{path.stem}]({table.name})" in overview, table.name


def test_scores_of_the_readme_stand_in_a_table() -> None:
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    tables = "\n".join(path.read_text(encoding="utf-8") for path in RESULTS.glob("*.md"))
    scores = re.findall(r"\d+\.\d\d ± \d+\.\d\d", readme)
    assert scores
    assert all(score in tables for score in scores)
