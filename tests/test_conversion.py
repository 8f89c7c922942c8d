"""Vocabularies of other tools: dpe segments as the tools themselves do, or refuses and says why."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import assume, example, given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe
from tokenizers import Tokenizer, normalizers
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Whitespace

from dpe.errors import UserError
from dpe.text.bpe import BpeDropout
from dpe.text.conversion import convert, from_hugging_face, from_subword_nmt
from dpe.text.corpus import read_lines
from dpe.text.draws import Draw
from dpe.text.formats import format_pieces
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER
from tests.segment_command import Dpe
from tests.segmenters import PAIRS

LINES = [side for pair in PAIRS for side in pair]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
REAL = Path(os.environ.get("DPE_DATA", "data")) / "multi30k/en-de/train.de.xz"
needs_real_text = pytest.mark.skipif(not REAL.exists(), reason="DPE_DATA names no directory with multi30k")


def learned_codes(lines: Iterable[str], merges: int) -> list[str]:
    out = io.StringIO()
    learn_bpe(iter(lines), out, merges)
    return out.getvalue().split("\n")[:-1]


def apply_bpe(codes: Sequence[str], line: str, **options: Any) -> str:
    """What `subword-nmt apply-bpe` writes, without spaces at the ends of the line."""
    return str(BPE(io.StringIO("\n".join(codes) + "\n"), **options).segment(line))


def cut(vocabulary: Vocabulary, line: str) -> str:
    pieces = vocabulary.encode(line)
    assert BpeDropout(vocabulary, dropout=0).cut(line) == pieces
    return format_pieces(pieces, "subword-nmt", vocabulary)


@pytest.fixture(scope="module")
def codes() -> list[str]:
    return learned_codes(LINES, 300)


@pytest.fixture(scope="module")
def vocabulary(codes: list[str]) -> Vocabulary:
    return from_subword_nmt(codes, name="codes", text=LINES)


def test_codes_segment_as_subword_nmt_does(codes: list[str], vocabulary: Vocabulary) -> None:
    bpe = BPE(io.StringIO("\n".join(codes)))
    for line in LINES:
        assert cut(vocabulary, line) == bpe.segment(line)
        assert vocabulary.decode(vocabulary.encode(line)) == line


@given(line=st.text(alphabet="talosinek .,aae\t\xa0", max_size=40))
@example(line="aaaaaaaaaaa a  a ")
def test_codes_segment_any_text_as_subword_nmt_does(
    line: str, codes: list[str], vocabulary: Vocabulary
) -> None:
    assume(set(line) <= {*vocabulary.characters, " "})
    assert cut(vocabulary, line) == apply_bpe(codes, line)


@needs_real_text
def test_codes_on_ten_thousand_real_lines() -> None:
    lines = list(islice(read_lines(REAL), 10_000))
    codes = learned_codes(lines[:1000], 400)
    vocabulary, bpe = from_subword_nmt(codes, name="codes", text=lines), BPE(io.StringIO("\n".join(codes)))
    assert [line for line in lines if cut(vocabulary, line) != bpe.segment(line)] == []


def test_a_character_that_was_never_merged_is_a_piece_if_the_text_has_it(codes: list[str]) -> None:
    with_text = from_subword_nmt(codes, name="codes", text=["☃ñ"])
    assert cut(with_text, "ñ☃ talo☃ ☃") == apply_bpe(codes, "ñ☃ talo☃ ☃")
    without = from_subword_nmt(codes, name="codes")
    assert without.encode("ñ☃ ☃") == ["ñ☃", MARKER, "☃", MARKER]  # unknown neighbours are one piece


def test_dropout_never_takes_the_end_from_a_word(vocabulary: Vocabulary) -> None:
    """subword-nmt drops merges; `t</w>` is no merge."""
    nothing = BpeDropout(vocabulary, dropout=1)
    assert nothing.cut("talossa on") == ["t", "a", "l", "o", "s", "s", "a▁", "o", "n▁"]
    some = BpeDropout(vocabulary, dropout=0.5)
    seen = set()
    for number, line in enumerate(LINES):
        pieces = some.cut(line, Draw(line=number))
        assert MARKER not in pieces
        seen.add(tuple(pieces) == tuple(vocabulary.encode(line)))
    assert seen == {True, False}


def or_refused(make: Callable[[], Vocabulary]) -> Vocabulary | None:
    try:
        return make()
    except UserError as error:
        if "cannot be represented" not in str(error):
            raise
        return None


@st.composite
def merge_lists(draw: st.DrawFn, mark: Callable[[str], str]) -> list[tuple[str, str]]:
    """Merges of what earlier ones made, in any order; `mark` gives the marked form of a letter."""
    pieces, merges = ["a", "b", mark("a"), mark("b")], []
    for _ in range(draw(st.integers(1, 7))):
        left, right = draw(st.sampled_from(pieces)), draw(st.sampled_from(pieces))
        merges.append((left, right))
        pieces.append(left + right)
    return draw(st.permutations(merges)) if draw(st.booleans()) else merges


@given(merges=merge_lists(lambda letter: letter + "</w>"))
@example(merges=[("a", "b"), ("b", "a"), ("a", "ba")])
@example(merges=[("ab", "a"), ("a", "b")])
@example(merges=[("a", "aa"), ("a", "a"), ("aa", "a"), ("a", "b"), ("a", "b</w>")])
@example(merges=[("b", "a"), ("ba", "ba"), ("ab", "ab"), ("a", "b"), ("b", "a"), ("ba", "b")])
def test_any_codes_are_refused_or_followed_exactly(merges: list[tuple[str, str]]) -> None:
    """On every word of up to seven characters."""
    assume(not any("</w>" in left or right.count("</w>") > right.endswith("</w>") for left, right in merges))
    codes = ["#version: 0.2", *map(" ".join, merges)]
    vocabulary = or_refused(lambda: from_subword_nmt(codes, name="codes", text=["ab"]))
    if vocabulary is None:
        return
    bpe = BPE(io.StringIO("\n".join(codes)))
    for length in range(1, 8):
        for word in map("".join, product("ab", repeat=length)):
            assert cut(vocabulary, word) == bpe.segment(word)


def test_both_answers_are_given() -> None:
    """What the test above tries includes both."""
    fine = ["#version: 0.2", "a b", "ab a</w>"]
    assert cut(from_subword_nmt(fine, name="codes"), "aba") == "aba"
    for wrong, reason in [
        (["a b", "a b</w>", "b a", "a ba"], "does not merge 'ab' with 'a'"),
        (["ab a", "a b"], "merges 'ab' with 'a' before it makes both"),
    ]:
        with pytest.raises(UserError, match=reason):
            from_subword_nmt(["#version: 0.2", *wrong], name="codes")


@pytest.mark.parametrize("line", ["<ph>", "talo <ph> auto", "<ph>talossa", "<ph><ph>talo U.S. U.S.n", "U.Sn"])
def test_a_glossary_stays_whole(line: str, codes: list[str]) -> None:
    vocabulary = from_subword_nmt(codes, name="codes", glossary=["<ph>", r"U\.S\."], text=[*LINES, "US<>.ph"])
    assert cut(vocabulary, line) == apply_bpe(codes, line, glossaries=["<ph>", r"U\.S\."])


@pytest.mark.parametrize(
    ("glossary", "reason"),
    [
        (["<ph_.*?>"], "is a regular expression"),
        ([r"\d"], "is a regular expression"),
        (["ab", "abc"], "overlap"),
        (["ab", "bc"], "overlap"),
        (["a b"], "cannot be a protected string"),
    ],
)
def test_a_glossary_that_means_something_else_is_refused(
    glossary: list[str], reason: str, codes: list[str]
) -> None:
    with pytest.raises(UserError, match=reason):
        from_subword_nmt(codes, name="codes", glossary=glossary)


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        (["a b</w>"], "neither a tokenizer.json nor codes of subword-nmt"),
        (["#version: 0.1", "a b"], "neither a tokenizer.json nor codes"),
        (["#version: 0.2", "a b", "a b c"], "line 3: 'a b c' is not two pieces"),
        (["#version: 0.2", "a </w>"], "line 2: .* has </w> inside"),
        (["#version: 0.2", "</w a", "</w >"], "line 3: .* has </w> inside"),
        (["#version: 0.2", "▁ b"], r"line 2: has U\+2581"),
    ],
)
def test_what_is_not_codes_is_refused(codes: list[str], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        from_subword_nmt(codes, name="codes")


# Hugging Face


def hf_bpe(lines: Iterable[str], size: int) -> Any:
    tokenizer = tokenizers.SentencePieceBPETokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    return tokenizer


def hf_unigram(lines: Iterable[str], size: int) -> Any:
    tokenizer = tokenizers.SentencePieceUnigramTokenizer()
    tokenizer.train_from_iterator(
        lines, vocab_size=size, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    return tokenizer


def same_ids(vocabulary: Vocabulary, tokenizer: Any, line: str) -> bool:
    found = vocabulary.piece_ids(vocabulary.encode(line))
    return bool(found == tokenizer.encode(line, add_special_tokens=False).ids)


@pytest.fixture(scope="module", params=[hf_bpe, hf_unigram])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return request.param(LINES, 200)


def test_a_tokenizer_keeps_its_ids(tokenizer: Any) -> None:
    vocabulary = from_hugging_face(tokenizer.to_str(), name="tokenizer.json")
    assert vocabulary.pieces == tuple(tokenizer.id_to_token(i) for i in range(len(vocabulary)))
    assert (vocabulary.pad_id, vocabulary.unk_id, vocabulary.bos_id, vocabulary.eos_id) == (0, 1, 2, 3)
    for line in [*LINES, "ｆｕｌｌ ﬁ", "a\u00a0b", "", "ñ talo"]:
        assert same_ids(vocabulary, tokenizer, line)
    if vocabulary.type == "bpe":
        for line in LINES:
            assert BpeDropout(vocabulary, dropout=0).cut(line) == vocabulary.encode(line)


@needs_real_text
@pytest.mark.parametrize("make", [hf_bpe, hf_unigram])
def test_tokenizers_on_ten_thousand_real_lines(make: Any) -> None:
    lines = list(islice(read_lines(REAL), 10_000))
    tokenizer = make(lines, 2000)
    vocabulary = from_hugging_face(tokenizer.to_str(), name="tokenizer.json")
    assert [line for line in lines if not same_ids(vocabulary, tokenizer, line)] == []


@given(merges=merge_lists(lambda letter: MARKER + letter))
@example(merges=[("a", "b"), ("b", "a"), ("a", "ba")])
def test_any_merges_are_refused_or_followed_exactly(merges: list[tuple[str, str]]) -> None:
    assume(not any(MARKER in (left + right)[1:] for left, right in merges))
    merges = [(MARKER, "a"), (MARKER, "b"), *merges]
    pieces = [MARKER, "a", "b", *(piece for left, right in merges for piece in (left, right, left + right))]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(["<unk>", *pieces]))}
    tokenizer = Tokenizer(tokenizers.models.BPE(vocab, merges, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.pre_tokenizer = Metaspace()  # type: ignore[assignment]
    vocabulary = or_refused(lambda: from_hugging_face(tokenizer.to_str(), name="tokenizer.json"))
    if vocabulary is None:
        return
    for length in range(1, 7):
        for word in map("".join, product("ab", repeat=length)):
            assert same_ids(vocabulary, tokenizer, word)


def test_merges_made_from_a_sentencepiece_model_are_read(bpe_vocabulary: Vocabulary, text: list[str]) -> None:
    """transformers writes every pair of pieces that together are a piece, in the order of the pieces."""
    order = sorted(bpe_vocabulary.ranks, key=bpe_vocabulary.ranks.__getitem__)
    ids = {piece: i for i, piece in enumerate(bpe_vocabulary.pieces)}
    splits = [(p[:at], p[at:]) for p in order for at in range(1, len(p))]
    merges = [pair for pair in splits if pair[0] in ids and pair[1] in ids]
    assert len(merges) > len(order)
    tokenizer = Tokenizer(tokenizers.models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.pre_tokenizer = Metaspace()  # type: ignore[assignment]
    vocabulary = from_hugging_face(tokenizer.to_str(), name="tokenizer.json")
    for line in text:
        assert vocabulary.encode(line) == bpe_vocabulary.encode(line)
        assert same_ids(vocabulary, tokenizer, line)


def test_byte_fallback_writes_the_same_bytes() -> None:
    table = json.loads(hf_bpe(LINES, 150).to_str())
    vocab = table["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    table["model"] |= {"byte_fallback": True, "fuse_unk": True}
    tokenizer = Tokenizer.from_str(json.dumps(table))
    vocabulary = from_hugging_face(json.dumps(table), name="tokenizer.json")
    for line in ["☃", "talo☃😀 ñ", *LINES[:20]]:
        assert same_ids(vocabulary, tokenizer, line)
    del vocab["<0xE2>"], vocab["<0xFF>"]
    table["model"]["vocab"] = {piece: i for i, piece in enumerate(vocab)}
    with pytest.raises(UserError, match="not all 256 bytes"):
        from_hugging_face(json.dumps(table), name="tokenizer.json")


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
@pytest.mark.parametrize("collapses", [True, False])
def test_spaces_are_read_as_the_tokenizer_reads_them(scheme: str, collapses: bool) -> None:
    """But for a line that begins with a space, which SentencePiece marks twice unless it collapses spaces."""
    tokenizer = hf_unigram(LINES, 100)._tokenizer
    tokenizer.pre_tokenizer = Metaspace(prepend_scheme=scheme)
    spaces = tokenizers.Regex(" {2,}")
    parts = [normalizers.Strip(left=False, right=True), normalizers.Replace(spaces, "▁")] if collapses else []
    tokenizer.normalizer = normalizers.Sequence(parts)
    vocabulary = from_hugging_face(tokenizer.to_str(), name="tokenizer.json")
    for line in ["talo auto", "talo  auto", "talo auto ", "a   b  ", *(["  talo"] if collapses else [])]:
        if scheme != "never" or not line.startswith(" "):
            assert same_ids(vocabulary, tokenizer, line), line


def changed(**parts: Any) -> str:
    table = json.loads(hf_bpe(LINES[:50], 60).to_str())
    model = parts.pop("model", {})
    table["model"] |= model
    return json.dumps(table | parts)


FREE = {"id": 0, "content": "<ph>", "special": False}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{}", "is not a tokenizer.json"),
        ('{"model": []}', "is not a tokenizer.json"),
        (changed(pre_tokenizer=json.loads(ByteLevel().__getstate__())), "is byte-level"),
        (changed(pre_tokenizer=json.loads(Whitespace().__getstate__())), "splits text by Whitespace"),
        (changed(pre_tokenizer=None), "splits text by None"),
        (changed(normalizer={"type": "Lowercase"}), "normalises text by Lowercase"),
        (changed(model={"type": "WordLevel"}), "must be BPE or Unigram"),
        (changed(model={"end_of_word_suffix": "</w>"}), "uses end_of_word_suffix"),
        (changed(model={"ignore_merges": True}), "uses ignore_merges"),
        (changed(added_tokens=[FREE]), "splits words around the added token '<ph>'"),
        (changed(added_tokens=[FREE | {"id": 900, "special": True}]), "leaves ids out"),
    ],
)
def test_a_tokenizer_that_cannot_be_represented_is_refused(content: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        from_hugging_face(content, name="tokenizer.json")


def test_pieces_across_words_are_refused() -> None:
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), ("a", -1.0), ("a▁a", -2.0)], unk_id=0))
    tokenizer.pre_tokenizer = Metaspace(split=False)  # type: ignore[assignment]
    with pytest.raises(UserError, match="crosses a word boundary"):
        from_hugging_face(tokenizer.to_str(), name="tokenizer.json")


def test_the_command_converts_and_segments(codes: list[str], dpe: Dpe, tmp_path: Path) -> None:
    (tmp_path / "codes.bpe").write_text("\n".join(codes) + "\n", "utf-8")
    (tmp_path / "text").write_text("\n".join(LINES) + "\n", "utf-8")
    (tmp_path / "glossary").write_text("<ph>\n", "utf-8")
    model, text = str(tmp_path / "v.model"), str(tmp_path / "text")
    made = ["vocab", "--from", str(tmp_path / "codes.bpe"), "--out", model]
    dpe(*made, "--source", text, "--glossary", str(tmp_path / "glossary"))
    written, _ = dpe("encode", "--vocab", model, "--format", "subword-nmt", text)
    bpe = BPE(io.StringIO("\n".join(codes)))
    assert written == "".join(bpe.segment(line) + "\n" for line in LINES)
    (tmp_path / "cut").write_text(written, "utf-8")
    plain, _ = dpe("decode", "--vocab", model, "--format", "subword-nmt", str(tmp_path / "cut"))
    assert plain == (tmp_path / "text").read_text("utf-8")
    assert "<ph>" in Vocabulary.load(model).protected
    _, said = dpe("vocab", "--source", text, "--glossary", text, "--out", model, code=2)
    assert "--glossary goes with --from" in said
    (tmp_path / "tokenizer.json").write_text(hf_bpe(LINES, 100).to_str(pretty=True), "utf-8")
    assert convert(tmp_path / "tokenizer.json").type == "bpe"
