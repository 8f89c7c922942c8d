"""Typing errors: what may change and what may not, by enumerating all words that one edit can make."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpe.evaluation.noise import add_noise
from tests.segment_command import Dpe

rates = st.floats(0, 1)
texts = st.lists(st.text(st.sampled_from("abcäÄß é\u0301\u0301.,:12\u2581-\u200b漢")), max_size=4)


def noisy(line: str, *, rate: float, seed: int = 1, number: int = 0) -> str:
    return list(add_noise([""] * number + [line], rate=rate, seed=seed))[number]


def words(line: str) -> list[str]:
    return re.findall(r"[^\W\d_][^\W\d_\u0301]*", line.replace("\u0301", ""))


def between(line: str) -> str:
    """All that is not a word, with a mark for each word."""
    kinds = ["L" if unicodedata.category(one)[0] in "LM" else one for one in line]
    return re.sub("L+", "L", "".join(kinds))


@given(texts, rates, st.integers(0, 99))
def test_lines_words_and_what_is_between_them_stay(lines: list[str], rate: float, seed: int) -> None:
    found = list(add_noise(lines, rate=rate, seed=seed))
    assert len(found) == len(lines)
    for line, noised in zip(lines, found, strict=True):
        assert between(noised) == between(line)
        assert set(noised) <= set(line)


@given(texts)
def test_no_rate_is_no_noise(lines: list[str]) -> None:
    assert list(add_noise(lines, rate=0, seed=5)) == lines


@given(texts, rates, st.integers(-5, 99))
def test_a_line_depends_on_the_rate_the_seed_and_its_number(lines: list[str], rate: float, seed: int) -> None:
    found = list(add_noise(lines, rate=rate, seed=seed))
    for number, line in enumerate(lines):
        assert noisy(line, rate=rate, seed=seed, number=number) == found[number]


def test_seeds_and_lines_differ() -> None:
    line = "the quick brown fox jumps over the lazy dog"
    found = {noisy(line, rate=0.3, seed=seed, number=number) for seed in range(5) for number in range(5)}
    assert len(found) == 25


def one_edit(word: str, alphabet: str) -> dict[str, set[str]]:
    """Every word that one edit makes, by the kind of edit."""
    places = range(len(word))
    return {
        "swap": {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places[:-1]},
        "drop": {word[:i] + word[i + 1 :] for i in places},
        "insert": {word[: i + 1] + new + word[i + 1 :] for i in places for new in alphabet},
        "replace": {word[:i] + new + word[i + 1 :] for i in places for new in alphabet},
    }


def test_one_edit_makes_every_word_that_it_may_and_no_other() -> None:
    word = "abcd"
    wanted = set().union(*one_edit(word, word).values()) - {word}
    found = Counter(noisy(word, rate=0.04, seed=seed) for seed in range(20_000))
    few = {edited for edited, count in found.items() if edited != word and count < 8}  # two edits in a word
    assert set(found) - few == wanted | {word}
    assert sum(found[one] for one in few) < 0.01 * found.total()


def test_the_four_edits_are_equally_frequent_and_as_frequent_as_asked() -> None:
    kinds: Counter[str] = Counter()
    line, alphabet = " ".join(["abcdef"] * 20_000), "abcdef"
    edits = {kind: made - {alphabet} for kind, made in one_edit(alphabet, alphabet).items()}
    for word in noisy(line, rate=0.02).split():
        kinds.update(kind for kind, made in edits.items() if word in made)
    letters = 20_000 * 6
    # the last letter of a word cannot be swapped with the next: 5/6 of the swaps, more of the others
    share = (5 / 4 + 1 / 3) / 6
    for kind, expected in {"swap": 5 / 24, "drop": share, "insert": share, "replace": share}.items():
        alone = 0.98**5  # the only edit of its word
        assert kinds[kind] == pytest.approx(0.02 * letters * expected * alone, rel=0.12), kind


@pytest.mark.parametrize("line", ["a", "", "a a a", "1 2", "aaa", "é\u0301\u0301 x"])
def test_lines_with_few_letters_bear_every_edit(line: str) -> None:
    for seed in range(50):
        assert between(noisy(line, rate=1, seed=seed)) == between(line)


def test_marks_stay_with_their_letters() -> None:
    """As long as the first letter has none, no mark stands first in a word."""
    line = "ne\u0301ve a\u0308a\u0308ni"
    pairs = {"e\u0301", "a\u0308"}
    for seed in range(200):
        noised = noisy(line, rate=0.5, seed=seed)
        for found in re.finditer("[\u0301\u0308]", noised):
            assert noised[found.start() - 1 : found.end()] in pairs


def test_the_command_writes_a_line_for_each_line(dpe: Dpe, tmp_path: Path) -> None:
    text = "one two\n\nthree\r\n"
    out, _ = dpe("noise", "--rate", "0.5", "--seed", "3", stdin=text)
    assert out.split("\n") == [*add_noise(["one two", "", "three"], rate=0.5, seed=3), ""]
    (tmp_path / "x").write_text(text)
    dpe("noise", "--rate", "0.5", "--seed", "3", str(tmp_path / "x"), "--out", str(tmp_path / "y"))
    assert (tmp_path / "y").read_text() == out
    _, error = dpe("noise", "--rate", "0.5", str(tmp_path / "x"), "--out", str(tmp_path / "x"), code=2)
    assert "is also an input" in error
    dpe("noise", "--rate", "2", code=2)


def test_long_lines_take_little_time() -> None:
    for line in ("a " * 100_000, "ab" * 100_000):
        assert between(noisy(line, rate=0.05)) == between(line)
