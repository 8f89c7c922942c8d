"""Scores are sacreBLEU's own; seeds, tests and lengths against direct calls and hand calculation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from dpe.errors import UserError
from dpe.evaluation.plots import save_figures
from dpe.evaluation.scores import (
    SystemOutput,
    bleu_by_length,
    dev_bleu,
    paired_bootstrap,
    read_reference,
    score,
    summarise,
)
from dpe.evaluation.significance import Difference
from dpe.evaluation.tables import short_names
from dpe.evaluation.translations import evaluation_figures, evaluation_tables, score_translations

WORDS = ["the", "a", "small", "big", "dog", "cat", "house", "sees", "has", "red", "old", "in", "on", "tree"]


def sentences(seed: int, *, lines: int = 60) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 28))) + "." for _ in range(lines)]


def worsened(lines: list[str], seed: int, share: float) -> list[str]:
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS) if rng.random() < share else w for w in line.split()) for line in lines
    ]


REFERENCE = sentences(1)
GOOD = SystemOutput("good", worsened(REFERENCE, 2, 0.15))
BAD = SystemOutput("bad", worsened(REFERENCE, 3, 0.5))
SECOND = SystemOutput("second", worsened(REFERENCE, 7, 0.2))


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_scores_and_signatures_are_sacrebleus() -> None:
    found = score(GOOD, REFERENCE)
    assert found.bleu == sacrebleu.corpus_bleu(GOOD.lines, [REFERENCE]).score
    assert found.chrf == sacrebleu.corpus_chrf(GOOD.lines, [REFERENCE]).score
    assert found.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "nc:6|nw:0" in found.chrf_signature
    half = score(SystemOutput("half", [line[: len(line) // 2] for line in REFERENCE]), REFERENCE)
    wanted = sacrebleu.corpus_bleu([line[: len(line) // 2] for line in REFERENCE], [REFERENCE])
    assert (half.brevity_penalty, half.length_ratio) == (wanted.bp, wanted.sys_len / wanted.ref_len)
    assert half.brevity_penalty < found.brevity_penalty <= 1


def test_dev_bleu_is_that_of_detokenised_text() -> None:
    tokens, text = ["It 's 5,300 km , isn 't it ?"], ["It's 5,300 km, isn't it?"]
    other = ["It 's 5,300 km , is ?"], ["It's 5,300 km, is?"]
    wanted = sacrebleu.corpus_bleu(other[1], [text]).score
    of_tokens, of_text = dev_bleu(moses=("de", "en"))(other[0], tokens), dev_bleu()(other[1], text)
    assert of_tokens == of_text == pytest.approx((wanted, 6 / 7))  # It's 5,300 km , is ?


def test_text_without_blanks_needs_other_tokens() -> None:
    reference, translation = ["今日は雨が降る"] * 3, SystemOutput("a", ["今日は雪が降る"] * 3)
    by_blanks, by_characters = (score(translation, reference, tokens) for tokens in ("13a", "char"))
    assert by_blanks.bleu == 0.0
    whole = BLEU(tokenize="char").corpus_score(translation.lines, [reference])
    assert by_characters.bleu == pytest.approx(whole.score)
    assert by_characters.bleu > 30
    assert "tok:char" in by_characters.bleu_signature
    assert dev_bleu(tokenize="char")(translation.lines, reference)[0] == pytest.approx(by_characters.bleu)
    (bin_,) = bleu_by_length([translation], reference, tokenize="char")
    assert bin_.bleu["a"] == pytest.approx(by_characters.bleu)
    empty = SystemOutput("b", [""] * 3)
    bleu = by_metric(paired_bootstrap([translation], [empty], reference, tokenize="char"))["BLEU"]
    assert bleu.difference == pytest.approx(by_characters.bleu)


def test_mean_and_deviation_of_seeds() -> None:
    one, other = score(GOOD, REFERENCE), score(BAD, REFERENCE)
    both = summarise([one, other])
    assert both.bleu == pytest.approx((one.bleu + other.bleu) / 2)
    assert both.bleu_deviation == pytest.approx(abs(one.bleu - other.bleu) / math.sqrt(2))
    assert both.chrf_deviation == pytest.approx(abs(one.chrf - other.chrf) / math.sqrt(2))
    assert summarise([one]).bleu_deviation is None


def by_metric(found: list[Difference]) -> dict[str, Difference]:
    return {one.metric: one for one in found}


def test_the_difference_is_that_of_the_mean_scores() -> None:
    found = by_metric(paired_bootstrap([GOOD, SECOND], [BAD], REFERENCE, samples=20))
    good, second, bad = (score(one, REFERENCE) for one in (GOOD, SECOND, BAD))
    assert found["BLEU"].difference == pytest.approx((good.bleu + second.bleu) / 2 - bad.bleu)
    assert found["chrF2"].difference == pytest.approx((good.chrf + second.chrf) / 2 - bad.chrf)


@pytest.mark.parametrize(
    ("metric", "corpus_score"), [("BLEU", sacrebleu.corpus_bleu), ("chrF2", sacrebleu.corpus_chrf)]
)
def test_interval_and_p_are_those_of_texts_resampled_for_real(
    metric: str, corpus_score: Callable[..., Any]
) -> None:
    samples = 40
    close = SystemOutput("close", worsened(REFERENCE, 8, 0.2))
    found = by_metric(paired_bootstrap([GOOD, SECOND], [close], REFERENCE, samples=samples))[metric]
    lines = len(REFERENCE)
    differences = []
    for drawn in np.random.default_rng(12345).choice(lines, size=(samples, lines), replace=True):
        reference = [REFERENCE[n] for n in drawn]
        one, other, base = (
            corpus_score([system.lines[n] for n in drawn], [reference]).score
            for system in (GOOD, SECOND, close)
        )
        differences.append((one + other) / 2 - base)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    far = sum(abs(one - np.mean(differences)) >= abs(found.difference) for one in differences)
    assert 0 < far < samples
    assert found.p_value == pytest.approx((far + 1) / (samples + 1))


@pytest.mark.parametrize(
    ("lines", "reference"),
    [
        (["abcdefgh", "xy", ""], ["abcxefgh", "xyz", "abc"]),
        (["a", "ab c"], ["a", "abc"]),  # orders that a line is too short for
        (["abc", "x"], ["", "x"]),
        (["", "", ""], ["abc", "", "d"]),
        (["Ünïcödé 車車", "  ,  "], ["Ünïcode 車", ","]),
    ],
)
def test_scores_of_summed_counts_are_sacrebleus(lines: list[str], reference: list[str]) -> None:
    nothing = SystemOutput("nothing", [""] * len(lines))
    found = by_metric(paired_bootstrap([SystemOutput("this", lines)], [nothing], reference, samples=1))
    assert found["BLEU"].difference == sacrebleu.corpus_bleu(lines, [reference]).score
    assert found["chrF2"].difference == sacrebleu.corpus_chrf(lines, [reference]).score


def test_p_has_both_tails_where_sacrebleus_has_one() -> None:
    close = SystemOutput("close", worsened(REFERENCE, 8, 0.2))
    systems = [("close", close.lines), ("good", GOOD.lines)]
    its = PairedTest(systems, {"BLEU": BLEU()}, [REFERENCE], test_type="bs", n_samples=1000)()[1]
    found = by_metric(paired_bootstrap([GOOD], [close], REFERENCE))["BLEU"]
    assert found.difference == pytest.approx(its["BLEU"][1].score - its["BLEU"][0].score)
    assert found.p_value > 1.5 * its["BLEU"][1].p_value
    turned = by_metric(paired_bootstrap([close], [GOOD], REFERENCE))["BLEU"]
    assert (turned.difference, turned.p_value) == (-found.difference, found.p_value)


def test_equal_systems_do_not_differ_and_good_ones_do() -> None:
    for same in paired_bootstrap([GOOD, SECOND, BAD], [BAD, GOOD, SECOND], REFERENCE, samples=20):
        found = (same.difference, same.low, same.high, same.p_value)
        assert found == pytest.approx((0, 0, 0, 1))  # the last digit of a mean depends on the order
    for one in paired_bootstrap([GOOD, SECOND], [BAD], REFERENCE, samples=200):
        assert one.low > 0
        assert one.p_value == pytest.approx(1 / 201)


def test_bleu_by_length_is_bleu_of_the_lines_in_the_bin() -> None:
    bins = bleu_by_length([GOOD, BAD], REFERENCE, limits=(10, 20))
    assert [part.label for part in bins] == ["1-10", "11-20", "over 20"]
    assert sum(part.lines for part in bins) == len(REFERENCE)
    chosen = [n for n, line in enumerate(REFERENCE) if 11 <= len(line.split()) <= 20]
    assert bins[1].lines == len(chosen)
    for system in (GOOD, BAD):
        wanted = sacrebleu.corpus_bleu([system.lines[n] for n in chosen], [[REFERENCE[n] for n in chosen]])
        assert bins[1].bleu[system.name] == wanted.score


def test_bins_without_lines_are_left_out_and_empty_lines_are_short() -> None:
    bins = bleu_by_length([SystemOutput("x", ["a b", "c"])], ["a b", ""], limits=(5, 9))
    assert [(part.label, part.lines) for part in bins] == [("1-5", 2)]


def test_files_become_tables_and_a_figure(tmp_path: Path) -> None:
    seeds = [write(tmp_path / name, lines) for name, lines in (("s1", GOOD.lines), ("s2", BAD.lines))]
    baseline = write(tmp_path / "base", worsened(REFERENCE, 4, 0.6))
    result = score_translations(seeds, write(tmp_path / "ref", REFERENCE), [baseline], by_length=True)
    scores, tests, lengths = evaluation_tables(result)
    assert [row[0] for row in scores.rows] == ["s1", "s2", "mean of seeds", "base (baseline)"]
    assert scores.rows[0][1] == f"{sacrebleu.corpus_bleu(GOOD.lines, [REFERENCE]).score:.2f}"
    assert [row[:3] for row in tests.rows] == [
        [system, "base", metric] for system in ("s1", "s2", "mean of seeds") for metric in ("BLEU", "chrF2")
    ]
    assert lengths.columns == ["words in the reference", "lines", "mean of seeds", "base"]
    first = result.by_length[0]
    assert lengths.rows[0][2] == f"{(first.bleu['s1'] + first.bleu['s2']) / 2:.2f}"
    png, svg = save_figures(evaluation_figures(result), tmp_path / "figures")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in svg.read_bytes()


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    reference = write(tmp_path / "ref", REFERENCE)
    short = write(tmp_path / "short", REFERENCE[:-1])
    with pytest.raises(UserError, match=r"short has 59 lines but .*ref has 60"):
        score_translations([short], reference)
    with pytest.raises(UserError, match="empty"):
        read_reference(write(tmp_path / "nothing", []))


def test_names_are_short_unless_that_confuses() -> None:
    assert short_names([Path("x/a"), Path("x/b")]) == ["a", "b"]
    assert short_names([Path("x/a"), Path("y/a")]) == ["x/a", "y/a"]
