"""How two nested mappings of settings differ, in words."""

from __future__ import annotations

from dpe.settings import differing, first_difference, flatten


def test_nested_keys_are_joined_by_dots() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": None}}, "e": [2]}) == {"a.b": 1, "a.c.d": None, "e": [2]}


def test_differing_keys_come_in_order_with_both_values() -> None:
    there, wanted = {"b": 1, "a": {"x": 1, "y": 2}, "c": 3}, {"b": 2, "a": {"x": 1}, "c": 3}
    assert list(differing(there, wanted)) == [("a.y", 2, None), ("b", 1, 2)]
    assert list(differing(there, there)) == []


def test_the_first_difference_in_words() -> None:
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 2}}) == "a.b is 1 there and 2 now"
    assert first_difference({"a": "0" * 64}, {"a": "1" * 64}) == "another a"  # a hash tells nobody anything
    assert first_difference({"a": 1}, {"a": 1}) is None
