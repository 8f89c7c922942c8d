"""What a table of several runs calls each of them: as little as tells it from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpe.differences import flatten
from dpe.pipeline.results import Results
from dpe.recipe.recipe import Recipe
from dpe.recipe.writing import recipe_json

_NOT_TELLING = ("name", "about", "systems", "seeds", "cut", "examples")  # what is run and shown, not how


def labels(runs: Sequence[Results]) -> list[str]:
    """The pair; of runs of one pair also the recipe's name, the settings that differ, or else a number."""
    recipes = [run.recipe for run in runs]
    words = [[recipe.pair] for recipe in recipes]
    for describe in (_names, _settings, _numbers):
        for alike in _groups(words):
            described = describe([recipes[index] for index in alike])
            if len(set(described)) > 1:
                for index, more in zip(alike, described, strict=True):
                    words[index].append(more)
    return [_label(pair, [word for word in more if word]) for pair, *more in words]


def _label(pair: str, more: Sequence[str]) -> str:
    return f"{pair} ({', '.join(more)})" if more else pair


def _groups(words: Sequence[Sequence[str]]) -> list[list[int]]:
    """The indices of those that have the same words."""
    found: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(words):
        found.setdefault(tuple(one), []).append(index)
    return list(found.values())


def _names(recipes: Sequence[Recipe]) -> list[str]:
    return [recipe.name for recipe in recipes]


def _settings(recipes: Sequence[Recipe]) -> list[str]:
    """Those that are not the same in all, as `--set` takes them; what is left to the preset is not said."""
    tables = [_telling(recipe) for recipe in recipes]
    differ = [key for key in tables[0] if any(table.get(key) != tables[0][key] for table in tables)]
    return [
        ", ".join(f"{key}={table[key]}" for key in differ if table.get(key) is not None) for table in tables
    ]


def _telling(recipe: Recipe) -> dict[str, Any]:
    """The settings that may tell two runs apart, nested keys as `translator.steps`."""
    flat = flatten(recipe_json(recipe))
    return {key: value for key, value in flat.items() if key.rpartition(".")[2] not in _NOT_TELLING}


def _numbers(recipes: Sequence[Recipe]) -> list[str]:
    return [f"run {number}" for number in range(1, len(recipes) + 1)]
