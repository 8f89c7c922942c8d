"""Boundary scores: hand-computed examples, properties, and a recomputation token by token."""

from __future__ import annotations

import gzip
import random
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.evaluation.morphology import (
    ALL,
    MATCHED,
    SPLIT,
    BoundaryScores,
    boundary_scores,
    count_matrix,
    evaluate_systems,
    morphology_figures,
    morphology_tables,
    pooled_scores,
    read_gold,
    resample,
    score_morphology,
    tally,
)
from dpe.evaluation.plots import save_figures
from dpe.evaluation.segmented_text import Cuts, words_with_cuts

GOLD = {"taloissa": frozenset({4, 5}), "talo": frozenset[int](), "kirjani": frozenset({5})}


class OneSystem(NamedTuple):
    """The scores of a system alone, over all words and over those that the gold splits, if there are any."""

    types: BoundaryScores
    tokens: BoundaryScores
    split_types: BoundaryScores | None
    split_tokens: BoundaryScores | None


def evaluate(lines: Iterable[Sequence[str]], gold: Mapping[str, Cuts]) -> OneSystem:
    tallies = tally(lines, gold)
    selections = evaluate_systems({"this": tallies}, samples=2)
    found = {(one.words, one.unit): one.systems[0].scores for one in selections}
    split = ALL if all(word.boundaries for word in tallies) else SPLIT  # the same words are not scored twice
    return OneSystem(
        types=found[ALL, "types"],
        tokens=found[ALL, "tokens"],
        split_types=found.get((split, "types")),
        split_tokens=found.get((split, "tokens")),
    )


def _pieces(line: str) -> list[str]:
    return line.split(" ")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("▁talo issa kin .", [("taloissakin", {4, 8})]),
        ("▁ talo i ssa", [("taloissa", {4, 5})]),  # a lone marker is no cut
        ("▁ta lo , ▁ei", [("talo", {2}), ("ei", set())]),
        ('▁" ta lo "', [("talo", {2})]),
        ("▁talo, ▁ei", [("talo", set()), ("ei", set())]),
        ("▁rock'n roll", [("rock", set()), ("nroll", {1})]),
        ("▁a1 b", [("a", set()), ("b", set())]),
        ("▁e\u0301 ta", [("e\u0301ta", {2})]),  # a mark belongs to the word
        ("▁שָׁ לוֹם", [("שָׁלוֹם", {3})]),
        ("▁ . ▁123", []),
        ("ta lo▁i ssa", [("talo", {2}), ("issa", {1})]),  # a marker inside a piece still ends the word
    ],
)
def test_words_with_cuts(line: str, words: list[tuple[str, set[int]]]) -> None:
    assert list(words_with_cuts(_pieces(line))) == [(word, frozenset(cuts)) for word, cuts in words]


def test_empty_line_has_no_words() -> None:
    assert list(words_with_cuts([])) == []


def test_scores_by_hand() -> None:
    """taloissa cut right twice and once as ta|loissa; talo cut once, wrongly; kirjani never cut."""
    lines = ["▁talo i ssa ▁talo i ssa .", "▁ta loissa ▁tal o ▁kirjani ▁unlisted"]
    scores = evaluate(map(_pieces, lines), GOLD)
    tokens, types = scores.tokens, scores.types
    assert (tokens.words, types.words) == (5, 3)
    # tokens: 2 + 2 + 1 + 1 + 0 = 6 cuts, 4 of them right; 3 * 2 + 0 + 1 = 7 boundaries
    assert tokens.precision == pytest.approx(4 / 6)
    assert tokens.recall == pytest.approx(4 / 7)
    assert tokens.f1 == pytest.approx(8 / 13)
    assert tokens.pieces_per_word == pytest.approx(11 / 5)
    assert tokens.exact_match == pytest.approx(2 / 5)
    # types: taloissa has 5/3 cuts, 4/3 of them right, of 2; talo 1 cut, 0 right, of 0; kirjani 0 of 1
    assert types.precision == pytest.approx((4 / 3) / (8 / 3))
    assert types.recall == pytest.approx((4 / 3) / 3)
    assert types.pieces_per_word == pytest.approx(1 + (8 / 3) / 3)
    assert types.exact_match == pytest.approx((2 / 3) / 3)
    # without talo, which the gold does not split
    assert scores.split_tokens is not None
    assert scores.split_types is not None
    assert scores.split_tokens.words == 4
    assert scores.split_tokens.precision == pytest.approx(4 / 5)
    assert scores.split_types.precision == pytest.approx((4 / 3) / (5 / 3))


def test_word_is_looked_up_as_written_then_in_lower_case() -> None:
    gold = {"talon": frozenset({4}), "Talon": frozenset({2}), "auton": frozenset({4})}
    assert evaluate([_pieces("▁Ta lon ▁talo n ▁AUTO N")], gold).types.exact_match == 1
    with pytest.raises(UserError):  # İ is two characters in lower case: offsets do not carry over
        evaluate([["▁İa"]], {"i̇a": frozenset({2})})


def test_never_cutting_is_precise_and_useless() -> None:
    scores = evaluate([_pieces("▁taloissa ▁talo")], GOLD).tokens
    assert (scores.precision, scores.recall, scores.f1, scores.pieces_per_word) == (1, 0, 0, 1)


def test_a_text_without_cuts_has_no_precision(tmp_path: Path) -> None:
    text, gold = tmp_path / "text", tmp_path / "gold.tsv"
    text.write_text("taloissa talo\n", encoding="utf-8")
    gold.write_text("taloissa\ttalo i ssa\ntalo\ttalo\n", encoding="utf-8")
    (row, *_) = morphology_tables(score_morphology([text], gold, samples=20))[0].rows
    assert row[2:4] == ["no cuts", "0.0 [0.0, 100.0]"]


def test_gold_without_boundaries() -> None:
    scores = evaluate([_pieces("▁talo")], GOLD)
    assert (scores.types.precision, scores.types.recall, scores.types.f1) == (1, 1, 1)
    assert scores.split_types is None
    assert scores.split_tokens is None


def test_nothing_to_evaluate_is_a_sentence() -> None:
    with pytest.raises(UserError, match="No word"):
        evaluate([_pieces("▁unlisted .")], GOLD)


WORDS = st.text("abcäö", min_size=1, max_size=6)


@st.composite
def golds(draw: st.DrawFn) -> dict[str, Cuts]:
    words = draw(st.lists(WORDS, min_size=1, max_size=6, unique=True))
    return {word: draw(_cuts_of(word)) for word in words}


def _cuts_of(word: str) -> st.SearchStrategy[Cuts]:
    inside = st.sampled_from(range(1, len(word))) if len(word) > 1 else st.nothing()
    return st.frozensets(inside)


@st.composite
def segmented(draw: st.DrawFn) -> tuple[dict[str, Cuts], list[tuple[str, Cuts]]]:
    """A gold and some tokens, known to it or not, each with cuts of its own."""
    gold = draw(golds())
    words = draw(st.lists(st.one_of(st.sampled_from(sorted(gold)), WORDS), max_size=12))
    words.append(next(iter(gold)))
    return gold, [(word, draw(_cuts_of(word))) for word in words]


def _cut(word: str, cuts: Cuts) -> list[str]:
    marks = [0, *sorted(cuts), len(word)]
    pieces = [word[start:end] for start, end in pairwise(marks)]
    return [f"▁{pieces[0]}", *pieces[1:]]


@given(golds())
def test_gold_against_itself_is_perfect(gold: dict[str, Cuts]) -> None:
    scores = evaluate([_cut(word, cuts) for word, cuts in gold.items()], gold)
    for part in (scores.types, scores.tokens, scores.split_types, scores.split_tokens):
        if part is not None:
            assert (part.precision, part.recall, part.f1, part.exact_match) == (1, 1, 1, 1)


@given(golds())
def test_characters_find_every_boundary(gold: dict[str, Cuts]) -> None:
    scores = evaluate([["▁", *word] for word in gold], gold)
    assert (scores.types.recall, scores.tokens.recall) == (1, 1)
    assert scores.types.pieces_per_word == pytest.approx(sum(map(len, gold)) / len(gold))


@given(segmented())
def test_scores_equal_a_recomputation_position_by_position(
    case: tuple[dict[str, Cuts], list[tuple[str, Cuts]]],
) -> None:
    gold, tokens = case
    scores = evaluate([_cut(word, cuts) for word, cuts in tokens], gold)
    known = [(word, cuts) for word, cuts in tokens if word in gold]
    for part, by_type in ((scores.tokens, False), (scores.types, True)):
        right = cut = boundary = weight_sum = exact = 0.0
        for word, cuts in known:
            weight = 1 / sum(other == word for other, _ in known) if by_type else 1.0
            weight_sum += weight
            exact += weight * (cuts == gold[word])
            for position in range(1, len(word)):
                cut += weight * (position in cuts)
                boundary += weight * (position in gold[word])
                right += weight * (position in cuts and position in gold[word])
        assert part.words == pytest.approx(weight_sum)
        assert part.precision == pytest.approx(right / cut if cut else 1)
        assert part.recall == pytest.approx(right / boundary if boundary else 1)
        assert part.f1 == pytest.approx(2 * right / (cut + boundary) if cut + boundary else 1)
        assert part.pieces_per_word == pytest.approx((cut + weight_sum) / weight_sum)
        assert part.exact_match == pytest.approx(exact / weight_sum)


@given(st.lists(st.text(st.sampled_from("aé\u0301b▁.1-\u2028 "), min_size=1, max_size=4), max_size=8))
def test_words_and_cuts_by_definition(pieces: list[str]) -> None:
    """Every inner position of every maximal run is a cut exactly if a piece ends there."""
    text = "".join(pieces)
    ends = {len("".join(pieces[:count])) for count in range(len(pieces) + 1)}
    inside = [unicodedata.category(character)[0] in ("L", "M") for character in text] + [False]
    expected, start = [], None
    for position, is_inside in enumerate(inside):
        if is_inside and start is None:
            start = position
        elif not is_inside and start is not None:
            cuts = frozenset(end - start for end in ends if start < end < position)
            expected.append((text[start:position], cuts))
            start = None
    assert list(words_with_cuts(pieces)) == expected


@pytest.mark.parametrize("name", ["gold.tsv", "gold.tsv.gz"])
def test_read_gold(name: str, tmp_path: Path) -> None:
    content = b"taloissa\ttalo i ssa\ntalo\ttalo\r\nkirjani\tkirja ni\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert read_gold(tmp_path / name) == GOLD


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("taloissa", "a word, a tab"),
        ("taloissa\t", "a word, a tab"),
        ("\ttalo", "a word, a tab"),
        ("", "a word, a tab"),
        ("taloissa\ttalo  issa", "single spaces"),
        ("taloissa\ttalo\tissa", "a word, a tab"),
        ("taloissa\ttalo ssa", "do not join"),
        ("talo\tta lo", "second analysis"),
        ("talo\tt\udcffalo", "UTF-8"),
    ],
)
def test_malformed_gold_names_file_and_line(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "gold.tsv"
    path.write_bytes(f"talo\ttalo\n{line}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=message) as raised:
        read_gold(path)
    assert f"{path}, line 2:" in str(raised.value)


def test_missing_gold_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_gold(tmp_path / "none.tsv")


def _spans(word: str, cuts: Cuts) -> set[tuple[int, int]]:
    return set(pairwise([0, *sorted(cuts), len(word)]))


@given(segmented())
def test_morph_f1_equals_a_recomputation_over_spans(
    case: tuple[dict[str, Cuts], list[tuple[str, Cuts]]],
) -> None:
    gold, tokens = case
    known = [(word, cuts) for word, cuts in tokens if word in gold]
    right = sum(len(_spans(word, cuts) & _spans(word, gold[word])) for word, cuts in known)
    made = sum(len(_spans(word, cuts)) for word, cuts in known)
    wanted = sum(len(_spans(word, gold[word])) for word, _ in known)
    found = evaluate([_cut(word, cuts) for word, cuts in tokens], gold).tokens
    assert found.morph_f1 == pytest.approx(2 * right / (made + wanted))


def test_morphs_need_both_ends() -> None:
    """talo|i|ssa as talo|issa: one boundary of two, one morph (talo) of two made and three wanted."""
    scores = evaluate([_pieces("▁talo issa")], GOLD).tokens
    assert scores.recall == pytest.approx(1 / 2)
    assert scores.morph_f1 == pytest.approx(2 * 1 / (2 + 3))


# Several systems

ONE = ["▁talo i ssa ▁talo ▁kirja ni", "▁talo i ssa ▁only"]
OTHER = ["▁tal o issa ▁ta lo ▁kirj ani", "▁talo i ssa ▁here"]


def test_systems_side_by_side_by_hand() -> None:
    tallies = {name: tally(map(_pieces, lines), GOLD) for name, lines in (("one", ONE), ("other", OTHER))}
    found = {(part.words, part.unit): part.systems for part in evaluate_systems(tallies, samples=50)}
    assert set(found) == {(words, unit) for words in (ALL, SPLIT, MATCHED) for unit in ("types", "tokens")}
    one, other = found[ALL, "tokens"]
    assert (one.name, one.scores.f1, one.f1_gain) == ("one", 1, None)
    assert other.scores.precision == pytest.approx(3 / 6)  # tal o issa: 4 of 3, 4; ta lo; kirj ani; 4, 5
    assert other.f1_gain == pytest.approx(other.scores.f1 - 1)
    assert other.f1_gain_interval is not None
    assert other.f1_gain_interval.low <= other.f1_gain <= other.f1_gain_interval.high
    # talo has one piece in one system and two in the other, so it is not matched; the rest is
    assert [system.scores.words for system in found[MATCHED, "types"]] == [2, 2]
    one, other = found[MATCHED, "types"]
    assert one.scores.pieces_per_word == other.scores.pieces_per_word
    assert found[SPLIT, "types"][0].scores.words == 2


def test_matched_words_have_equal_pieces_in_every_system() -> None:
    """Equal on average over tokens is equal: 0, 1 and 2 cuts in one system, 1, 1 and 1 in the other."""
    rng = random.Random(3)
    sizes = {
        "taloissa": ((0, 1, 2), (1, 1, 1)),
        "talo": ((1, 1), (1, 2)),
        "kirjani": ((2,), (2,)),
        "auto": ((0,), (1,)),
    }
    gold = {word: frozenset({rng.randint(1, len(word) - 1)}) for word in sizes}
    lines = [
        [
            _cut(word, frozenset(rng.sample(range(1, len(word)), size)))
            for word, of in sizes.items()
            for size in of[side]
        ]
        for side in range(2)
    ]
    tallies = {f"{side}": tally(line, gold) for side, line in enumerate(lines)}
    matched = {"taloissa", "kirjani"}
    selections = evaluate_systems(tallies, samples=5)
    chosen = next(part for part in selections if (part.words, part.unit) == (MATCHED, "types"))
    assert chosen.systems[0].scores.words == len(matched)
    for system, found in zip(chosen.systems, tallies.values(), strict=True):
        assert system.scores == boundary_scores(
            [word for word in found if word.word in matched], by_type=True
        )


def test_only_shared_words_are_compared() -> None:
    first, second = tally([["▁talo"], ["▁kirja", "ni"]], GOLD), tally([["▁talo"]], GOLD)
    assert evaluate_systems({"a": first, "b": second}, samples=5)[0].systems[0].scores.words == 1
    with pytest.raises(UserError, match="No word of the gold"):
        evaluate_systems({"a": first, "b": []})


def test_bootstrap_repeats_and_covers() -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcd", k=6)) for _ in range(200)]
    gold = {word: frozenset({3}) for word in words}
    found = tally([_cut(word, frozenset({rng.choice([2, 3])})) for word in words], gold)
    one, again, other = (evaluate_systems({"x": found}, samples=400, seed=seed)[0] for seed in (1, 1, 2))
    assert one == again
    assert one != other
    system = one.systems[0]
    share, low, high = system.scores.recall, system.intervals["recall"].low, system.intervals["recall"].high
    deviation = (share * (1 - share) / len(gold)) ** 0.5  # of a share of independent words
    assert (high - low) / 2 == pytest.approx(1.96 * deviation, rel=0.15)
    assert low < share < high


def test_resamples_are_sums_of_drawn_rows_and_shared_by_systems() -> None:
    matrix = np.arange(12.0).reshape(4, 3)
    one, other = resample([matrix, 2 * matrix], samples=20, seed=1)
    assert one.shape == (20, 3)
    np.testing.assert_allclose(other, 2 * one)
    sums = {tuple(matrix[list(rows)].sum(axis=0)) for rows in np.ndindex(4, 4, 4, 4)}
    assert all(tuple(row) in sums for row in one)


def test_scores_of_all_words_are_those_of_the_matrix() -> None:
    found = tally(map(_pieces, OTHER), GOLD)
    for by_type in (False, True):
        pooled = pooled_scores(count_matrix(found, by_type=by_type).sum(axis=0))
        assert pooled["f1"] == pytest.approx(boundary_scores(found, by_type=by_type).f1)


def test_files_become_tables_and_figures(tmp_path: Path) -> None:
    for name, lines in (("one", ONE), ("other", OTHER)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    gold = tmp_path / "gold.tsv"
    gold.write_text("taloissa\ttalo i ssa\ntalo\ttalo\nkirjani\tkirja ni\n", encoding="utf-8")
    selections = score_morphology([tmp_path / "one", tmp_path / "other"], gold, samples=20)
    tables = morphology_tables(selections)
    assert len(tables) == 6
    assert tables[0].rows[0][:3] == ["one", "3", "100.0 [100.0, 100.0]"]
    assert {len(row) for table in tables for row in table.rows} == {len(tables[0].columns)}
    alone = morphology_tables(score_morphology([tmp_path / "one"], gold, samples=20))[0]
    assert len(alone.columns) == len(alone.rows[0]) == len(tables[0].columns) - 1
    names = {path.name for path in save_figures(morphology_figures(selections), tmp_path / "out")}
    assert names == {
        f"morphology-{part}.{kind}" for part in ("all", "split", "matched") for kind in ("png", "svg")
    }
