"""Unigram models that dpe makes, in SentencePiece itself: both segment alike, and as the scores say."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from dpe.corpus_run.distillation import distill
from dpe.demo.grammar import generate
from dpe.segmenter.distillation import distilled_vocabulary
from dpe.segmenter.settings import DistillSettings
from dpe.text.best_pieces import best_pieces
from dpe.text.corpus import read_lines
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.pruning import prune
from dpe.text.unigram import Unigram
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, pieces_by_word, split_words
from tests.oracles import cuts_of_text, log_sum_exp
from tests.segmenters import save_segmenter
from tests.vocabularies import LETTERS, LONGER, make_vocabulary

REAL = Path(__file__).parents[2] / "shared" / "data" / "multi30k" / "en-de" / "train.de.xz"
DIGITS = 5e-3  # SentencePiece adds up a whole line in single precision

SHORT = DistillSettings(max_updates=10)

HOSTILE = [
    "",
    "   ",
    MARKER,
    f"a{MARKER}b {MARKER}{MARKER} c",
    "☃",
    "☃☃☃ 漢字",
    "☃a☃ talo☃ssa ☃",
    "\ufeff\u200b\u2028x",
    "a" * 3_000,
    "e\u0301 ﬁ Ａ \u00a0\u3000|",
    "<unk> <s> </s> <pad> <0x41>",
    "\x00\x01\t\r",
    "😀👩‍👩‍👧 a",
]


def processor(vocabulary: Vocabulary) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=vocabulary.content)


def assert_alike(vocabulary: Vocabulary, lines: Iterable[str]) -> None:
    """Both segment alike, and every word as well as can be by the stored scores in double precision."""
    theirs, longest = processor(vocabulary), vocabulary.max_span
    scores, unknown = vocabulary.scores, vocabulary.unknown_score
    seen: set[tuple[str, ...]] = set()
    for line in lines:
        pieces = vocabulary.encode(line)
        assert theirs.encode(line, out_type=str) == pieces
        words = split_words(vocabulary.normalize(line))
        assert "".join(pieces) == "".join(words)
        for word, parts in zip(words, pieces_by_word(words, pieces), strict=True):
            if tuple(parts) in seen:
                continue
            seen.add(tuple(parts))
            found = sum(scores[p] if p in scores else unknown * len(p) for p in parts)
            best, _ = best_pieces(word, scores, unknown, longest=longest)
            assert found == pytest.approx(best, abs=DIGITS)


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """Of the built-in corpus, by a segmenter with random weights, which leaves nothing at its start."""
    place = tmp_path_factory.mktemp("distilled")
    lines = [pair.target for pair in generate(1_000, seed=3)]
    vocabulary = learn_vocabulary(lines, VocabularySettings(size=500))
    save_segmenter(place / "lm", vocabulary, source=False)
    return distill(place / "d.model", segmenter=place / "lm", target=lines[:100], settings=SHORT)


def test_ten_thousand_lines_of_the_built_in_corpus(distilled: Vocabulary) -> None:
    assert_alike(distilled, (pair.target for pair in generate(10_000, seed=4)))


def test_ten_thousand_real_lines(tmp_path: Path) -> None:
    if not REAL.exists():
        pytest.skip(f"{REAL} is not there")
    lines = list(read_lines(REAL))[:10_000]
    vocabulary = learn_vocabulary(lines[:1_000], VocabularySettings(size=1_000))
    save_segmenter(tmp_path / "lm", vocabulary, source=False)
    few = lines[:100]
    assert_alike(distill(tmp_path / "d.model", segmenter=tmp_path / "lm", target=few, settings=SHORT), lines)


def test_hostile_text(distilled: Vocabulary) -> None:
    assert_alike(distilled, HOSTILE)
    theirs = processor(distilled)
    for line in HOSTILE:
        pieces = distilled.encode(line)
        assert distilled.decode(pieces) == theirs.decode(pieces)
        assert distilled.piece_ids(pieces) == theirs.encode(line)


def test_any_text(distilled: Vocabulary) -> None:
    @settings(max_examples=100)
    @given(st.text(alphabet=st.sampled_from([*"talosnike ☃漢", MARKER, "\u0301", "\t"]), max_size=40))
    def check(line: str) -> None:
        assert_alike(distilled, [line])

    check()


def test_the_n_best_are_alike_and_as_the_scores_say(distilled: Vocabulary) -> None:
    theirs = processor(distilled)
    for line in ("talossanikin", "kirjoissa auto", "☃talo"):
        found = distilled.n_best_encode(line, n=8)
        assert theirs.nbest_encode(line, nbest_size=8, out_type=str) == found
        scores = [sum(distilled.scores.get(p, distilled.unknown_score) for p in pieces) for pieces in found]
        assert scores == sorted(scores, reverse=True)


def sampled(theirs: Any, line: str, *, alpha: float, draws: int) -> Counter[tuple[str, ...]]:
    rows = (
        theirs.encode(line, enable_sampling=True, alpha=alpha, nbest_size=-1, out_type=str)
        for _ in range(draws)
    )
    return Counter(map(tuple, rows))


@pytest.mark.parametrize("protected", [(), ("c",), ("bc", "@")])
def test_both_sample_from_the_model_that_was_asked_for(protected: tuple[str, ...]) -> None:
    """Whether SentencePiece or dpe draws: within five standard deviations of the enumerated posterior."""
    pieces = [one for one in [*LETTERS, *LONGER] if one[0] not in protected]
    vocabulary = make_vocabulary(pieces, type="unigram", protected=protected)
    asked = np.random.default_rng(7).normal(size=len(vocabulary)) - 3
    model = distilled_vocabulary(vocabulary, asked)
    theirs, draws, line = processor(model), 2_000, "abcab"
    cuts = {
        cut: sum(0.0 if p in protected else float(asked[model.ids[p]]) for p in cut)
        for cut in cuts_of_text(MARKER + line, model)
    }
    total = log_sum_exp(list(cuts.values()))
    unigram = Unigram(model, alpha=1.0)
    ours = Counter(tuple(unigram.cut(line, Draw(line=number))) for number in range(draws))
    for found in (sampled(theirs, line, alpha=1.0, draws=draws), ours):
        assert set(found) <= set(cuts)
        for cut, score in cuts.items():
            p = math.exp(score - total)
            assert abs(found[cut] - draws * p) <= 5 * math.sqrt(draws * p * (1 - p)) + 1


ALPHABET = "abc@é"


@settings(max_examples=150)
@given(
    pieces=st.dictionaries(
        st.text(alphabet=ALPHABET, min_size=1, max_size=4), st.floats(-25, 0), min_size=3, max_size=25
    ),
    protected=st.sampled_from([["@"], ["@@"], ["ba@c"], ["é@b", "cc"], ["abcab"]]),
    lines=st.lists(st.text(alphabet=[*ALPHABET, " ", "☃"], max_size=25), min_size=1, max_size=5),
    seed=st.integers(0, 1_000),
)
def test_sentencepiece_keeps_protected_strings(
    pieces: dict[str, float], protected: list[str], lines: list[str], seed: int
) -> None:
    """Whatever the scores, encoding and sampling, unless protected strings overlap each other."""
    scores = dict.fromkeys((MARKER, *ALPHABET), -9.0) | pieces | {MARKER + "a": -2.0}
    scores = {piece: score for piece, score in scores.items() if piece not in protected}
    vocabulary = make_vocabulary(scores, type="unigram", protected=protected)
    model = vocabulary.as_unigram(scores)
    theirs = processor(model)
    for line in lines:
        marked = model.normalize(line)
        wanted = [marked[begin:end] for begin, end in model.protected_spans(marked)]
        if sum(len(re.findall(f"(?={string})", marked)) for string in protected) > len(wanted):
            continue  # they overlap each other: the leftmost one here, anyone there
        pieces_found = model.encode(line)
        assert theirs.encode(line, out_type=str) == pieces_found
        assert [piece for piece in pieces_found if piece in protected] == wanted
        drawn = sampled(theirs, line, alpha=1.0, draws=3)
        for cut in drawn:
            assert [piece for piece in cut if piece in protected] == wanted
        words = split_words(marked)
        for word, parts in zip(words, pieces_by_word(words, pieces_found), strict=True):
            options = {
                cut: sum(0.0 if p in protected else scores.get(p, -40.0) for p in cut)
                for cut in cuts_of_text(word, model)
            }
            flat = [p for part in parts for p in ([part] if part in model.ids else part)]
            assert options[tuple(flat)] == pytest.approx(max(options.values()), abs=0.05)


RULES: dict[str, Callable[[str, float], float]] = {  # a protected string's score, from the largest of a piece
    "since 0.2.2": lambda string, largest: 0.1 * len(string.encode()) - 0.1,
    "before": lambda string, largest: largest * len(string.encode()) - 0.1,
    "before, sampling": lambda string, largest: largest * len(string) - 0.1,
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("protected", "good"),
    [
        ("@@", ["a@", "@b"]),
        ("é@", ["aé", "@"]),
        ("é@", ["@bc"]),
        ("@", ["a@b"]),
        ("@", ["a@", "@b", "ca@", "a@b"]),
    ],
)
def test_protected_strings_by_the_rules_of_all_versions(rule: str, protected: str, good: list[str]) -> None:
    """Against enumeration, where all that overlaps the string is very good, and all else very bad."""
    scores = dict.fromkeys((MARKER, *"abc@é"), -60.0) | dict.fromkeys(good, -0.5)
    scores.pop(protected, None)
    vocabulary = make_vocabulary(scores, type="unigram", protected=[protected])
    model = vocabulary.as_unigram(scores)
    own = {piece: score for piece, score in model.scores.items() if piece != protected}
    own[protected] = RULES[rule](protected, max(own.values()))
    for word in (f"a{protected}b", f"ca{protected}bc", f"{protected}b", f"a{protected}"):
        cuts = {cut: sum(own[p] for p in cut) for cut in cuts_of_text(MARKER + word, make_vocabulary(own))}
        best = max(cuts, key=lambda cut: cuts[cut])
        assert protected in best
        split = [score for cut, score in cuts.items() if protected not in cut]
        assert not split or cuts[best] - max(split) > 49


def test_a_foreign_unigram_model_is_split_by_sentencepiece_but_not_here() -> None:
    """Why scores are shifted: without it the strings are not safe."""
    vocabulary = make_vocabulary([*LETTERS, ("c@", -0.1), ("@a", -0.1)], type="unigram", protected=["@@"])
    line = "c@@a"
    assert processor(vocabulary).encode(line, out_type=str) == [MARKER, "c@", "@a"]
    assert vocabulary.encode(line) == [MARKER, "c", "@@", "a"]
    assert processor(vocabulary.as_unigram(dict(vocabulary.scores))).encode(line, out_type=str) == [
        MARKER,
        "c",
        "@@",
        "a",
    ]


def test_pruned_models_with_protected_strings(protecting_vocabularies: dict[str, Vocabulary]) -> None:
    for vocabulary in protecting_vocabularies.values():
        counts = np.random.default_rng(2).gamma(1.0, 20.0, len(vocabulary))
        pruned = prune(vocabulary, counts, len(vocabulary) - 30)
        theirs = processor(pruned)
        for line in ("talossani <ph>x talo", "x<ph>talossa", "<ph><ph>x<ph>", "☃<ph>☃", "taloss"):
            assert theirs.encode(line, out_type=str) == pruned.encode(line)
