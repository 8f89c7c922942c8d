"""Recipes from TOML files: `extends` another one, `--set` on top, and every mistake is one sentence."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpe.errors import UserError
from dpe.experiment.recipe import Recipe
from dpe.experiment.systems import SYSTEMS, System

EXTENDS = "extends"
_WORDS = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
_Fields = TypeVar("_Fields")


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a file, with `key=value` overrides on top; `key` may be dotted, and `key=` unsets it."""
    table = _read_chain(path, ())
    for override in overrides:
        given = _parse_override(override)
        _check(Recipe, given, f"--set {override}")
        table = _merge_recipes(table, given)
    return _build(Recipe, table, str(path))


def recipe_from_json(table: Mapping[str, Any], label: str) -> Recipe:
    """What `recipe_json` described; what it does not say has its default, as in a recipe of an older run."""
    return _build(Recipe, _without_nothing(table), label)


def _without_nothing(value: Any) -> Any:
    """JSON without its nulls, which TOML does not have and which stand for settings that were left out."""
    if isinstance(value, Mapping):
        return {key: _without_nothing(one) for key, one in value.items() if one is not None}
    return [_without_nothing(one) for one in value] if isinstance(value, list) else value


def nearest(name: str, valid: Iterable[str], *, prefix: str = "") -> str:
    """What a user who wrote `name` may have meant, as the end of a sentence; shown with its prefix."""
    valid = list(valid)
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    if close:
        return f"did you mean {prefix + close[0]!r}?"
    return f"choose one of {', '.join(prefix + one for one in valid)}."


def _read_chain(path: Path, trail: tuple[Path, ...]) -> dict[str, Any]:
    """The table of a file on top of those that it extends, each checked under its own name."""
    if path.resolve() in trail:
        raise UserError(f"{path}: extends itself; remove one of the {EXTENDS!r} lines.")
    table = _read_table(path)
    base = table.pop(EXTENDS, None)
    _check(Recipe, table, str(path))
    if base is None:
        return table
    if not isinstance(base, str):
        raise UserError(f"{path}: {EXTENDS!r} must be the name of one file.")
    return _merge_recipes(_read_chain(path.parent / base, (*trail, path.resolve())), table)


def _read_table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read as a recipe: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not valid TOML: {error}.") from error


def _parse_override(override: str) -> dict[str, Any]:
    """`a.b=3` -> `{"a": {"b": 3}}`, `a.b=` -> `{"a": {"b": None}}`. What is no TOML is text, as a path is."""
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise UserError(f"--set {override}: must be key=value, as in --set vocabulary.size=8000.")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"] if text else None
    except tomllib.TOMLDecodeError:
        value = text
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def _merge_recipes(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One recipe on top of another; files of a corpus replace the built-in one, and it replaces them."""
    corpus, kinds = above.get("corpus", {}), (("builtin_pairs",), ("train", "dev", "test"))
    for kind, other in (kinds, kinds[::-1]):
        if any(corpus.get(key) for key in kind):
            inherited = {key: value for key, value in below.get("corpus", {}).items() if key not in other}
            return _merge({**below, "corpus": inherited}, above)
    return _merge(below, above)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are joined key by key; any other value replaces the one below, and None takes it away."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.pop(key, None)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(old, value)
        elif value is not None:
            merged[key] = value
    return merged


def _check(cls: type[Any], table: Mapping[str, Any], label: str, prefix: str = "") -> dict[str, Any]:
    """The values of a table as its fields want them; keys and types must be right, but may be missing."""
    hints = get_type_hints(cls)
    for key in table:
        if key not in hints:
            meant = nearest(key, hints, prefix=prefix)
            raise UserError(f"{label}: there is no setting {prefix + key!r}; {meant}")
    return {
        key: None if value is None else _convert(hints[key], value, label, prefix + key)
        for key, value in table.items()  # None, of --set, takes a setting away
    }


def _convert(hint: Any, value: Any, label: str, key: str) -> Any:
    """A TOML value as the type of a field; a table stays a mapping of converted values."""
    if get_origin(hint) in (Union, UnionType):  # X | None; TOML has no None, so a value is an X
        (hint,) = [option for option in get_args(hint) if option is not NoneType]
    if hint is System:
        return _system(value, label, key)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return _check(hint, value, label, f"{key}.")
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        item = get_args(hint)[0]
        return tuple(_convert(item, one, label, key) for one in value)
    if get_origin(hint) is Literal and value in get_args(hint):
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint:
        return value
    raise UserError(f"{label}: {key} must be {_describe(hint)}, and is {value!r}.")


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        return f"a list, each of it {_describe(get_args(hint)[0])}"
    return "a name or a table" if hint is System else _WORDS.get(hint, "a table")


def _system(value: Any, label: str, key: str) -> System:
    """A system by name, or as a table of its fields."""
    if isinstance(value, System):
        return value
    if isinstance(value, Mapping):
        return _build(System, value, label, f"{key}.")
    if isinstance(value, str) and value in SYSTEMS:
        return SYSTEMS[value]
    raise UserError(f"{label}: there is no system {value!r}; {nearest(str(value), SYSTEMS)}")


def _build(cls: type[_Fields], table: Mapping[str, Any], label: str, prefix: str = "") -> _Fields:
    """A dataclass from a table; what has no default must be there, and what the class refuses is named."""
    values = _check(cls, table, label, prefix)
    hints = get_type_hints(cls)
    for one in dataclasses.fields(cls):  # type: ignore[arg-type]  # every caller gives a dataclass
        required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        if required and one.name not in values:
            raise UserError(f"{label}: the setting {prefix + one.name!r} is missing.")
        if one.name in values and isinstance(values[one.name], dict):
            values[one.name] = _build(hints[one.name], table[one.name], label, f"{prefix}{one.name}.")
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(f"{label}: {error}") from error
