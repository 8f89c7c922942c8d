"""The README's commands and Python work as written, here on less text, and print what it shows."""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dpe.demo.grammar import write_corpus
from dpe.text.corpus import read_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALLER = {"--pairs": "300", "--size": "400", "--epochs": "1"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def quick_start() -> list[list[str]]:
    """Each command as its words."""
    lines = blocks("sh")[1].replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


def reduced(words: list[str]) -> list[str]:
    """A command with smaller numbers."""
    return [SMALLER.get(before, word) for before, word in zip(["", *words], words, strict=False)]


def option(name: str) -> int:
    """The number that the quick start gives an option."""
    (value,) = [words[words.index(name) + 1] for words in quick_start() if name in words]
    return int(value)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def output(directory: Path) -> str:
    """What the quick start prints in the end."""
    shown, environment = "", os.environ | {"PYTHONPATH": str(ROOT)}
    for words in map(reduced, quick_start()):
        assert words[0] == "dpe"
        command = [sys.executable, "-m", *words]
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
        shown = done.stdout
    return shown


def test_the_quick_start_works_and_prints_what_is_shown(output: str) -> None:
    promised = blocks("text")[0].splitlines()
    assert promised[0] in output  # the title of the table
    assert promised[1].split() == output.splitlines()[1].split()  # its columns
    for system in ("test.bpe", "test.dpe"):
        assert any(line.startswith(system) for line in promised)
        assert any(line.startswith(system) for line in output.splitlines())


def examples() -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(blocks("pycon")[0])


def shown_pieces() -> list[list[str]]:
    """The two segmentations that the first screen shows: DPE's, BPE's."""
    return [example.want.partition("(")[0].split() for example in examples() if example.want]


def test_the_first_example_works(output: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert output
    monkeypatch.chdir(directory)
    names: dict[str, object] = {}
    for example in examples():
        with redirect_stdout(io.StringIO()) as printed:
            exec(example.source, names)
        form = re.escape(re.sub(r"\S*▁.*?(?=  |\n)|-?\d+\.\d+", "#", example.want)).replace(r"\#", ".+")
        assert re.fullmatch(form, printed.getvalue()), printed.getvalue()


def test_the_first_example_shows_what_bpe_does(tmp_path: Path) -> None:
    """With the vocabulary of the quick start in full; the word is new to it."""
    write_corpus(tmp_path, pairs=option("--pairs"), seed=1)
    lines = [*read_lines(tmp_path / "train.en"), *read_lines(tmp_path / "train.fi")]
    by_dpe, by_bpe = shown_pieces()
    word = "".join(by_bpe).removeprefix("▁")
    assert learn_vocabulary(lines, VocabularySettings(size=option("--size"))).encode(word) == by_bpe
    assert "".join(by_dpe).removeprefix("▁") == word
    assert not any(word in line for line in lines)


def test_the_picture_shows_the_same() -> None:
    """docs/lattice_picture.py draws it with the segmenter of `make demo`, the same as the quick start's."""
    picture = (ROOT / "docs" / "lattice.svg").read_text(encoding="utf-8")
    (alternative,) = re.findall(r"^!\[(.*)\]\(docs/lattice\.svg\)$", README, flags=re.MULTILINE)
    texts = re.findall(r">([^<]+)</text>", picture)
    for pieces in shown_pieces():
        plain = " ".join(pieces).removeprefix("▁")
        assert f": {plain}" in alternative
        assert set(plain.split()) <= set(texts)
    (probability,) = re.findall(r"probability (\d\.\d+)", examples()[2].want)
    (sentence,) = [text for text in texts if text.startswith("DPE: ")]
    assert sentence.removeprefix("DPE: ") in alternative
    assert f"probability {float(probability):.2f}," in sentence


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 120
    assert README.index("pip install") < README.index("\n## ")  # on the first screen


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
            linked = page.parent / target if target else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def anchors(page: Path) -> list[str]:
    """Of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_make_targets_of_the_pages_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`make (\w+)`", README))
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
