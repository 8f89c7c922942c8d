"""Prefixes: their probability and the next character, against enumeration of what the model may write."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpe import Segmenter, UserError, Vocabulary
from dpe.model.batching import MixedCollator, MixedExample
from dpe.text.words import MARKER, split_words
from tests.oracles import piece_scores
from tests.segmenters import DECODERS, PAIRS, learned_vocabulary, save_segmenter
from tests.vocabularies import LETTERS, LONGER, letters_vocabulary, make_vocabulary

PREFIXES = ["", "a", "ab", "abc b", "aabb ", "b\u2603c", "\u2603", "a  ", "xx", "cab xy"]


@pytest.fixture(scope="module", params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[True, False])
def segmenter(
    request: pytest.FixtureRequest, decoder: str, tmp_path_factory: pytest.TempPathFactory
) -> Segmenter:
    """Of few pieces, among them one whose characters are no pieces."""
    directory = tmp_path_factory.mktemp("prefix") / "s"
    vocabulary = make_vocabulary(LETTERS + LONGER)
    return Segmenter.load(save_segmenter(directory, vocabulary, source=request.param, decoder=decoder))


def source_of(segmenter: Segmenter) -> str | None:
    return "ab c" if segmenter.has_source else None


def begins_with(segmenter: Segmenter, source: str | None, marked: str) -> float:
    """The probability of all ways to write pieces until what is written begins with a text, by definition."""
    if not marked:
        return 1.0
    vocabulary, model = segmenter.vocabulary, segmenter._model
    ids = None if source is None else [*vocabulary.piece_ids(vocabulary.encode(source)), vocabulary.eos_id]
    example = MixedExample(line=0, source=ids, words=split_words(marked), marked=marked)
    batch = MixedCollator(vocabulary).collate([example], epoch=0)
    rows = piece_scores(model, model.states(batch)).double().exp()  # [position, piece]

    def after(start: int) -> float:
        if start >= len(marked):
            return 1.0
        total, rest = 0.0, marked[start:]
        for piece, number in vocabulary.ids.items():
            if rest.startswith(piece) or piece.startswith(rest):
                total += float(rows[start, number]) * after(start + len(piece))
        if rest[0] not in vocabulary.ids:
            total += float(rows[start, vocabulary.unk_id]) * after(start + 1)
        return total

    return after(0)


@torch.no_grad()
def assert_by_definition(segmenter: Segmenter, prefix: str, marked: str) -> None:
    source = source_of(segmenter)
    score = segmenter.prefix_score(source, prefix)
    total = begins_with(segmenter, source, marked)
    assert score.text == marked
    assert math.exp(score.log_probability) == pytest.approx(total, rel=1e-4)
    for character, probability in score.next_characters.items():
        longer = begins_with(segmenter, source, marked + character)
        if character not in segmenter.vocabulary.ids:  # a text with it counts as one with an unknown one too
            longer -= score.unknown * total
        assert probability * total == pytest.approx(longer, rel=1e-3, abs=1e-9)
    assert list(score.next_characters.values()) == sorted(score.next_characters.values(), reverse=True)
    assert score.unknown * total == pytest.approx(begins_with(segmenter, source, f"{marked}\u2603"), rel=1e-3)
    assert sum(score.next_characters.values()) + score.unknown + score.end == pytest.approx(1, abs=1e-5)
    if marked == segmenter.vocabulary.normalize(prefix):
        whole = segmenter.score(source, prefix).log_probability
        assert score.log_probability + math.log(score.end) == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_is_all_that_begins_with_it(segmenter: Segmenter, prefix: str) -> None:
    marked = segmenter.vocabulary.normalize(prefix)
    assert_by_definition(segmenter, prefix, marked + MARKER * (prefix.endswith(" ") and bool(marked)))


@settings(max_examples=15)
@given(prefix=st.text(alphabet="abcxy \u2603", max_size=7))
def test_odd_prefixes(segmenter: Segmenter, prefix: str) -> None:
    marked = segmenter.vocabulary.normalize(prefix)
    assert_by_definition(segmenter, prefix, marked + MARKER * (prefix.endswith(" ") and bool(marked)))


@pytest.mark.parametrize("line", [0, 1])
def test_the_characters_of_a_text_one_after_the_other_make_its_probability(
    decoder: str, line: int, tmp_path: Path
) -> None:
    """The chain rule, over a real vocabulary; behind a space stands what begins a word."""
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", learned_vocabulary(), decoder=decoder))
    source, target = PAIRS[line]
    score = segmenter.prefix_score(source, target[0])
    total = score.log_probability
    for length in range(1, len(target)):
        total += math.log(score.next_characters[target[length].replace(" ", MARKER)])
        score = segmenter.prefix_score(source, target[: length + 1])
        assert score.text == MARKER + target[: length + 1].replace(" ", MARKER)
        assert score.log_probability == pytest.approx(total, abs=1e-3)
    total += math.log(score.end)
    assert total == pytest.approx(segmenter.score(source, target).log_probability, abs=1e-3)


def test_every_text_begins_with_nothing(segmenter: Segmenter) -> None:
    score = segmenter.prefix_score(source_of(segmenter), " ")
    assert (score.text, score.log_probability) == ("", 0.0)


def test_what_cannot_be_answered_is_a_sentence(segmenter: Segmenter, tmp_path: Path) -> None:
    source = source_of(segmenter)
    with pytest.raises(UserError, match="longer than 2,000 characters"):
        segmenter.prefix_score(source, "a" * 2_001)
    with pytest.raises(UserError, match="was trained with"):
        segmenter.prefix_score(None if segmenter.has_source else "a", "a")
    protecting: Vocabulary = letters_vocabulary()
    other = Segmenter.load(save_segmenter(tmp_path / "s", protecting, source=False))
    with pytest.raises(UserError, match="protected string"):
        other.prefix_score(None, "a")
