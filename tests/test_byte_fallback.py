"""Models with byte fallback: SentencePiece's own segmentation, lossless on any text, exact in the lattice."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from dpe import Segmenter
from dpe.errors import UserError
from dpe.text.bpe import BpeDropout
from dpe.text.draws import Draw
from dpe.text.formats import format_pieces, parse_line
from dpe.text.segmenters import LongestMatch
from dpe.text.unigram import Unigram
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, byte_piece, pieces_by_word, split_words
from tests.oracles import brute_force, log_sum_exp
from tests.segmenters import save_segmenter
from tests.test_vocabulary import ODD_LINES, train
from tests.vocabularies import LETTERS, LONGER, make_vocabulary

LITERAL = ["<0xE2>", "<0xE2> <0x98>☃", "☃<0xE2>☃ <0x>", "<0xe2><0x41>A", "▁☃ ▁"]
any_line = st.one_of(st.text(), st.sampled_from(ODD_LINES + LITERAL), st.text(alphabet="ab ☃ñ<0xE2>▁😀"))


def with_bytes(vocabulary: Vocabulary) -> Vocabulary:
    """The same vocabulary with byte fallback; the byte pieces come last."""
    model = sentencepiece_model_pb2.ModelProto.FromString(vocabulary.content)
    model.trainer_spec.byte_fallback = True
    for byte in range(256):
        model.pieces.add(piece=byte_piece(byte), score=0.0, type=6)
    return Vocabulary(model.SerializeToString())


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabulary(request: pytest.FixtureRequest, text: list[str]) -> Vocabulary:
    """As the pipelines around Marian learn it."""
    literal = [*text, *["x<0xE2> y<0xE2>"] * 3]
    return Vocabulary(train(literal, model_type=request.param, vocab_size=380, byte_fallback=True))


@given(line=any_line)
@example(line="ñ☃" * 20_000)
def test_the_segmentation_is_sentencepieces_and_lossless(line: str, vocabulary: Vocabulary) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.content)
    pieces, marked = vocabulary.encode(line), vocabulary.normalize(line)
    assert pieces == processor.encode(line, out_type=str)
    assert vocabulary.piece_ids(pieces) == processor.encode(line)
    assert "".join(vocabulary.surfaces(pieces)) == marked
    assert vocabulary.decode(pieces) == marked.replace(MARKER, " ").removeprefix(" ")
    assert vocabulary.decode_ids(vocabulary.piece_ids(pieces)) == vocabulary.decode(pieces)
    assert vocabulary.unk_id not in vocabulary.piece_ids(pieces)


@given(line=any_line)
def test_every_method_is_lossless(line: str, vocabulary: Vocabulary) -> None:
    methods = [LongestMatch(vocabulary)]
    if vocabulary.type == "bpe":
        assert BpeDropout(vocabulary, dropout=0).cut(line) == vocabulary.encode(line)
        methods += [BpeDropout(vocabulary, dropout=p) for p in (0.3, 1)]
    else:
        methods += [Unigram(vocabulary, alpha=0.3, nbest=n) for n in (-1, 4)]
    for method in methods:
        pieces = method.cut(line, Draw(line=3))
        assert "".join(vocabulary.surfaces(pieces)) == vocabulary.normalize(line)
        assert vocabulary.unk_id not in vocabulary.piece_ids(pieces)
        words = split_words(vocabulary.normalize(line))
        assert list(map("".join, pieces_by_word(words, pieces, vocabulary.byte_ids))) == words


@given(line=st.text(alphabet="talosñ☃ <0xE2>😀", max_size=30))
def test_every_format_is_read_back(line: str, vocabulary: Vocabulary) -> None:
    pieces, plain = vocabulary.encode(line), vocabulary.decode(vocabulary.encode(line))
    for form in ("pieces", "subword-nmt", "ids"):
        written = format_pieces(pieces, form, vocabulary)
        assert vocabulary.decode(parse_line(written, form, vocabulary)) == plain
        if form == "subword-nmt":
            assert written.replace("@@ ", "") == plain


@given(content=st.binary(max_size=12))
@example(content=b"\xe2\x98")
@example(content=b"\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80")
def test_bytes_that_are_no_text_are_read_as_sentencepiece_reads_them(
    content: bytes, vocabulary: Vocabulary
) -> None:
    """A translator may write any bytes."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.content)
    ids = vocabulary.piece_ids([MARKER, "a", *map(byte_piece, content), "a"])
    assert vocabulary.decode_ids(ids).replace(" ", MARKER) == processor.decode(ids).replace(" ", MARKER)


def test_the_bytes_of_a_character_count_as_one_unknown() -> None:
    scores = {MARKER: -3.0, "a": -2.0, "ña": -16.0}
    plain = make_vocabulary(scores, type="unigram")
    for line in range(200):
        expected = Unigram(plain, alpha=0.3, nbest=8).cut("ñaña", Draw(line=line))
        found = Unigram(with_bytes(plain), alpha=0.3, nbest=8).cut("ñaña", Draw(line=line))
        assert [p for p in with_bytes(plain).surfaces(found) if p] == expected


def test_protected_strings_of_a_unigram_model(text: list[str]) -> None:
    options = {"model_type": "unigram", "vocab_size": 380, "byte_fallback": True}
    vocabulary = Vocabulary(train(text, user_defined_symbols=["talossa", "<ph>"], **options))
    pieces = vocabulary.encode("☃talossa <ph>ñ")
    assert {"talossa", "<ph>"} < set(pieces)
    assert pieces[-2:] == ["<0xC3>", "<0xB1>"]
    assert vocabulary.decode(pieces) == "☃talossa <ph>ñ"


@pytest.mark.parametrize("target", ["", "a", "abc bca", "a☃b ☃☃", "xy x y", "ccñ abxy"])
@pytest.mark.parametrize("decoder", ["characters", "words"])
def test_every_segmentation_once_and_exactly(target: str, decoder: str, tmp_path: Path) -> None:
    """An unknown character is one edge with one score, whatever is written for it."""
    vocabulary = with_bytes(make_vocabulary(LETTERS + LONGER, protected=["cc"]))
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary, decoder=decoder))
    cuts = brute_force(segmenter, "ab ☃", target)
    every = segmenter.n_best("ab ☃", target, n=len(cuts) + 5)
    assert [cut.score for cut in every] == pytest.approx(sorted(cuts.values(), reverse=True), abs=1e-4)
    assert math.fsum(cut.probability for cut in every) == pytest.approx(1.0, abs=1e-9)
    assert every[0].log_partition == pytest.approx(log_sum_exp(list(cuts.values())), abs=1e-4)
    written = [
        tuple(
            p for piece in cut for p in ([piece] if piece in vocabulary.ids else vocabulary.bytes_of(piece))
        )
        for cut in cuts
    ]
    assert Counter(cut.pieces for cut in every) == Counter(written)
    marked = vocabulary.normalize(target)
    for cut in every:
        assert "".join(cut.texts) == marked
        assert tuple(marked[begin:end] for begin, end in cut.offsets) == cut.texts
        assert vocabulary.unk_id not in cut.ids
        assert vocabulary.decode(cut.pieces) == target


def test_a_byte_that_is_text_too_is_refused() -> None:
    with pytest.raises(UserError, match="'<0xE2>' both as a byte and as text"):
        with_bytes(make_vocabulary([("▁", -1.0), ("<0xE2>", -2.0)]))
