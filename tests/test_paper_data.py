"""The corpora of recipes/paper: recipes read what their commands fetch, and mtdata knows every id."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from dpe.experiment.recipe import LANGUAGE, read_recipe
from tests.segment_command import Dpe

ROOT = Path(__file__).parents[1]
PAPER = ROOT / "recipes" / "paper"
MTDATA = Path(os.environ.get("MTDATA_PYTHON", ROOT / ".venv" / "mtdata" / "bin" / "python"))
NAMES = {"de": "deu", "et": "est", "fi": "fin", "hu": "hun", "ro": "ron"}  # in ISO 639-3, as mtdata has them
# Run where mtdata is: which of the ids on standard input are in its index, and of the languages given.
IN_INDEX = """
import json, sys
from mtdata.entry import DatasetId
from mtdata.index import INDEX, bcp47
found = {}
for name, languages in json.load(sys.stdin).items():
    entry = INDEX.entries.get(DatasetId.parse(name))
    found[name] = entry is not None and entry.is_compatible([bcp47(one) for one in languages])
print(json.dumps(found))
"""


def command_of(language: str) -> str:
    """How the comments of a recipe say that its corpora are fetched, without line breaks."""
    lines = (PAPER / f"en-{language}.toml").read_text(encoding="utf-8").splitlines()
    comment = "\n".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    return comment.partition("--set data=DIR:\n")[2].replace("\\\n", "")


def ids_of(command: str, *options: str) -> list[str]:
    """What stands behind these options of `mtdata get`."""
    found = []
    for option in options:
        for ids in re.findall(rf"{option}((?: +[A-Z][\w.-]+)+)", command):
            found += ids.split()
    return found


@pytest.mark.parametrize("language", NAMES)
def test_the_command_fetches_what_the_recipe_reads(language: str) -> None:
    command, corpus = command_of(language), read_recipe(PAPER / f"en-{language}.toml").corpus
    ((fetched, out),) = re.findall(r"mtdata get -l eng-(\w+) -o (\S+)", command)
    assert fetched == NAMES[language]
    trained = [f"{out}/train-parts/{name}.{LANGUAGE}" for name in ids_of(command, "-tr")]
    held_out = [f"{out}/tests/{name}.{LANGUAGE}" for name in ids_of(command, "-dv", "-ts")]
    echoed = [
        re.sub(rf"\.(en|{language})$", f".{LANGUAGE}", file) for file in re.findall(r"> (\S+)", command)
    ]
    assert list(corpus.train) == trained
    assert [corpus.dev, corpus.test] == held_out + list(dict.fromkeys(echoed))
    for iso, own in (("eng", "en"), (NAMES[language], language)):  # mtdata's names of languages
        assert f"for f in {out}/*/*.{iso}; do ln -s $(basename $f) ${{f%{iso}}}{own}; done" in command


@pytest.mark.skipif(not MTDATA.exists(), reason="mtdata is not installed; 'make mtdata' installs it")
def test_mtdata_knows_every_id(tmp_path: Path) -> None:
    """Its index comes with the package; it is built in a directory of its own, without the network."""
    ids = {
        name: ["eng", iso]
        for language, iso in NAMES.items()
        for name in ids_of(command_of(language), "-tr", "-dv", "-ts")
    }
    assert len(ids) == 9 + 8
    wrong = {"Statmt-europarl-7-deu-fra": ["deu", "fra"], "Statmt-europarl-7-ron-eng ": ["eng", "fin"]}
    done = subprocess.run(
        [MTDATA, "-c", IN_INDEX],
        input=json.dumps(ids | wrong),
        env=os.environ | {"MTDATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == dict.fromkeys(ids, True) | dict.fromkeys(wrong, False)


@pytest.mark.parametrize("name", sorted(path.stem for path in PAPER.glob("*-*.toml")))
def test_a_dry_run_says_what_is_missing(name: str, dpe: Dpe, tmp_path: Path) -> None:
    recipe = read_recipe(PAPER / f"{name}.toml")
    _, said = dpe("run", str(PAPER / f"{name}.toml"), "--dry-run", "--set", f"data={tmp_path}", code=2)
    files = [*recipe.corpus.train, recipe.corpus.dev, recipe.corpus.test]
    for language in (recipe.source, recipe.target):
        assert all(str(tmp_path / file.replace(LANGUAGE, language)) in said for file in files)
    assert f"{2 * len(files)} of {2 * len(files)} files are missing" in said


def test_the_loops_give_the_files_the_names_that_the_recipe_reads(tmp_path: Path) -> None:
    """Run on empty files named as mtdata names them."""
    recipe = read_recipe(PAPER / "en-ro.toml")
    files = [*recipe.corpus.train, recipe.corpus.dev, recipe.corpus.test]
    for file in files:
        for iso in ("eng", "ron"):
            path = tmp_path / file.replace(LANGUAGE, iso)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{iso}\n")
    loops = [line for line in command_of("ro").splitlines() if line.startswith("for ")]
    subprocess.run(["sh", "-c", "\n".join(loops)], cwd=tmp_path, check=True)
    for file in files:
        for iso, language in (("eng", "en"), ("ron", "ro")):
            assert (tmp_path / file.replace(LANGUAGE, language)).read_text() == f"{iso}\n"
