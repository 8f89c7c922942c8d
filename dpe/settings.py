"""How two nested mappings of settings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` -> `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def differing(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Every flat key whose values are not the same, with both, in the order of the keys; absent is None."""
    flat_there, flat_wanted = flatten(there), flatten(wanted)
    for key in sorted(flat_there.keys() | flat_wanted.keys()):
        old, new = flat_there.get(key), flat_wanted.get(key)
        if old != new:
            yield key, old, new


def first_difference(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """In words, the first setting that two nested mappings do not share; None if there is none."""
    for key, old, new in differing(there, wanted):
        is_hash = isinstance(old, str) and isinstance(new, str) and len(old) == len(new) == 64
        return f"another {key}" if is_hash else f"{key} is {old} there and {new} now"
    return None
