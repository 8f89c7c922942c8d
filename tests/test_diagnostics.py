"""Entropy by band and calibration: by hand, by recount, and from files as `dpe segment` writes them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from dpe.errors import UserError
from dpe.evaluation.diagnostics import (
    PosteriorWord,
    calibrate,
    diagnose,
    diagnose_file,
    diagnostics_figures,
    diagnostics_tables,
    expected_calibration_error,
    read_posteriors,
)
from dpe.evaluation.plots import save_figures


def word(text: str, *boundaries: float, entropy: float = 0.0) -> PosteriorWord:
    return PosteriorWord(text, boundaries, entropy)


CARTS = word("▁carts.", 0.1, 0.0, 0.0, 0.4, 0.8, 1.0, 1.0, entropy=0.5)
DOG = word("▁dog", 0.0, 0.0, 0.25, 1.0, entropy=0.1)
GOLD = {"carts": frozenset({4}), "dog": frozenset[int]()}


def test_only_positions_inside_words_are_evaluated() -> None:
    assert list(CARTS.evaluated()) == [("carts", (0.0, 0.0, 0.4, 0.8))]
    assert list(word("▁a-b1", 0.5, 0.5, 0.5, 0.5, 1.0).evaluated()) == [("a", ()), ("b", ())]


def test_calibration_by_hand() -> None:
    found = diagnose([[CARTS, DOG], [DOG]], gold=GOLD)
    rows = [(part.lowest, part.positions, part.gold_share) for part in found.calibration]
    # carts: 0, 0, 0.4, and 0.8, which is the boundary; dog twice: 0 and 0.25
    assert rows == [(0.0, 4, 0), (0.2, 2, 0), (0.4, 1, 0), (0.8, 1, 1)]
    assert [part.mean_probability for part in found.calibration] == [0, 0.25, 0.4, 0.8]
    assert found.calibration_error == pytest.approx((2 * 0.25 + 0.4 + 0.2) / 8)


def test_words_outside_the_gold_do_not_count_and_case_is_forgiven() -> None:
    big = PosteriorWord("▁CARTS", (0.0, 0.0, 0.0, 0.0, 1.0, 1.0), 0.0)
    assert diagnose([[big, word("▁xy", 0.0, 0.5, 1.0)]], gold=GOLD).calibration[-1].gold_share == 1
    assert diagnose([[word("▁xy", 0.0, 0.5, 1.0)]], gold=GOLD).calibration_error is None
    assert diagnose([[CARTS]]).calibration_error is None


def test_entropy_by_frequency() -> None:
    found = diagnose([[CARTS, DOG], [DOG]])
    bands = {band.label: band for band in found.entropy}
    assert {label: band.tokens for label, band in bands.items()} == {"1": 1, "2": 2}
    assert bands["1"].mean == 0.5
    assert bands["2"].median == pytest.approx(0.1)
    trained = diagnose([[CARTS, DOG], [DOG]], train_counts={"dog": 500})
    assert [band.label for band in trained.entropy] == ["0", "over 100"]
    assert found.tokens == 3


def test_two_runs_in_a_token_have_no_entropy_of_their_own() -> None:
    assert diagnose([[word("▁a-b", 0.0, 1.0, 1.0, 1.0, entropy=0.7)]]).entropy == []


def test_truthful_probabilities_are_calibrated_and_others_are_not() -> None:
    rng = random.Random(1)
    chances = [rng.random() for _ in range(20_000)]
    truthful = [(chance, rng.random() < chance) for chance in chances]
    assert expected_calibration_error(calibrate(truthful)) < 0.02
    proud = [(1.0 if chance > 0.5 else 0.0, is_true) for chance, is_true in truthful]
    assert expected_calibration_error(calibrate(proud)) == pytest.approx(0.25, abs=0.02)
    assert [part.positions for part in calibrate([(1.0, True), (0.0, False)])] == [1, 1]


def record(*words: PosteriorWord) -> dict[str, Any]:
    """As `dpe segment --format jsonl` writes a line, in so far as it is read."""
    parts = [
        {
            "word": one.text,
            "boundary_probabilities": list(one.boundaries),
            "entropy": one.entropy,
            "offset": 0,
        }
        for one in words
    ]
    return {"pieces": [one.text for one in words], "entropy": 1.0, "words": parts}


def write_records(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return path


def test_files_become_tables_and_figures(tmp_path: Path) -> None:
    path = write_records(tmp_path / "posteriors.jsonl", record(CARTS, DOG), record(), record(DOG))
    assert list(read_posteriors(path)) == [[CARTS, DOG], [], [DOG]]
    result = diagnose(read_posteriors(path), gold=GOLD)
    entropy, calibration = diagnostics_tables(result)
    assert [row[:2] for row in entropy.rows] == [["1", "1"], ["2", "2"]]
    assert calibration.rows[0] == ["0.0-0.1", "4", "0.0000", "0.0000"]
    names = {picture.name for picture in save_figures(diagnostics_figures(result), tmp_path / "out")}
    assert names == {f"{name}.{kind}" for name in ("entropy", "calibration") for kind in ("png", "svg")}


@pytest.mark.parametrize("lines", [[], [record()], [record(word("▁12", 0.0, 0.5, 1.0))]])
def test_posteriors_without_a_word_are_refused(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    path = write_records(tmp_path / "empty.jsonl", *lines)
    with pytest.raises(UserError, match=r"empty\.jsonl has no words"):
        diagnose_file(path)


@pytest.mark.parametrize("entry", ["", "talossa\ttalo ssa\n", "a\ta\n"])
def test_a_gold_of_other_words_is_refused(tmp_path: Path, entry: str) -> None:
    path = write_records(tmp_path / "posteriors.jsonl", record(CARTS, word("▁a", 0.5, 1.0)))
    gold = tmp_path / "gold.tsv"
    gold.write_text(entry, encoding="utf-8")
    assert diagnose_file(path).tokens == 2
    with pytest.raises(UserError, match=r"gold\.tsv: No word .* is in .*posteriors\.jsonl"):
        diagnose_file(path, gold=gold)


@pytest.mark.parametrize(
    "line",
    ["", "▁car ts", "[1]", "{}", '{"words": 3}', '{"words": [{"word": "▁a"}]}',
     '{"words": [{"word": "▁a", "entropy": 0, "boundary_probabilities": [1.0]}]}'],
)  # fmt: skip
def test_other_lines_are_refused_by_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(record(DOG)) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"bad\.jsonl, line 2: .* 'dpe segment --format jsonl'"):
        list(read_posteriors(path))
