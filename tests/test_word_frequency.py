"""F1 by frequency against matching words one by one, and its bootstrap against texts resampled for real."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.evaluation.scores import SystemOutput
from dpe.evaluation.word_frequency import (
    LABELS,
    bootstrap_by_frequency,
    count_tokens,
    f1_by_frequency,
    metric_name,
    read_counts,
)

FREQUENCY = {"a": 1000, "b": 50, "c": 6, "d": 5, "e": 2, "f": 1, "A": 21, "g": 100, "h": 101, "i": 20}
sentences = st.lists(
    st.text(st.sampled_from("abcdefAghix "), max_size=12).map(" ".join), min_size=3, max_size=3
)


def band_of(word: str) -> str:
    count = FREQUENCY.get(word, 0)
    if count < 2:
        return str(count)
    for label in ("2-5", "6-20", "21-100"):
        if count <= int(label.split("-")[1]):
            return label
    return "over 100"


def slow_f1(lines: list[str], reference: list[str], label: str) -> float | None:
    """Precision and recall of a band, where every word of the output takes one away from the reference's."""
    matches = ours = theirs = 0
    for line, wanted in zip(lines, reference, strict=True):
        left = [word for word in wanted.split() if band_of(word) == label]
        theirs += len(left)
        for word in line.split():
            if band_of(word) == label:
                ours += 1
                if word in left:
                    left.remove(word)
                    matches += 1
    if not theirs:
        return None
    precision, recall = matches / max(ours, 1), matches / theirs
    return 200 * precision * recall / (precision + recall) if matches else 0.0


@given(sentences, sentences)
def test_f1_is_that_of_words_matched_one_by_one(lines: list[str], reference: list[str]) -> None:
    found = f1_by_frequency([SystemOutput("this", lines)], reference, FREQUENCY)
    wanted = {label: f1 for label in LABELS if (f1 := slow_f1(lines, reference, label)) is not None}
    assert {band.label: band.f1["this"] for band in found} == pytest.approx(wanted)
    words = Counter(band_of(word) for line in reference for word in line.split())
    assert {band.label: band.words for band in found} == dict(words)


def test_a_word_matches_within_its_line_and_as_often_as_the_reference_has_it() -> None:
    reference, frequency = ["x y", "y z"], {"y": 3}
    (_, band) = f1_by_frequency([SystemOutput("this", ["y y y", ""])], reference, frequency)
    assert (band.label, band.words) == ("2-5", 2)
    assert band.f1["this"] == pytest.approx(100 * 2 * 1 / (3 + 2))


def test_words_are_bleus_tokens_with_their_case() -> None:
    counts = count_tokens(["The end.", "the end, the 1,000th"])
    assert counts == Counter({"The": 1, "end": 2, ".": 1, "the": 2, ",": 1, "1,000th": 1})
    assert count_tokens(["今日は"], "char") == Counter("今日は")
    (band,) = f1_by_frequency([SystemOutput("this", ["End."])], ["end."], {"end": 1, ".": 1})
    assert band.f1["this"] == pytest.approx(200 / 3)  # of one word against two: End is a word of another band


def test_the_test_of_a_band_is_that_of_texts_resampled_for_real() -> None:
    random = np.random.default_rng(3)
    words = [*FREQUENCY, "x", "y"]
    reference = [" ".join(random.choice(words, 9)) for _ in range(40)]

    def worsened(share: float) -> SystemOutput:
        lines = [
            " ".join(random.choice(words) if random.random() < share else word for word in line.split())
            for line in reference
        ]
        return SystemOutput(str(share), lines)

    one, second, other = worsened(0.3), worsened(0.35), worsened(0.4)
    samples, lines = 50, len(reference)
    found = {
        test.metric: test
        for test in bootstrap_by_frequency([one, second], [other], reference, FREQUENCY, samples=samples)
    }
    assert list(found) == [metric_name(label) for label in LABELS]
    drawn = np.random.default_rng(12345).choice(lines, size=(samples, lines), replace=True)
    for label in LABELS:
        differences = []
        for numbers in [range(lines), *drawn]:
            wanted = [reference[number] for number in numbers]
            f1 = [slow_f1([x.lines[n] for n in numbers], wanted, label) for x in (one, second, other)]
            differences.append((f1[0] + f1[1]) / 2 - f1[2])
        real, resampled = differences[0], np.array(differences[1:])
        test = found[metric_name(label)]
        assert test.difference == pytest.approx(real)
        assert (test.low, test.high) == pytest.approx(tuple(np.percentile(resampled, [2.5, 97.5])))
        far = (np.abs(resampled - resampled.mean()) >= abs(real) - 1e-9).sum()
        assert test.p_value == pytest.approx((far + 1) / (samples + 1))


def test_counts_are_those_of_a_list_or_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Ein Hund.\nein Hund\n")
    (tmp_path / "list").write_text("Ein\t1\nHund\t2\n")
    assert read_counts(tmp_path / "text") == Counter({"Hund": 2, "Ein": 1, "ein": 1, ".": 1})
    assert read_counts(tmp_path / "list") == Counter({"Ein": 1, "Hund": 2})
    (tmp_path / "list").write_text("Ein\t1\nHund\n")
    with pytest.raises(UserError, match="line 2: Expected a word, a tab and a count"):
        read_counts(tmp_path / "list")
