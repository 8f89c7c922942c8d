"""Words and cuts in both formats, against a slow definition, and mistakes as sentences."""

from __future__ import annotations

import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.evaluation.segmented_text import (
    CutWord,
    count_words,
    detect_format,
    read_pieces,
    read_two_segmentations,
    words_with_cuts,
)

CHARACTERS = "abäçß'-.1 中\u0301\u3000▁"  # with a combining mark and a wide blank, which is text


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def read_cut_words(path: Path) -> list[list[CutWord]]:
    return [list(words_with_cuts(pieces)) for pieces in read_pieces(path)]


def slow_words(pieces: list[str]) -> list[tuple[str, frozenset[int]]]:
    """The definition, character by character: a boundary counts if letters or marks are on both sides."""
    text = "".join(pieces)
    boundaries = {len("".join(pieces[:number])) for number in range(len(pieces) + 1)}
    words: list[tuple[str, frozenset[int]]] = []
    word, cuts = "", frozenset[int]()
    for at, character in enumerate([*text, " "]):
        if unicodedata.category(character).startswith(("L", "M")):
            cuts = cuts | {len(word)} if word and at in boundaries else cuts
            word += character
        elif word:
            words.append((word, cuts))
            word, cuts = "", frozenset[int]()
    return words


@given(st.lists(st.text(CHARACTERS, min_size=1, max_size=4), max_size=8))
def test_words_and_cuts_are_those_of_the_definition(pieces: list[str]) -> None:
    assert list(words_with_cuts(pieces)) == slow_words(pieces)


def test_ends_lone_markers_and_punctuation_do_not_count() -> None:
    line = "▁ cart s ▁( un do n ' t ) ▁3 5 ▁na i\u0308ve ."
    found = list(words_with_cuts(line.split()))
    assert [str(word) for word in found] == ["cart+s", "un+do+n", "t", "na+i\u0308ve"]
    assert found[0] == CutWord("carts", frozenset({4}))


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", "▁cart s ▁of ▁un do .", "", "▁a")
    theirs = write(tmp_path / "theirs", "cart@@ s of un@@ do@@ .", "", "a")
    assert (detect_format(ours), detect_format(theirs)) == ("pieces", "subword-nmt")
    assert read_cut_words(ours) == read_cut_words(theirs)
    assert list(read_pieces(ours)) == list(read_pieces(theirs))
    assert len(list(read_two_segmentations(ours, theirs))) == 3


def test_a_first_piece_without_marker_begins_a_word(tmp_path: Path) -> None:
    path = write(tmp_path / "file", "cart s ▁of")
    assert list(read_pieces(path)) == [["▁cart", "s", "▁of"]]


@pytest.mark.parametrize(
    ("lines", "format"),
    [
        (["the cart@@ s", "▁ of", "un@@ do"], "subword-nmt"),
        (["carts of stone", "a ▁ b", "undo it"], "subword-nmt"),
        (["▁cart s", ") ▁of", "( x )", "▁a"], "pieces"),
        (["cart s ▁of", "cart s", "a ▁cart", "", "", ""], "pieces"),  # a first word without its marker
        (["", "▁a"], "pieces"),
        (["", ""], "subword-nmt"),
    ],
)
def test_most_lines_tell_the_format(tmp_path: Path, lines: list[str], format: str) -> None:
    assert detect_format(write(tmp_path / "file", *lines)) == format


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (['{"pieces": ["▁a"], "score": -1.0}', '{"pieces": []}'], "format is jsonl"),
        (["▁a b\t▁ab", "▁a\t▁ a"], "several segmentations"),
    ],
)
def test_what_is_no_segmentation_of_a_text_is_refused(tmp_path: Path, lines: list[str], says: str) -> None:
    (tmp_path / "text").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=says):
        read_cut_words(tmp_path / "text")


def test_a_stray_marker_changes_no_other_line(tmp_path: Path) -> None:
    lines = ["the cart@@ s"] * 5
    stray = read_cut_words(write(tmp_path / "stray", "a▁b ▁ c", *lines))
    assert stray[0] == [(word, frozenset()) for word in "abc"]
    assert stray[1:] == read_cut_words(write(tmp_path / "clean", *lines))


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "file", "a b@@ c")
    assert list(read_pieces(path, "pieces")) == [["▁a", "b@@", "c"]]
    assert list(read_pieces(path)) == [["▁a", "▁b", "c"]]


@pytest.mark.parametrize(
    "lines", [["▁cart s", "▁cart ▁cart s"], ["cart@@ s", "cart cart@@ s"], ["carts", "cart carts"]]
)
def test_counts_come_from_any_text(tmp_path: Path, lines: list[str]) -> None:
    assert count_words(write(tmp_path / "text", *lines)) == Counter(carts=2, cart=1)


def test_counts_come_from_a_list_too(tmp_path: Path) -> None:
    assert count_words(write(tmp_path / "list", "carts\t2", "cart\t1")) == Counter(carts=2, cart=1)
    with pytest.raises(UserError, match="line 2: Expected a word, a tab and a count"):
        count_words(write(tmp_path / "bad", "carts\t2", "cart"))


def test_different_texts_are_refused_by_line(tmp_path: Path) -> None:
    a = write(tmp_path / "a", "▁same", "▁cart s ▁x")
    with pytest.raises(UserError, match=r"Line 2 of .*'carts' against 'card'"):
        list(read_two_segmentations(a, write(tmp_path / "b", "▁sa me", "▁card ▁x")))
    with pytest.raises(UserError, match="c ends after 1 lines"):
        list(read_two_segmentations(a, write(tmp_path / "c", "▁sa me")))
    with pytest.raises(UserError, match="absent"):
        list(read_two_segmentations(a, tmp_path / "absent"))
