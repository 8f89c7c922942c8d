"""The distributions: built from a checkout, installed elsewhere, everything that they need is in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from dpe import __version__

pytest.importorskip("build", reason="needs build, of the development tools: pip install -e '.[dev]'")

ROOT = Path(__file__).parents[1]
NEEDED = ("pyproject.toml", "README.md", "LICENSE")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def ran(*command: str | Path, where: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=where, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the source distribution, and the wheel that was built from it; without a network."""
    directory = tmp_path_factory.mktemp("build")
    source = directory / "source"
    shutil.copytree(ROOT / "dpe", source / "dpe", ignore=shutil.ignore_patterns("__pycache__"))
    for name in NEEDED:
        shutil.copy(ROOT / name, source)
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", directory, source, where=directory)
    return directory


@pytest.fixture(scope="module")
def installed(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own with the wheel; the packages that it depends on are those of this one."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    (wheel,) = distributions.glob("*.whl")
    options = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    ran(sys.executable, "-m", "pip", "--python", python, *options, wheel, where=environment)
    packages = Path(
        ran(python, "-c", "import site; print(site.getsitepackages()[0])", where=environment).strip()
    )
    # Of directories that are named in such a file, Python reads no such file: an editable dpe is not found.
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in ours))
    return environment


def test_the_distribution_has_a_name_of_its_own(distributions: Path) -> None:
    names = sorted(path.name for path in distributions.iterdir() if path.is_file())
    stem = f"subword_dpe-{__version__}"
    assert names == [f"{stem}-py3-none-any.whl", f"{stem}.tar.gz"]
    with tarfile.open(distributions / f"{stem}.tar.gz") as archive:
        metadata = archive.extractfile(f"{stem}/PKG-INFO")
        assert metadata is not None
        text = metadata.read().decode()
    assert f"Name: subword-dpe\nVersion: {__version__}\n" in text
    assert "Provides-Extra: explore\n" in text


def test_every_file_of_the_package_is_installed(installed: Path) -> None:
    (package,) = installed.glob("lib/python*/site-packages/dpe")
    there = {path.relative_to(package) for path in package.rglob("*") if "__pycache__" not in path.parts}
    here = {path.relative_to(ROOT / "dpe") for path in (ROOT / "dpe").rglob("*")}
    assert there == {path for path in here if "__pycache__" not in path.parts}


def test_it_works_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    dpe, python = installed / "bin" / "dpe", installed / "bin" / "python"
    assert ran(dpe, "--version", where=tmp_path) == f"dpe {__version__}\n"
    assert "cut-pairs" in ran(dpe, "--help", where=tmp_path)
    place = ran(python, "-c", "import dpe; print(dpe.SEGMENTER_PRESETS and dpe.__file__)", where=tmp_path)
    assert Path(place).is_relative_to(installed)
    ran(dpe, "-q", "demo-corpus", "--out", "corpus", "--pairs", "300", where=tmp_path)
    sides = ["--source", "corpus/train.en", "--target", "corpus/train.fi"]
    ran(dpe, "-q", "vocab", *sides, "--size", "300", "--out", "vocab.model", where=tmp_path)
    vocabulary = ["-q", "--vocab", "vocab.model"]
    ran(dpe, "encode", *vocabulary, "corpus/test.fi", "--out", "test.pieces", where=tmp_path)
    text = (tmp_path / "corpus" / "test.fi").read_text(encoding="utf-8")
    assert ran(dpe, "decode", *vocabulary, "test.pieces", where=tmp_path) == text
