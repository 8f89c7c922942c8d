"""The commands of the README and the Python of the pages work as written, here on less text."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALLER = {"--pairs": "300", "--size": "400", "--epochs": "1"}


def blocks(language: str, page: str = "README.md") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """The quick start, each command as its words, with smaller numbers."""
    lines = blocks("sh")[0].replace("\\\n", " ").splitlines()
    return [reduced(shlex.split(line)) for line in lines if line]


def reduced(words: list[str]) -> list[str]:
    return [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]


def run(words: list[str], directory: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def output(directory: Path) -> str:
    """What the quick start prints in the end."""
    shown = ""
    for words in commands():
        assert words[0] == "dpe"
        shown = run([sys.executable, "-m", *words], directory)
    return shown


def test_the_quick_start_works_and_prints_what_is_shown(output: str) -> None:
    promised = blocks("text")[0].splitlines()
    assert promised[0] in output  # the title of the table
    for system in ("test.bpe", "test.dpe"):
        assert any(line.startswith(system) for line in promised)
        assert any(line.startswith(system) for line in output.splitlines())


@pytest.mark.parametrize("page", ["README.md", "docs/usage.md"])
def test_the_python_examples_work(output: str, directory: Path, page: str) -> None:
    examples = blocks("python", page)
    assert output
    assert examples
    for example in examples:
        assert "▁" in run([sys.executable, "-c", example], directory)


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), target


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("sh")), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
