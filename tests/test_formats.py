"""Lines of pieces, as written and read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpe.errors import UserError
from dpe.text.bpe import BpeDropout
from dpe.text.draws import Draw
from dpe.text.formats import FORMATS, format_pieces, parse_line
from dpe.text.segmenters import LongestMatch
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER
from tests.vocabularies import make_vocabulary

any_line = st.one_of(st.text(), st.text(alphabet="abtalo ▁@ñ\u00a0\t", max_size=30))
tags = st.lists(st.sampled_from(["<s>", "</s>", "<pad>", "<unk>", "a", "s", "ñ", " "]), max_size=6)


def undo_joints(line: str) -> str:
    """What subword-nmt's own `sed -r 's/(@@ )|(@@ ?$)//g'` does."""
    return re.sub("(@@ )|(@@ ?$)", "", line)


@given(line=any_line, number=st.integers(0, 3))
def test_pieces_come_back_as_they_were(line: str, number: int, bpe_vocabulary: Vocabulary) -> None:
    pieces = BpeDropout(bpe_vocabulary, dropout=0.3).cut(line, Draw(line=number))
    assert parse_line(format_pieces(pieces, "pieces", bpe_vocabulary), "pieces", bpe_vocabulary) == pieces


@given(parts=tags, known=st.text(alphabet="<>/spaduñ", max_size=4), prefix=st.booleans())
def test_text_that_reads_like_a_control_piece_is_kept(parts: list[str], known: str, prefix: bool) -> None:
    vocabulary = make_vocabulary(dict.fromkeys([MARKER, *dict.fromkeys(known)], -9.0), prefix=prefix)
    line = "".join(parts)
    for cut in (vocabulary.encode(line), LongestMatch(vocabulary).cut(line, Draw())):
        assert parse_line(format_pieces(cut, "pieces", vocabulary), "pieces", vocabulary) == cut


@given(line=any_line, number=st.integers(0, 3), prefix=st.booleans())
def test_joints_are_undone_by_sed_and_by_us(line: str, number: int, prefix: bool) -> None:
    scores = dict.fromkeys([MARKER, *"abtalo@"], -9.0) | {"▁t": -1.0, "al": -2.0, "alo": -3.0, "@@": -4.0}
    vocabulary = make_vocabulary(scores, prefix=prefix)
    plain = vocabulary.normalize(line).replace(MARKER, " ").removeprefix(" " if prefix else "")
    assume("@@ " not in plain and not plain.endswith("@@"))
    pieces = BpeDropout(vocabulary, dropout=0.3).cut(line, Draw(line=number))
    written = format_pieces(pieces, "subword-nmt", vocabulary)
    assert undo_joints(written) == plain
    assert vocabulary.decode(parse_line(written, "subword-nmt", vocabulary)) == plain


@pytest.mark.parametrize(
    ("pieces", "written"),
    [
        (["▁two", "▁word", "s"], "two word@@ s"),
        (["▁", "x", "▁y"], "x y"),
        (["▁a", "▁", "▁b"], "a  b"),
        (["▁a", "@", "@"], "a@@ @@@ @"),
        ([], ""),
    ],
)
def test_subword_nmt_text(pieces: list[str], written: str, bpe_vocabulary: Vocabulary) -> None:
    assert format_pieces(pieces, "subword-nmt", bpe_vocabulary) == written
    plain = "".join(pieces).replace(MARKER, " ").removeprefix(" ")
    assert bpe_vocabulary.decode(parse_line(written, "subword-nmt", bpe_vocabulary)) == plain


def test_pieces_that_begin_a_word_come_back_from_joints(bpe_vocabulary: Vocabulary) -> None:
    assert parse_line("two word@@ s", "subword-nmt", bpe_vocabulary) == ["▁two", "▁word", "s"]


def test_a_word_that_ends_like_a_joint_is_joined_to_the_next(bpe_vocabulary: Vocabulary) -> None:
    written = format_pieces(["▁x@@", "▁y"], "subword-nmt", bpe_vocabulary)
    assert undo_joints(written) == bpe_vocabulary.decode(parse_line(written, "subword-nmt", bpe_vocabulary))
    assert undo_joints(written) == "xy"


def test_a_last_joint_is_removed(bpe_vocabulary: Vocabulary) -> None:
    for written in ("tal@@ o ta@@", "tal@@ o ta@@ "):
        decoded = bpe_vocabulary.decode(parse_line(written, "subword-nmt", bpe_vocabulary))
        assert decoded == undo_joints(written) == "talo ta"


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("( ▁talo )", "( talo)"),
        ("talo ▁on", "talo on"),
        ("talossa", "talossa"),
        ("t a", "ta"),
        (") )", "))"),  # unknown characters
        ("<s> ▁talo ssa </s> <pad> <pad>", "talossa"),
        ("▁talo <unk> ▁on", "talo\u2047 on"),
        ("<unk> <unk>", "\u2047\u2047"),
        ("</s>", ""),
    ],
)
def test_lines_of_other_toolkits_are_read(line: str, plain: str, bpe_vocabulary: Vocabulary) -> None:
    assert bpe_vocabulary.decode(parse_line(line, "pieces", bpe_vocabulary)) == plain


@pytest.mark.parametrize(
    ("line", "other"), [("talossa on", "talossa"), ("ñ talossa", "talossa"), ("t a@@ lo", "a@@")]
)
def test_text_that_is_not_pieces_is_refused(line: str, other: str, bpe_vocabulary: Vocabulary) -> None:
    with pytest.raises(UserError, match=rf"'{line}' contains no U\+2581, and '{other}' is not a piece"):
        parse_line(line, "pieces", bpe_vocabulary)


@pytest.mark.parametrize(
    ("line", "format", "says"),
    [
        ("▁talo ssa", "subword-nmt", "is it --format pieces"),
        ('{"pieces": ["▁talo", "ssa"], "offsets": [[0, 5]]}', "pieces", "--format jsonl"),
        ('{"cuts": [{"pieces": ["▁talo", "ssa"]}]}', "pieces", "--format jsonl"),
    ],
)
def test_lines_of_another_format_are_refused(
    line: str, format: str, says: str, bpe_vocabulary: Vocabulary
) -> None:
    with pytest.raises(UserError, match=says):
        parse_line(line, format, bpe_vocabulary)


def test_ids_are_sentencepieces_and_lose_unknown_text(bpe_vocabulary: Vocabulary, text: list[str]) -> None:
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=bpe_vocabulary.content)
    for line in [*text[:50], "talo ñññ€ talo", ""]:
        written = format_pieces(bpe_vocabulary.encode(line), "ids", bpe_vocabulary)
        assert written == " ".join(map(str, processor.encode(line)))
        pieces = parse_line(written, "ids", bpe_vocabulary)
        assert bpe_vocabulary.decode(pieces) == re.sub("[ñ€]+", "\u2047", line)


def test_special_ids_are_silent(bpe_vocabulary: Vocabulary) -> None:
    ids = [bpe_vocabulary.bos_id, *bpe_vocabulary.piece_ids(["▁", "a"]), bpe_vocabulary.eos_id]
    written = " ".join(map(str, [*ids, bpe_vocabulary.pad_id]))
    assert parse_line(written, "ids", bpe_vocabulary) == ["▁", "a"]


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "٣", "1_0", "160", "99999999999999999999"])
def test_what_is_no_id_is_named(token: str, bpe_vocabulary: Vocabulary) -> None:
    assert len(bpe_vocabulary) == 160
    with pytest.raises(UserError, match=re.escape(repr(token)) + ".*0 to 159"):
        parse_line(f"5 {token} 6", "ids", bpe_vocabulary)


def test_an_unknown_format_is_a_sentence(bpe_vocabulary: Vocabulary) -> None:
    with pytest.raises(UserError, match=", ".join(FORMATS)):
        format_pieces([], "json", bpe_vocabulary)
    with pytest.raises(UserError, match=", ".join(FORMATS)):
        parse_line("", "json", bpe_vocabulary)
