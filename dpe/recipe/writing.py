"""A recipe as a file: the settings of a run, written so that `dpe run` reads them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dpe.recipe.systems import SYSTEMS


def recipe_toml(recipe: Mapping[str, Any]) -> str:
    """A recipe as a file that `dpe run` reads; what was left to the preset is left out."""
    known = {name: asdict(system) for name, system in SYSTEMS.items()}
    systems = [one["name"] if one == known.get(one["name"]) else one for one in recipe["systems"]]
    plain = {key: value for key, value in recipe.items() if not isinstance(value, Mapping)}
    tables = {key: value for key, value in recipe.items() if isinstance(value, Mapping)}
    lines = _toml_lines(plain | {"systems": systems})
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_toml_lines(table)]
    return "\n".join(lines)


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items() if value not in (None, "")]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_toml_lines(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # text, numbers and truth are written alike in TOML
