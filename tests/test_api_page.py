"""docs/api.md has every public name, and its examples print what it shows."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

import dpe

PAGE = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
NUMBER = r"\d+\.\d+"
TOLERANCE = 0.05  # of what a network computes, which differs a little between machines


@pytest.mark.parametrize("name", dpe.__all__)
def test_every_public_name_has_a_row_and_an_example(name: str) -> None:
    table, *sections = PAGE.split("\n## ")
    assert f"[`{name}`](#" in table
    assert any(f"`{name}`" in section or f"dpe.{name}" in section for section in sections)


def test_the_examples_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    printed, threads = "", torch.get_num_threads()
    try:
        for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
            if language == "python":
                assert not printed, f"output that the page does not show: {printed}"
                with redirect_stdout(io.StringIO()) as output:
                    exec(block, names)
                printed = output.getvalue()
            else:
                assert_alike(printed, block)
                printed = ""
    finally:
        torch.set_num_threads(threads)


def assert_alike(printed: str, shown: str) -> None:
    """Words are the same; numbers with a decimal point may differ a little."""
    assert re.sub(NUMBER, "#", printed) == re.sub(NUMBER, "#", shown), printed
    for one, other in zip(re.findall(NUMBER, printed), re.findall(NUMBER, shown), strict=True):
        assert float(one) == pytest.approx(float(other), abs=TOLERANCE), printed
