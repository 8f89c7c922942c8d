"""Disagreements counted by hand and by brute force."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from dpe.errors import UserError
from dpe.evaluation.comparison import (
    PairCounts,
    band_label,
    compare,
    compare_files,
    comparison_figures,
    comparison_tables,
)
from dpe.evaluation.plots import save_figures
from dpe.evaluation.segmented_text import CutWord, words_with_cuts


def cut_words(line: str) -> list[CutWord]:
    return list(words_with_cuts(line.split()))


def pairs(a: list[str], b: list[str]) -> list[tuple[list[CutWord], list[CutWord]]]:
    return [(cut_words(left), cut_words(right)) for left, right in zip(a, b, strict=True)]


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


A = ["▁the ▁car ts ▁of ▁the ▁f illed", "▁car ts ▁car t s", "▁f illed ▁dog s .", "▁dog s"]
B = ["▁the ▁cart s ▁of ▁the ▁fill ed", "▁cart s ▁cart s", "▁f illed ▁dog s .", "▁dog s"]


def test_a_small_text_by_hand() -> None:
    found = compare(PairCounts(pairs(A, B)))
    (carts,) = found.top
    assert (carts.word, carts.a, carts.b) == ("carts", "car+ts", "cart+s")
    assert (carts.frequency, carts.tokens, carts.different_tokens) == (3, 3, 3)
    # filled: f+illed twice on one side; fill+ed and f+illed once each on the other, a tie, which
    # goes to the earlier cut, so the type agrees while one token does not.
    assert (found.types, found.different_types) == (5, 1)
    assert (found.tokens, found.different_tokens) == (10, 4)
    assert found.pieces_per_word_a == pytest.approx((3 + 2 + 2 + 3 + 2 * 2 + 2 * 2) / 10)
    assert found.pieces_per_word_b == pytest.approx((3 + 3 * 2 + 2 * 2 + 2 * 2) / 10)
    assert [(band.label, band.types, band.tokens) for band in found.bands] == [
        ("1", 1, 1), ("2", 3, 6), ("3-5", 1, 3),
    ]  # fmt: skip
    assert [band.token_share for band in found.bands] == pytest.approx([0, 1 / 6, 1])
    assert [band.type_share for band in found.bands] == pytest.approx([0, 0, 1])


def test_training_counts_set_frequency_and_order() -> None:
    a = ["▁aa ▁b b ▁cc ▁cc"]
    b = ["▁a a ▁bb ▁c c ▁c c"]
    assert [one.word for one in compare(PairCounts(pairs(a, b))).top] == ["cc", "aa", "bb"]
    found = compare(PairCounts(pairs(a, b)), train_counts={"bb": 500, "aa": 2}, top=2)
    assert [(one.word, one.frequency) for one in found.top] == [("bb", 500), ("aa", 2)]
    assert [band.label for band in found.bands] == ["0", "2", "over 100"]


def random_text(rng: random.Random) -> tuple[list[str], list[str]]:
    """One text cut at random twice, with few words so that they repeat."""
    words = ["talo", "talossa", "kissa", "on", "kissat"]
    sides: tuple[list[str], list[str]] = ([], [])
    for _ in range(30):
        line = rng.choices(words, weights=[1, 2, 4, 8, 16], k=4)
        for side in sides:
            side.append(" ".join("▁" + "".join(c + " " * (rng.random() < 0.2) for c in w) for w in line))
    return sides


@pytest.mark.parametrize("seed", range(5))
def test_shares_equal_a_recount_over_tokens(seed: int) -> None:
    a, b = random_text(random.Random(seed))
    tokens = [pair for line in pairs(a, b) for pair in zip(*line, strict=True)]
    found = compare(PairCounts(pairs(a, b)), top=1000)
    counts = Counter(left.word for left, _ in tokens)
    assert found.different_tokens == sum(left != right for left, right in tokens)
    assert found.types == len(counts)
    for band in found.bands:
        members = [(left, right) for left, right in tokens if band_label(counts[left.word]) == band.label]
        assert band.tokens == len(members)
        assert band.different_tokens == sum(left != right for left, right in members)
    for one in found.top:
        ways = Counter(str(right) for left, right in tokens if left.word == one.word)
        assert ways[one.b] == max(ways.values())
        assert one.a != one.b
    assert found.different_types == len(found.top) == sum(band.different_types for band in found.bands)


@pytest.mark.parametrize(
    ("frequency", "label"),
    [(0, "0"), (1, "1"), (2, "2"), (3, "3-5"), (5, "3-5"), (6, "6-10"), (10, "6-10"), (11, "11-20"),
     (20, "11-20"), (21, "21-100"), (100, "21-100"), (101, "over 100"), (10**9, "over 100")],
)  # fmt: skip
def test_bands(frequency: int, label: str) -> None:
    assert band_label(frequency) == label


def test_files_become_tables_and_figures(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.pieces", *A), write(tmp_path / "b.pieces", *B)
    source = write(tmp_path / "source", "die Karren", "Karren", "gefüllt", "Hunde")
    result = compare_files(a, b, source=source, train_counts=a)
    top, bands, numbers, ways_a, ways_b = comparison_tables(result)
    assert top.rows == [["3", "carts", "car+ts", "cart+s"]]
    assert top.columns == ["frequency", "word", "a.pieces", "b.pieces"]
    assert [row[0] for row in bands.rows] == ["1", "2", "3-5"]
    assert ["lines", "4", "4"] in numbers.rows
    assert ways_a.rows[0][:3] == ["carts", "car+ts", "2"]
    assert ways_b.rows[0][:2] == ["filled", "f+illed"]
    pictures = save_figures(comparison_figures(result), tmp_path / "out")
    assert sorted(path.name for path in pictures) == sorted(
        f"{name}.{suffix}"
        for name in ("disagreement", "piece-lengths", "line-lengths")
        for suffix in ("png", "svg")
    )
    assert all(path.stat().st_size > 1000 for path in pictures)


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    a = write(tmp_path / "a", *A)
    with pytest.raises(UserError, match="source ends after 1 lines"):
        compare_files(a, a, source=write(tmp_path / "source", "one"))
    with pytest.raises(UserError, match="has no words"):
        compare_files(*[write(tmp_path / "empty")] * 2)
