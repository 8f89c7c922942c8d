"""Dictionaries for other toolkits, read back as these toolkits read them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dpe.errors import UserError
from dpe.text.dictionaries import Dictionary, count_pieces, token_names, write_marian_tokenizer
from dpe.text.vocabulary import Vocabulary
from tests.segment_command import Dpe
from tests.test_byte_fallback import with_bytes
from tests.vocabularies import make_vocabulary

ODD = ['"', "\\", "'", "#", ":", "- a", "null", "yes", "12", "~", "a\tb", "\xa0", "\x85", "\u2028", "\ufeff"]
ODD = [*(piece.replace(" ", "") for piece in ODD), "😀", "\x1b", "{", "&a", "*", "!", "%", "@@", "é\u0301"]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return with_bytes(make_vocabulary([("▁", -1.0), ("▁two", -2.0), *((p, -9.0) for p in ODD)]))


def written(vocabulary: Vocabulary, format: str, counts: Counter[str] | None = None) -> bytes:
    """The file that `dpe pieces` writes."""
    lines = Dictionary(vocabulary, format).lines(counts)  # type: ignore[arg-type]
    return "".join(f"{line}\n" for line in lines).encode()


def test_plain_lists_every_piece_that_text_may_have(vocabulary: Vocabulary) -> None:
    pieces = written(vocabulary, "plain").decode().split("\n")[:-1]
    assert pieces == ["▁", "▁two", *ODD, *(f"<0x{byte:02X}>" for byte in range(256))]


def test_fairseq_reads_its_dictionary(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """As `Dictionary.add_from_file` of fairseq 0.12: text mode, the count after the last space."""
    (tmp_path / "dict.txt").write_bytes(written(vocabulary, "fairseq", Counter({"▁two": 3})))
    with (tmp_path / "dict.txt").open(encoding="utf-8") as file:
        rows = [line.rstrip().rsplit(" ", 1) for line in file]
    counts = {piece: int(count) for piece, count in rows}
    assert len(counts) == len(rows)
    assert list(counts) == [p for p in vocabulary.written_ids if p.split() == [p]]  # as it splits text
    assert counts.pop("▁two") == 3
    assert set(counts.values()) == {0}


def test_eole_reads_its_vocabulary(vocabulary: Vocabulary) -> None:
    """As `_read_vocab_file` of eole 0.6: the count after the first tab."""
    lines = written(vocabulary, "eole").decode().split("\n")[:-1]
    rows = [line.split("\t", 1) for line in lines]
    assert [piece for piece, _ in rows] == [p for p in vocabulary.written_ids if "\t" not in p]
    assert {int(count) for _, count in rows} == {1}


def test_marian_reads_its_vocabulary(vocabulary: Vocabulary) -> None:
    found = yaml.safe_load(written(vocabulary, "marian-yml"))
    assert list(found) == ["</s>", "<unk>", *vocabulary.written_ids]
    assert list(found.values()) == list(range(len(found)))


def test_sockeye_reads_its_vocabulary(vocabulary: Vocabulary) -> None:
    found = json.loads(written(vocabulary, "sockeye"))
    pieces = [p for p in vocabulary.written_ids if p.split() == [p]]
    assert list(found) == ["<pad>", "<unk>", "<s>", "</s>", *pieces]
    assert list(found.values()) == list(range(len(found)))


def test_ctranslate2_has_every_id(vocabulary: Vocabulary) -> None:
    found = json.loads(written(vocabulary, "ctranslate2"))
    assert found == token_names(vocabulary)
    assert {found.index(piece) for piece in ODD} == {vocabulary.ids[piece] for piece in ODD}
    assert len(set(found)) == len(vocabulary)


@pytest.mark.parametrize("format", ["fairseq", "eole", "marian-yml", "sockeye"])
def test_text_that_looks_like_a_special_symbol_is_left_out(format: str) -> None:
    """Else a toolkit would end a sentence there. Here `</s>` is text, and the end symbol comes after it."""
    pieces = [("▁", -1.0), ("</s>", -2.0), ("a", -4.0)]
    vocabulary = make_vocabulary(pieces, special=("<pad>", "<unk>"))
    assert Dictionary(vocabulary, format).left_out == ["</s>"]  # type: ignore[arg-type]
    assert {"▁", "a"} == set(Dictionary(vocabulary, format).pieces)  # type: ignore[arg-type]
    assert written(vocabulary, format).count(b"</s>") == (format in ("marian-yml", "sockeye"))


def test_counts_are_those_of_the_text(
    bpe_vocabulary: Vocabulary, text: list[str], dpe: Dpe, tmp_path: Path
) -> None:
    model, pieces = tmp_path / "v.model", tmp_path / "x.pieces"
    bpe_vocabulary.save(model)
    cuts = [bpe_vocabulary.encode(line) for line in text]
    pieces.write_text("".join(" ".join(cut) + "\n" for cut in cuts), "utf-8")
    out, _ = dpe("pieces", "--vocab", str(model), "--counts", str(pieces))
    found = dict(line.split("\t") for line in out.split("\n")[:-1])
    expected = Counter(piece for cut in cuts for piece in cut)
    assert {piece: int(count) for piece, count in found.items()} == {
        piece: expected[piece] for piece in bpe_vocabulary.ids
    }
    assert count_pieces((" ".join(cut) for cut in cuts), bpe_vocabulary) == expected


def test_the_directory_for_marian_tokenizer(
    bpe_vocabulary: Vocabulary, unigram_vocabulary: Vocabulary, dpe: Dpe, tmp_path: Path
) -> None:
    bpe_vocabulary.save(tmp_path / "bpe.model")
    unigram_vocabulary.save(tmp_path / "unigram.model")
    out = tmp_path / "tokenizer"
    arguments = ["pieces", "--vocab", str(tmp_path / "bpe.model"), "--format", "hf-marian"]
    _, said = dpe(*arguments, code=2)
    assert "give its name as --out" in said
    dpe(*arguments, "--target-vocab", str(tmp_path / "unigram.model"), "--out", str(out))
    for name, vocabulary in (("", bpe_vocabulary), ("target_", unigram_vocabulary)):
        ids = json.loads((out / f"{name}vocab.json").read_text("utf-8"))
        assert list(ids) == list(vocabulary.pieces)
        assert vocabulary.ids.items() <= ids.items()
    assert (out / "source.spm").read_bytes() == bpe_vocabulary.content
    assert (out / "target.spm").read_bytes() == unigram_vocabulary.content
    config = json.loads((out / "tokenizer_config.json").read_text("utf-8"))
    assert config["separate_vocabs"]
    assert [config[f"{what}_token"] for what in ("pad", "unk", "eos")] == ["<pad>", "<unk>", "</s>"]
    _, said = dpe(*arguments, "--out", str(out), code=2)
    assert "already exists" in said


def test_marian_tokenizer_has_our_ids(
    bpe_vocabulary: Vocabulary, unigram_vocabulary: Vocabulary, text: list[str], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is in the test group of toolkits")
    for target in (bpe_vocabulary, unigram_vocabulary):
        out = tmp_path / target.type
        write_marian_tokenizer(out, bpe_vocabulary, target)
        tokenizer = transformers.MarianTokenizer.from_pretrained(out)
        for line in [*text[:100], "☃ two", "ñ☃ñ"]:
            source, labels = tokenizer(line).input_ids, tokenizer(text_target=line).input_ids
            assert source == [*bpe_vocabulary.piece_ids(bpe_vocabulary.encode(line)), bpe_vocabulary.eos_id]
            assert labels == [*target.piece_ids(target.encode(line)), target.eos_id]
            pieces = bpe_vocabulary.encode(line)
            assert tokenizer.convert_tokens_to_ids(pieces) == bpe_vocabulary.piece_ids(pieces)


def test_marian_tokenizer_needs_the_same_special_symbols(bpe_vocabulary: Vocabulary, tmp_path: Path) -> None:
    other = make_vocabulary({"▁": -1.0, "a": -2.0}, special=("</s>", "<unk>", "<pad>"))
    with pytest.raises(UserError, match="the same unknown, end and padding"):
        write_marian_tokenizer(tmp_path / "out", bpe_vocabulary, other)
    assert not (tmp_path / "out").exists()
