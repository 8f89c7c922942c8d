"""Statistics of a segmented text against their definitions; words segmented in several ways."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from dpe.evaluation.segmented_text import CutWord, read_cut_tokens, words_with_cuts
from dpe.evaluation.text_profile import (
    by_frequency,
    collect_statistics,
    count_ways,
    describe_varying_words,
    log_likelihood_ratio,
    most_varying,
    renyi_efficiency,
)


def cut_words(line: str) -> list[CutWord]:
    return list(words_with_cuts(line.split()))


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_ties_go_to_fewer_pieces_then_to_the_earlier_cut() -> None:
    cuts = {frozenset({1, 2}): 3, frozenset({4}): 3, frozenset({3}): 3, frozenset[int](): 2}
    assert by_frequency(cuts) == [{3}, {4}, {1, 2}, set()]


def test_renyi_efficiency_of_known_distributions() -> None:
    assert renyi_efficiency([7, 7, 7]) == pytest.approx(1)
    assert renyi_efficiency([7, 7, 7], vocabulary_size=9) == pytest.approx(0.5)
    by_hand = math.log(0.5**2.5 + 2 * 0.25**2.5) / (1 - 2.5) / math.log(3)
    assert renyi_efficiency([2, 1, 1]) == pytest.approx(by_hand)
    collision = -math.log2(0.5**2 + 2 * 0.25**2) / math.log2(3)  # order 2 is the collision entropy
    assert renyi_efficiency([2, 1, 1], alpha=2) == pytest.approx(collision)
    assert renyi_efficiency([5]) == 1


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=20))
def test_renyi_entropy_falls_with_its_order_and_tends_to_shannons(counts: list[int]) -> None:
    shares = [count / sum(counts) for count in counts]
    shannon = -sum(share * math.log(share) for share in shares) / math.log(len(shares))
    assert renyi_efficiency(counts, alpha=1.0001) == pytest.approx(shannon, abs=1e-3)
    assert renyi_efficiency(counts) <= shannon + 1e-9


def test_statistics_by_hand() -> None:
    found = collect_statistics([["▁cart", "s", "▁of"], [], ["▁", "xyz", "s", "▁of", "▁of"]])
    assert (found.lines, found.words, found.pieces) == (3, 5, 8)
    assert found.fertility == pytest.approx(8 / 5)
    assert (found.distinct, found.used_once) == (5, 3)
    assert found.covering == 5  # 3 + 2 + 1 + 1 pieces are 87.5 %
    assert found.piece_lengths == {0: 1, 1: 2, 2: 3, 3: 1, 4: 1}
    assert found.line_lengths == {0: 1, 3: 1, 5: 1}
    assert found.characters_per_piece == pytest.approx(15 / 8)
    lengths = found.pieces_per_line
    assert (lengths.mean, lengths.median, lengths.longest) == pytest.approx((8 / 3, 3, 5))
    assert found.renyi_efficiency == pytest.approx(renyi_efficiency([1, 2, 3, 1, 1]))


def test_words_cut_in_several_ways_and_the_source_words_that_go_with_them() -> None:
    lines = ["▁cut s ▁x", "▁cut s ▁x", "▁cuts ▁x", "▁cut s", "▁cuts ▁y y", "▁yy"]
    sources = ["er schneidet.", "sie schneidet es", "die Schnitte", "Er schneidet", "drei Schnitte", "so"]
    ways = count_ways(map(cut_words, lines))
    words = most_varying(ways)
    assert words == ["cuts", "yy"]
    both = [(cut_words(line), source) for line, source in zip(lines, sources, strict=True)]
    assert describe_varying_words(words, ways, both)[0].ways[0].clues == []  # too few lines to tell
    ways = count_ways(map(cut_words, lines * 3))
    cuts, _ = describe_varying_words(words, ways, both * 3)
    assert [(way.cut, way.count) for way in cuts.ways] == [("cut+s", 9), ("cuts", 6)]
    clue = cuts.ways[0].clues[0]
    assert (clue.word, clue.share, clue.share_elsewhere) == ("schneidet", 1, 0)
    assert cuts.ways[1].clues[0].word == "Schnitte"
    assert cuts.ways[1].examples == ["die Schnitte", "drei Schnitte"]
    assert describe_varying_words(words, ways)[0].ways[0].clues == []


def test_a_line_counts_once_however_often_it_has_the_word() -> None:
    cut, whole = CutWord("cuts", frozenset({3})), CutWord("cuts", frozenset())
    once = [([cut], "rot"), ([whole], "blau")] * 3
    several = [(words * 5, source) for words, source in once]
    for lines in (once, several):
        ways = count_ways(words for words, _ in lines)
        (found,) = describe_varying_words(["cuts"], ways, lines)
        assert [way.clues for way in found.ways] == [[], []]  # three lines of each are too few to tell


def test_clues_are_those_of_a_recount() -> None:
    """Each way against all others, counted anew: what a source word's two shares are by definition."""
    rng = random.Random(3)
    lines = []
    for _ in range(400):
        way = rng.randrange(1, 4)
        hint = f"hint{way}" if rng.random() < 0.6 else "none"
        source = " ".join([hint, *rng.choices("abcdef", k=3)])
        lines.append(([CutWord("carts", frozenset({way}))], source))
    ways = count_ways(words for words, _ in lines)
    (found,) = describe_varying_words(["carts"], ways, lines)
    for way in found.ways:
        here = [source.split() for words, source in lines if str(words[0]) == way.cut]
        others = [source.split() for words, source in lines if str(words[0]) != way.cut]
        assert way.clues[0].word == f"hint{way.cut.index('+')}"
        for clue in way.clues:
            assert clue.share == sum(clue.word in words for words in here) / len(here)
            assert clue.share_elsewhere == sum(clue.word in words for words in others) / len(others)


def test_the_lines_of_a_word_are_counted_once_however_many_its_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    class SourceWords(frozenset[str]):
        def __iter__(self) -> Iterator[str]:
            counted.append(self)
            return super().__iter__()

    monkeypatch.setattr("dpe.evaluation.text_profile._source_words", lambda line: SourceWords(line.split()))
    lines = [([CutWord("x" * 99, frozenset({n % 50 + 1}))], f"a b{n % 3}") for n in range(200)]
    ways = count_ways(words for words, _ in lines)
    (found,) = describe_varying_words(["x" * 99], ways, lines)
    assert len(found.ways) == 50
    assert len(counted) == len(lines)


def test_log_likelihood_ratio_is_the_g_statistic_of_the_table() -> None:
    for count, lines, other_count, other_lines in ((3, 4, 1, 7), (2, 2, 0, 5), (2, 4, 5, 10)):
        table = [[count, lines - count], [other_count, other_lines - other_count]]
        g = chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
        assert log_likelihood_ratio(count, lines, other_count, other_lines) == pytest.approx(g, abs=1e-9)


def test_punctuation_is_no_second_way(tmp_path: Path) -> None:
    """What cuts `cuts` and `(cuts` differently, as BPE may, does not vary; what cuts `cuts` twice does."""
    steady = write(tmp_path / "steady", "▁cut s ▁( cu ts", "▁cut s", "▁( cu ts", "▁ cuts")
    varying = write(tmp_path / "varying", "▁cut s ▁( cu ts", "▁cu ts", "▁( cu ts", "▁cuts")
    assert count_ways(read_cut_tokens(write(tmp_path / "two", "▁cut s ▁( cu ts", "▁cut s"))) == {}
    assert dict(count_ways(read_cut_tokens(steady))) == {"cuts": {frozenset({3}): 2, frozenset(): 1}}
    assert list(count_ways(read_cut_tokens(varying))) == ["cuts"]
