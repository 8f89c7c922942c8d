"""Settings: dataclasses whose fields carry their help text and range.

A setting is one line, `epochs: int = setting(8, "Passes over the text.", low=1)`. The command line, `--set`,
recipes and `settings.json` all read it from there. Fields that have their default are left out of whatever is
stored, hashed or compared, so a new field with a default makes nothing stale. For the same reason the default
of a field never changes; presets may.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dpe.errors import UserError

_KINDS = {int: "a whole number", float: "a number", str: "text in quotes", bool: "true or false"}
_BOUNDS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "low": (operator.ge, "at least"),
    "high": (operator.le, "at most"),
    "above": (operator.gt, "more than"),
    "below": (operator.lt, "less than"),
}
_Class = TypeVar("_Class")


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with a help text and a range: at least `low`, more than `above`, and so on."""
    bounds = {"low": low, "high": high, "above": above, "below": below}
    return dataclasses.field(default=default, metadata={"help": help, **bounds})


class Settings:
    """Base class of settings: checks the ranges of its fields."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            for kind, (holds, words) in _BOUNDS.items():
                bound = field.metadata.get(kind)
                if None not in (value, bound) and not holds(value, bound):  # NaN is within no bounds
                    raise UserError(f"{field.name} is {value}; it must be {words} {bound}.")


def changed(settings: Any) -> dict[str, Any]:
    """The fields that do not have their default, as JSON; tables without any are left out as well."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            value = changed(value)
        if value not in (field.default, {}):
            found[field.name] = json.loads(json.dumps(value, default=lambda one: one.to_value()))
    return found


def build(cls: type[_Class], table: Mapping[str, Any], label: str, prefix: str = "") -> _Class:
    """A dataclass from a table; what the table lacks has its default. `label` names the table in errors."""
    values = checked(cls, table, label, prefix)
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # every caller gives a dataclass
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise UserError(f"{label}: the setting {prefix + field.name!r} is missing.")
        if dataclasses.is_dataclass(hints[field.name]) and isinstance(values.get(field.name), dict):
            values[field.name] = build(hints[field.name], table[field.name], label, f"{prefix}{field.name}.")
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(f"{label}: {error}") from error


def checked(cls: type[Any], table: Mapping[str, Any], label: str, prefix: str = "") -> dict[str, Any]:
    """The values of a table as the fields of `cls` want them; keys and types must be right, keys may lack."""
    hints = get_type_hints(cls)
    for key in table:
        if key not in hints:
            meant = nearest(key, hints, prefix=prefix)
            raise UserError(f"{label}: there is no setting {prefix + key!r}; {meant}")
    return {
        key: None if value is None else _converted(hints[key], value, label, prefix + key)
        for key, value in table.items()  # None, from `--set KEY=`, unsets a setting
    }


def _converted(hint: Any, value: Any, label: str, key: str) -> Any:
    """A TOML or JSON value as the type of a field; a table stays a mapping of converted values."""
    if get_origin(hint) in (Union, UnionType):  # X | None
        (hint,) = [option for option in get_args(hint) if option is not NoneType]
    if hasattr(hint, "from_value"):  # a class that has names for some of its values
        return hint.from_value(value, label, key)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return checked(hint, value, label, f"{key}.")
    if get_origin(hint) is tuple and isinstance(value, (list, tuple)):
        return tuple(_converted(get_args(hint)[0], one, label, key) for one in value)
    if get_origin(hint) is Literal and value in get_args(hint):
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is hint or (get_origin(hint) is dict and isinstance(value, Mapping)):
        return value
    raise UserError(f"{label}: {key} must be {_described(hint)}, not {value!r}.")


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(get_args(hint))}"
    if get_origin(hint) is tuple:
        return f"a list, each item {_described(get_args(hint)[0])}"
    return _KINDS.get(hint, "a table")


def nearest(name: str, valid: Iterable[str], *, prefix: str = "") -> str:
    """What a user who wrote `name` may have meant, as the end of a sentence."""
    valid = list(valid)
    if close := get_close_matches(name, valid, n=1, cutoff=0.5):
        return f"did you mean {prefix + close[0]!r}?"
    return f"choose one of {', '.join(prefix + one for one in valid)}."


def parse_override(override: str) -> dict[str, Any]:
    """`a.b=3` -> `{"a": {"b": 3}}`, `a.b=` -> `{"a": {"b": None}}`. A value that is not TOML is text."""
    key, equals, text = override.partition("=")
    if not equals or not all(key.split(".")):
        raise UserError(f"--set {override}: must be KEY=VALUE, as in --set seed=3.")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"] if text else None
    except tomllib.TOMLDecodeError:
        value = text
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return dict(value)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; any other value replaces the one below, and None removes it."""
    result = dict(below)
    for key, value in above.items():
        old = result.pop(key, None)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        elif value is not None:
            result[key] = value
    return result


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return flat


def differing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Every flat key whose values differ, with both values, in the order of the keys; absent is None."""
    flat_there, flat_wanted = flatten(there), flatten(wanted)
    for key in sorted(flat_there.keys() | flat_wanted.keys()):
        old, new = flat_there.get(key), flat_wanted.get(key)
        if old != new:
            yield key, old, new


def first_difference(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """In words, the first setting in which two nested mappings differ; None if they are equal."""
    for key, old, new in differing(there, wanted):
        is_hash = any(isinstance(value, str) and len(value) == 64 for value in (old, new))
        was, now = ("the default" if value is None else value for value in (old, new))
        return f"another {key}" if is_hash else f"{key} is {was} there and {now} now"
    return None
