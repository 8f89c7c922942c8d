"""Write the tables of all settings into docs/usage.md, from the settings classes and the command line.

python docs/settings_tables.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from typer.main import get_command

from dpe.cli import app
from dpe.model.settings import ModelSettings
from dpe.segmenter.settings import SEGMENTER_PRESETS
from dpe.translator.settings import TRANSLATOR_PRESETS

PAGE = Path(__file__).parent / "usage.md"
PRESETS: dict[str, Mapping[str, ModelSettings]] = {
    "train-segmenter": SEGMENTER_PRESETS,
    "train-translator": TRANSLATOR_PRESETS,
}
# Options with another name than their setting.
_OPTIONS = {"batch_characters": "batch", "batch_tokens": "batch", "no_source": "source"}


def with_tables(page: str) -> str:
    """The page with both tables, each between two comments."""
    for command in PRESETS:
        begin, end = f"<!-- settings of {command} -->", f"<!-- end of {command} -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}\n\n{table(command)}\n\n{end}{rest.split(end)[1]}"
    return page


def table(command: str) -> str:
    """All settings of a training, a row each: its option if there is one, its value in every preset, help."""
    presets = PRESETS[command]
    parameters: list[Any] = get_command(app).commands[command].params  # type: ignore[attr-defined]
    options = {_OPTIONS.get(one.name, one.name): f"`{one.opts[0]}`" for one in parameters}
    rows = [["setting", "option", *presets, "meaning"], ["---"] * (len(presets) + 3)]
    for field in fields(next(iter(presets.values()))):
        values = [_shown(getattr(preset, field.name)) for preset in presets.values()]
        rows.append([f"`{field.name}`", options.get(field.name, ""), *values, field.metadata["help"]])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(value: Any) -> str:
    """As `--set` reads it; nothing where it is unset."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
