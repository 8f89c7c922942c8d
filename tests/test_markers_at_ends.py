"""Models that mark where words end (`two▁words▁`): lossless, exact, read back, as those that mark starts."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st

from dpe import Segmenter
from dpe.errors import UserError
from dpe.evaluation.segmented_text import read_cut_tokens, read_pieces
from dpe.text.bpe import BpeDropout
from dpe.text.draws import Draw
from dpe.text.formats import format_pieces, parse_line
from dpe.text.segmenters import CountSegmenter, LongestMatch
from dpe.text.unigram import Unigram
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, split_words
from tests.oracles import brute_force, log_sum_exp
from tests.segmenters import save_segmenter
from tests.test_vocabulary import ODD_LINES, train
from tests.vocabularies import LETTERS, make_vocabulary

any_line = st.one_of(st.text(), st.sampled_from(ODD_LINES), st.text(alphabet="talos ▁ñ<ph>"))


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def vocabulary(request: pytest.FixtureRequest, text: list[str]) -> Vocabulary:
    options = {"model_type": request.param, "vocab_size": 120, "user_defined_symbols": ["<ph>"]}
    return Vocabulary(train(text, treat_whitespace_as_suffix=True, **options))


def test_words_end_with_their_marker() -> None:
    assert split_words("two▁words▁", at_ends=True) == ["two▁", "words▁"]
    assert split_words("two▁▁x", at_ends=True) == ["two▁", "▁", "x"]
    assert split_words("", at_ends=True) == []


@given(line=any_line)
@example(line="ñ☃ ñ")
@example(line="talossa<ph>")
def test_every_method_is_lossless(line: str, vocabulary: Vocabulary) -> None:
    marked = vocabulary.normalize(line)
    assert marked.endswith(MARKER) or not marked
    methods: list[CountSegmenter] = [LongestMatch(vocabulary)]
    if vocabulary.type == "bpe":
        processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.content)
        assert BpeDropout(vocabulary, dropout=0).cut(line) == processor.encode(line, out_type=str)
        methods += [BpeDropout(vocabulary, dropout=p) for p in (0.3, 1)]
    else:
        methods += [Unigram(vocabulary), *(Unigram(vocabulary, alpha=0.3, nbest=n) for n in (-1, 4))]
    for method in methods:
        pieces = method.cut(line, Draw(line=3))
        assert "".join(pieces) == marked
        assert vocabulary.decode(pieces) == marked[:-1].replace(MARKER, " ")


@given(line=st.text(alphabet="talosñ☃ ", max_size=30))
def test_every_format_is_read_back(line: str, vocabulary: Vocabulary) -> None:
    pieces, plain = vocabulary.encode(line), vocabulary.decode(vocabulary.encode(line))
    for form in ("pieces", "subword-nmt"):
        written = format_pieces(pieces, form, vocabulary)
        assert vocabulary.decode(parse_line(written, form, vocabulary)) == plain
        if form == "subword-nmt":
            assert written.replace("@@ ", "") == plain
            assert MARKER not in written


@pytest.mark.parametrize("every", [True, False])
def test_subword_nmt_keeps_the_segmentation(every: bool) -> None:
    entries = [(MARKER, -1.0), ("t", -2.0), ("wo▁", -3.0), ("wo", -4.0)]
    vocabulary = make_vocabulary(entries, at_ends=True, prefix=every)
    pieces = ["t", "wo▁", "t", "wo▁" if every else "wo"]
    assert format_pieces(pieces, "subword-nmt", vocabulary) == "t@@ wo t@@ wo"
    assert parse_line("t@@ wo t@@ wo", "subword-nmt", vocabulary) == pieces
    assert vocabulary.decode(pieces) == "two two"
    assert format_pieces(["wo", MARKER, *pieces], "subword-nmt", vocabulary) == "wo t@@ wo t@@ wo"


LONGER = [("ab", -5.0), ("ba▁", -6.0), ("bc", -7.0), ("a▁", -8.0), ("abc▁", -9.0), ("xy", -10.0)]


@pytest.mark.parametrize("target", ["", "a", "abc bca", "a☃b ☃☃", "xy x y"])
def test_every_segmentation_once_and_exactly(target: str, tmp_path: Path) -> None:
    vocabulary = make_vocabulary(LETTERS + LONGER, at_ends=True)
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary))
    cuts = brute_force(segmenter, "ab ☃", target)
    every = segmenter.n_best("ab ☃", target, n=len(cuts) + 5)
    assert [cut.score for cut in every] == pytest.approx(sorted(cuts.values(), reverse=True), abs=1e-4)
    assert every[0].log_partition == pytest.approx(log_sum_exp(list(cuts.values())), abs=1e-4)
    assert math.fsum(cut.probability for cut in every) == pytest.approx(1.0, abs=1e-9)
    written = [tuple(vocabulary.write_unknown("".join(cut), list(cut))) for cut in cuts]
    assert Counter(cut.pieces for cut in every) == Counter(written)
    if target == "abc bca":
        assert {("abc▁", "bc", "a▁"), ("a", "bc", "▁", "bc", "a", "▁")} < {cut.pieces for cut in every}


def test_a_piece_that_crosses_a_boundary_is_refused() -> None:
    with pytest.raises(UserError, match="only be last"):
        make_vocabulary({MARKER: -1.0, "▁a": -2.0}, at_ends=True)


def test_a_decoder_over_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at the start of words"):
        save_segmenter(tmp_path / "s", make_vocabulary(LETTERS + LONGER, at_ends=True), decoder="words")


def test_evaluation_reads_such_pieces(tmp_path: Path) -> None:
    (tmp_path / "ends").write_text("cart s▁ of▁ ☃ ▁\n\ncart▁\n", "utf-8")
    (tmp_path / "starts").write_text("▁cart s ▁of ▁☃\n\n▁cart\n", "utf-8")
    assert list(read_pieces(tmp_path / "ends")) == list(read_pieces(tmp_path / "starts"))
    assert list(read_cut_tokens(tmp_path / "ends")) == list(read_cut_tokens(tmp_path / "starts"))
