"""A recipe as text: TOML that `dpe run` reads, and the JSON of a run and of its results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dpe.experiment.recipe import Recipe
from dpe.experiment.systems import SYSTEMS


def recipe_json(recipe: Recipe) -> dict[str, Any]:
    """All settings but the place of the files, which says nothing about the results."""
    return {key: value for key, value in asdict(recipe).items() if key != "data"}


def recipe_toml(recipe: Recipe) -> str:
    """A recipe as a file that `dpe run` reads; what was left to the preset is left out."""
    systems = [one.name if one == SYSTEMS.get(one.name) else asdict(one) for one in recipe.systems]
    described = recipe_json(recipe) | {"systems": systems}
    tables = {key: value for key, value in described.items() if isinstance(value, Mapping)}
    lines = _toml_lines({key: value for key, value in described.items() if key not in tables})
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_toml_lines(table)]
    return "\n".join(lines)


def _toml_lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in table.items() if value not in (None, "")]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(_toml_lines(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)  # text, numbers and truth are written alike in TOML
