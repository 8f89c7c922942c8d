"""Lattices against brute force: every way to cut a word, and the flat and padded forms of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from dpe.lattice.lattice import LatticeBatch, LatticeBuilder, WordLattice
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, split_words
from tests.vocabularies import make_vocabulary

END = 3
letters = st.text(alphabet="abc", min_size=1, max_size=4)
pieces = st.builds(lambda marker, rest: marker + rest, st.sampled_from(["", MARKER]), letters) | st.just(
    MARKER
)
words = st.text(alphabet="abcx", max_size=7).map(lambda text: MARKER + text)
sentences = st.lists(st.lists(words, max_size=4), min_size=1, max_size=4)


@st.composite
def vocabularies(draw: st.DrawFn, *, with_protected: bool = True) -> Vocabulary:
    plain = draw(st.sets(pieces, min_size=1, max_size=12))
    protected = draw(st.sets(letters, max_size=2)) if with_protected else set()
    return make_vocabulary(
        [(piece, -1.0) for piece in sorted(plain - protected)], protected=sorted(protected)
    )


def protected_places(word: str, vocabulary: Vocabulary) -> list[tuple[int, int]]:
    """From the left, the longest protected string at each place."""
    places, start = [], 0
    while start < len(word):
        found = [p for p in vocabulary.protected if word.startswith(p, start)]
        if found:
            places.append((start, start + max(map(len, found))))
        start = places[-1][1] if found else start + 1
    return places


def is_edge(word: str, start: int, end: int, vocabulary: Vocabulary) -> bool:
    """The rule, for one span."""
    places = protected_places(word, vocabulary)
    if (start, end) in places:
        return True
    if any(start < other_end and other_start < end for other_start, other_end in places):
        return False
    return word[start:end] in vocabulary.ids or end - start == 1


def cuts_by_definition(word: str, vocabulary: Vocabulary) -> set[tuple[int, ...]]:
    """All sets of inner boundaries whose parts are all edges."""
    cuts = set()
    for chosen in product([False, True], repeat=len(word) - 1):
        ends = [i for i, cut in enumerate(chosen, start=1) if cut] + [len(word)]
        if all(is_edge(word, a, b, vocabulary) for a, b in zip([0, *ends], ends, strict=False)):
            cuts.add(tuple(ends))
    return cuts


def paths(lattice: WordLattice, start: int = 0) -> Iterator[tuple[int, ...]]:
    if start == lattice.length:
        yield ()
    for edge_start, span, _ in lattice.edges.tolist():
        if edge_start == start:
            end = start + span + 1
            yield from ((end, *rest) for rest in paths(lattice, end))


def is_connected(lattice: WordLattice) -> bool:
    reached = {0}
    for start, span, _ in lattice.edges.tolist():  # ordered by start
        if start in reached:
            reached.add(start + span + 1)
    return lattice.length in reached


@given(vocabularies(), words)
@example(make_vocabulary([(MARKER, 0), ("ca", 0), ("bc", 0)], protected=["ab", "abc"]), MARKER + "abcabab")
def test_paths_are_the_cuts_of_the_definition(vocabulary: Vocabulary, word: str) -> None:
    found = list(paths(LatticeBuilder(vocabulary).word(word)))
    assert len(found) == len(set(found))
    assert set(found) == cuts_by_definition(word, vocabulary)


@given(vocabularies(), words)
def test_edges_are_ordered_and_name_their_text(vocabulary: Vocabulary, word: str) -> None:
    lattice = LatticeBuilder(vocabulary).word(word)
    spans = list(zip(lattice.starts.tolist(), lattice.spans.tolist(), strict=True))
    assert spans == sorted(set(spans))
    for (start, span), piece in zip(spans, lattice.pieces.tolist(), strict=True):
        text = word[start : start + span + 1]
        assert vocabulary.pieces[piece] == text or (piece == vocabulary.unk_id and text not in vocabulary.ids)


@given(st.text(max_size=40))
@example("a" * 200)
@example("\U0001f468\u200d\U0001f469\u200d\U0001f467 ▁▁ é \u202eab <s></s><unk> \ue000")
def test_any_text_is_connected(text: str) -> None:
    vocabulary = make_vocabulary([(MARKER, -1.0), ("ab", -2.0), ("a", -3.0)], protected=["</s", "é"])
    lattices = LatticeBuilder(vocabulary)
    marked = vocabulary.normalize(text)
    assert all(is_connected(lattices.word(word)) for word in split_words(marked))


def edge_texts(vocabulary: Vocabulary, word: str) -> list[tuple[str, int]]:
    lattice = LatticeBuilder(vocabulary).word(word)
    return [(word[start : start + span + 1], piece) for start, span, piece in lattice.edges.tolist()]


def test_a_character_in_no_piece_is_in_every_cut() -> None:
    vocabulary = make_vocabulary([(MARKER, 0.0), ("a", 0.0), ("aa", 0.0)])
    ids = vocabulary.ids
    assert edge_texts(vocabulary, MARKER + "axaa") == [
        (MARKER, ids[MARKER]),
        ("a", ids["a"]),
        ("x", vocabulary.unk_id),
        ("a", ids["a"]),
        ("aa", ids["aa"]),
        ("a", ids["a"]),
    ]


def test_a_character_only_in_longer_pieces_is_not_a_dead_end() -> None:
    vocabulary = make_vocabulary([(MARKER, 0.0), ("ab", 0.0)])
    unknown = vocabulary.unk_id
    assert edge_texts(vocabulary, "ab") == [("a", unknown), ("ab", vocabulary.ids["ab"]), ("b", unknown)]


def test_a_protected_string_is_one_edge() -> None:
    listed = [MARKER, "x", "U", "UR", "L", "xU", "Lx", "RL"]
    vocabulary = make_vocabulary([(piece, 0.0) for piece in listed], protected=["URL"])
    texts = [text for text, _ in edge_texts(vocabulary, MARKER + "xURLxUR")]
    assert texts == [MARKER, "x", "URL", "x", "xU", "U", "UR", "R"]


@pytest.mark.parametrize("name", ["<s>", "</s>", "<pad>", "<unk>"])
def test_special_pieces_never_match_text(name: str) -> None:
    vocabulary = make_vocabulary([(piece, 0.0) for piece in (MARKER, *sorted(set(name)))])
    assert edge_texts(vocabulary, MARKER + name) == [(c, vocabulary.ids[c]) for c in MARKER + name]


@pytest.mark.parametrize("length", [5_000, 100_000])
def test_long_words(length: int) -> None:
    vocabulary = make_vocabulary([("a", 0.0), ("aa", 0.0), ("aaaa", 0.0)])
    lattice = LatticeBuilder(vocabulary).word("a" * length)
    assert np.bincount(lattice.spans).tolist() == [length, length - 1, 0, length - 3]


def flat_by_definition(
    lattices: LatticeBuilder, batch: list[list[str]], stride: int
) -> list[tuple[int, int, int | None, int, int]]:
    """(position, piece, word, start, span) of every edge, one at a time; no word for an end of sentence."""
    flat: list[tuple[int, int, int | None, int, int]] = []
    number = 0
    for row, sentence in enumerate(batch):
        offset = row * stride
        for word in sentence:
            edges = lattices.word(word).edges.tolist()
            flat += [(offset + start, piece, number, start, span) for start, span, piece in edges]
            offset += len(word)
            number += 1
        flat.append((offset, END, None, 0, 0))
    return flat


def batch_of(lattices: LatticeBuilder, batch: list[list[str]], *, spare: int = 1) -> tuple[LatticeBatch, int]:
    stride = max(len("".join(sentence)) for sentence in batch) + spare
    return lattices.batch(batch, stride=stride, end_piece=END), stride


@given(vocabularies(), sentences, st.integers(1, 3))
def test_flat_edges_of_a_batch(vocabulary: Vocabulary, batch: list[list[str]], spare: int) -> None:
    lattices = LatticeBuilder(vocabulary)
    made, stride = batch_of(lattices, batch, spare=spare)
    expected = flat_by_definition(lattices, batch, stride)
    assert made.edge_positions.tolist() == [position for position, *_ in expected]
    assert made.edge_positions.tolist() == sorted(made.edge_positions.tolist())
    assert made.edge_pieces.tolist() == [piece for _, piece, *_ in expected]
    assert made.end_edges.tolist() == [i for i, edge in enumerate(expected) if edge[2] is None]
    assert made.word_sentence.tolist() == [row for row, words in enumerate(batch) for _ in words]
    begins = {word: position - start for position, _, word, start, _ in expected if word is not None}
    assert made.word_positions.tolist() == list(begins.values())


@given(vocabularies(), sentences, st.integers(0, 40))
def test_buckets_hold_every_word_once(vocabulary: Vocabulary, batch: list[list[str]], longer: int) -> None:
    batch = [*batch, [MARKER + "ab" * longer]]
    lattices = LatticeBuilder(vocabulary)
    made, stride = batch_of(lattices, batch)
    flat = flat_by_definition(lattices, batch, stride)
    scores = torch.arange(len(flat), dtype=torch.float64)
    all_words = [word for sentence in batch for word in sentence]
    assert sorted(n for bucket in made.buckets for n in bucket.words.tolist()) == list(range(len(all_words)))
    for bucket in made.buckets:
        expected = torch.full(bucket.shape, float("-inf"), dtype=torch.float64)
        rows = {number: row for row, number in enumerate(bucket.words.tolist())}
        for i, (_, _, word, start, span) in enumerate(flat):
            if word in rows:
                expected[rows[word], start, span] = scores[i]
        found = bucket.scatter(scores)
        assert torch.equal(found, expected)
        assert torch.equal(found.flatten()[bucket.cells].long(), bucket.edges)
        assert (bucket.cells.diff() > 0).all()
        assert bucket.lengths.tolist() == [len(all_words[number]) for number in rows]


def padded_ids(lattices: LatticeBuilder, batch: list[list[str]]) -> list[list[tuple[int, int, int]]]:
    """Start, span and piece of the edges of each word of a batch, read from the padded tensors."""
    made, _ = batch_of(lattices, batch)
    cells: dict[int, list[tuple[int, int, int]]] = {}
    for bucket in made.buckets:
        padded = bucket.scatter(torch.arange(len(made.edge_pieces), dtype=torch.float64))
        for number, edges in zip(bucket.words.tolist(), padded, strict=True):
            where = edges.isfinite().nonzero().tolist()
            cells[number] = [
                (start, span, int(made.edge_pieces[int(edges[start, span])])) for start, span in where
            ]
    return [cells[number] for number in sorted(cells)]


@given(vocabularies(), sentences, st.randoms(use_true_random=False))
def test_a_word_is_the_same_in_every_batch(vocabulary: Vocabulary, batch: list[list[str]], random) -> None:
    lattices = LatticeBuilder(vocabulary)
    alone = [padded_ids(lattices, [sentence]) for sentence in batch]
    order = random.sample(range(len(batch)), len(batch))
    together = padded_ids(lattices, [batch[i] for i in order])
    assert together == [cells for i in order for cells in alone[i]]


def test_one_long_word_does_not_pad_the_others() -> None:
    vocabulary = make_vocabulary([(piece, 0.0) for piece in (MARKER, "a", "aa", MARKER + "aaa")])
    short = [[MARKER + "a" * (i % 12) for i in range(50)] for _ in range(10)]
    made, _ = batch_of(LatticeBuilder(vocabulary), [*short, [MARKER + "a" * 5_000]])
    assert sorted(bucket.shape for bucket in made.buckets) == [(1, 5001, 4), (500, 12, 4)]


def test_the_longest_span_present_sets_the_span_dimension() -> None:
    vocabulary = make_vocabulary([(MARKER, 0.0), ("a", 0.0)], protected=["b" * 60])
    made, _ = batch_of(LatticeBuilder(vocabulary), [[MARKER + "a" * 14]])
    assert [bucket.shape for bucket in made.buckets] == [(1, 15, 1)]


def test_gradient_reaches_each_edge_once() -> None:
    vocabulary = make_vocabulary([(piece, 0.0) for piece in (MARKER, "a", "b", "ab", "aba")])
    made, _ = batch_of(LatticeBuilder(vocabulary), [[MARKER + "abab", MARKER], [], [MARKER + "ab" * 20]])
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(len(made.edge_pieces), generator=random, dtype=torch.float64, requires_grad=True)
    assert len(made.buckets) == 2
    # exp(-inf) is 0, so the sum over all cells is the sum over the words' edges
    sum(bucket.scatter(scores).exp().sum() for bucket in made.buckets).backward()  # type: ignore[union-attr]
    expected = scores.detach().exp()
    expected[made.end_edges] = 0
    assert scores.grad is not None
    torch.testing.assert_close(scores.grad, expected)


def test_batches_move_between_devices() -> None:
    vocabulary = make_vocabulary([(MARKER, 0.0), ("a", 0.0)])
    made, _ = batch_of(LatticeBuilder(vocabulary), [[MARKER + "aa"], [MARKER]])
    moved = made.to("meta")
    scores = torch.empty(len(made.edge_pieces), device="meta", dtype=torch.bfloat16)
    padded = [bucket.scatter(scores) for bucket in moved.buckets]
    assert [(p.device.type, p.dtype, tuple(p.shape)) for p in padded] == [("meta", torch.bfloat16, (2, 3, 1))]
    assert moved.edge_positions.is_meta
    assert moved.edge_pieces.is_meta
    assert moved.end_edges.is_meta
    assert moved.word_sentence.is_meta


def test_only_empty_sentences() -> None:
    made, _ = batch_of(LatticeBuilder(make_vocabulary([("a", 0.0)])), [[], []])
    assert made.edge_positions.tolist() == [0, 1]
    assert made.edge_pieces.tolist() == [END, END]
    assert made.buckets == ()


def test_a_stride_that_mixes_sentences_up_is_refused() -> None:
    lattices = LatticeBuilder(make_vocabulary([("a", 0.0)]))
    with pytest.raises(ValueError, match="larger stride"):
        lattices.batch([["aaa"]], stride=3, end_piece=END)


def test_unused_pieces_never_match_text() -> None:
    model = sentencepiece_model_pb2.ModelProto.FromString(
        make_vocabulary([(MARKER, 0.0), ("a", 0.0), ("aa", 0.0)]).content
    )
    model.pieces[-1].type = model.SentencePiece.UNUSED
    vocabulary = Vocabulary(model.SerializeToString())
    assert "aa" not in vocabulary.ids
    assert LatticeBuilder(vocabulary).word(f"{MARKER}aaa").spans.tolist() == [0, 0, 0, 0]
