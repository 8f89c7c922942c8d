"""Vocabularies: learned the same everywhere, lossless on any text, and the unusable ones refused."""

from __future__ import annotations

import io
import pickle
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2

from dpe.errors import UserError
from dpe.progress import Progress
from dpe.text.draws import SAMPLE_STREAM, generator
from dpe.text.learning import VocabularySettings, check_protected, learn_vocabulary, sample
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER
from tests.vocabularies import make_text, make_vocabulary

ODD_LINES = [
    "👩‍👩‍👧‍👦 family 🏳️‍🌈",
    "a\u0301 e\u0323\u0302 Å ﬁ ½",
    "שלום עולם مرحبا \u202eabc\u202c",
    "\ue000\U000f0000\U0010ffff",
    "▁a ▁▁ b▁",
    "\x00\x01\x1f\x7f\x85\u2028 x",
    "\ufeff\u200b\u00ad\u3000\u00a0\tx",
    "<s> </s> <unk> <pad>",
]
any_line = st.one_of(st.text(), st.sampled_from(ODD_LINES), st.text(alphabet="a \u2581\u00a0é", max_size=20))


def train(text: list[str], **options: Any) -> bytes:
    """A user's own SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=model, minloglevel=2, **options
    )
    return model.getvalue()


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def identity_vocabulary(request: pytest.FixtureRequest, text: list[str]) -> Vocabulary:
    return learn_vocabulary(text, VocabularySettings(size=110, type=request.param, normalization="identity"))


# ---------------------------------------------------------------------------------- lossless


@given(line=any_line)
def test_nfkc_decodes_to_the_normalised_line(
    line: str, bpe_vocabulary: Vocabulary, unigram_vocabulary: Vocabulary
) -> None:
    for vocabulary in (bpe_vocabulary, unigram_vocabulary):
        normalised = vocabulary.normalize(line)
        pieces = vocabulary.encode(line)
        assert "".join(pieces) == normalised
        assert vocabulary.decode(pieces) == normalised.replace(MARKER, " ")[1:]
        assert " " not in normalised


@given(line=any_line)
@example(line="a" * 100_000)
@example(line="ñ" * 100_000)
@example(line="\u2581 ")
@example(line=" \u2581")
@example(line="a \u2581 \u2581")
def test_identity_decodes_to_the_line_itself(line: str, identity_vocabulary: Vocabulary) -> None:
    """Up to blanks: U+2581 is read as one, runs of U+0020 are one, and none stands at either end."""
    assert identity_vocabulary.decode(identity_vocabulary.encode(line)) == expected_identity(line)


def expected_identity(line: str) -> str:
    """The documented rule: U+0020 at the beginning and doubled goes; U+2581 goes only at the end."""
    squeezed = re.sub(" +", " ", line.lstrip(" ")).rstrip(" " + MARKER)
    return squeezed.replace(MARKER, " ")


# ---------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_same_text_same_bytes_whatever_the_path(kind: Any, text: list[str], tmp_path: Path) -> None:
    wanted = VocabularySettings(size=100, type=kind)
    for name in ("one.model", "deeper/another.model"):
        learn_vocabulary(iter(text), wanted).save(tmp_path / name)
    first, second = (tmp_path / "one.model").read_bytes(), (tmp_path / "deeper/another.model").read_bytes()
    assert first == second
    assert Vocabulary.load(tmp_path / "one.model").fingerprint == learn_vocabulary(text, wanted).fingerprint


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_size_too_large_names_the_largest_which_then_works(kind: Any, text: list[str]) -> None:
    with pytest.raises(UserError) as error:
        learn_vocabulary(text, VocabularySettings(size=30_000, type=kind))
    largest = int(re.findall(r"\d+", str(error.value))[-1])
    assert len(learn_vocabulary(text, VocabularySettings(size=largest, type=kind))) == largest
    with pytest.raises(UserError, match="too large for this text"):
        learn_vocabulary(text, VocabularySettings(size=largest + 1, type=kind))


def test_a_size_too_small_names_the_smallest_which_then_works(text: list[str]) -> None:
    with pytest.raises(UserError) as error:
        learn_vocabulary(text, VocabularySettings(size=10))
    smallest = int(re.findall(r"\d+", str(error.value))[-1])
    assert len(learn_vocabulary(text, VocabularySettings(size=smallest))) == smallest


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("lines", [[], ["", " ", ""]])
def test_empty_text_is_said_to_be_empty(kind: Any, lines: list[str]) -> None:
    with pytest.raises(UserError, match="empty"):
        learn_vocabulary(lines, VocabularySettings(size=50, type=kind))


def test_long_lines_are_learned_from() -> None:
    learned = learn_vocabulary(["word " * 2000 + "q"], VocabularySettings(size=12))
    assert "q" in learned.characters


def test_characters_below_the_coverage_are_unknown() -> None:
    lines = [*make_text(300), "ж"]
    assert "ж" in learn_vocabulary(lines, VocabularySettings(size=110)).characters
    rare = learn_vocabulary(lines, VocabularySettings(size=110, character_coverage=0.999))
    assert "ж" not in rare.characters
    assert rare.decode(rare.encode("жaж")) == "жaж"


@pytest.mark.parametrize("string", ["", "a b", "a\u00a0b", "\t", "▁x", "<s>", "<unk>", "a\0b"])
def test_what_cannot_be_protected_is_refused(string: str, text: list[str]) -> None:
    with pytest.raises(UserError, match=re.escape(repr(string))):
        learn_vocabulary(text, VocabularySettings(size=100, protected=("fine", string)))


def test_protected_strings_are_told_once() -> None:
    assert check_protected(["<b>", "<a>", "<b>"]) == ("<b>", "<a>")


# ---------------------------------------------------------------------------------- what a vocabulary knows


def test_ids_scores_and_special_ids_are_sentencepieces(bpe_vocabulary: Vocabulary) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=bpe_vocabulary.content)
    assert len(bpe_vocabulary) == processor.get_piece_size()
    assert bpe_vocabulary.pieces == tuple(map(processor.id_to_piece, range(len(bpe_vocabulary))))
    assert all(processor.piece_to_id(piece) == i for piece, i in bpe_vocabulary.ids.items())
    special = (bpe_vocabulary.pad_id, bpe_vocabulary.unk_id, bpe_vocabulary.bos_id, bpe_vocabulary.eos_id)
    assert special == (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    assert not {"<pad>", "<unk>", "<s>", "</s>"} & set(bpe_vocabulary.ids)
    assert bpe_vocabulary.max_span == max(len(piece) for piece in bpe_vocabulary.ids)


def test_ranks_order_the_merges_by_score() -> None:
    pieces = {"a": -9.0, "b": -9.0, "ab": -1.0, "ba": -2.0, "bb": -1.0}
    vocabulary = make_vocabulary(pieces, protected=["aab"])
    assert vocabulary.ranks == {"ab": 0, "bb": 0, "ba": 1}
    with pytest.raises(UserError, match="unigram"):
        _ = make_vocabulary(pieces, type="unigram").ranks


def test_a_vocabulary_can_be_handed_to_another_process(bpe_vocabulary: Vocabulary) -> None:
    copy = pickle.loads(pickle.dumps(bpe_vocabulary))
    assert copy.fingerprint == bpe_vocabulary.fingerprint
    assert copy.encode("talossa") == bpe_vocabulary.encode("talossa")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_users_model_without_padding_or_beginning(kind: str, text: list[str]) -> None:
    content = train(text, model_type=kind, vocab_size=100, bos_id=-1, pad_id=-1, add_dummy_prefix=False)
    vocabulary = Vocabulary(content)
    assert len(vocabulary) == 102
    assert {vocabulary.pad_id, vocabulary.bos_id} == {100, 101}
    assert len({vocabulary.pad_id, vocabulary.bos_id, vocabulary.eos_id, vocabulary.unk_id}) == 4
    for line in ["talo talossa", "w ñ y", ""]:
        assert vocabulary.decode(vocabulary.encode(line)) == line
        assert vocabulary.decode_ids(vocabulary.piece_ids(vocabulary.encode(line))) == line.replace("ñ", "⁇")


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "char"}, "neither a BPE nor a unigram"),
        ({"model_type": "word"}, "neither a BPE nor a unigram"),
        ({"model_type": "bpe", "split_by_whitespace": False, "vocab_size": 150}, "crosses a word"),
        ({"model_type": "unigram", "split_by_whitespace": False, "vocab_size": 150}, "crosses a word"),
        ({"model_type": "bpe", "user_defined_symbols": "<s>"}, "special piece '<s>' among"),
        ({"model_type": "unigram", "user_defined_symbols": "x,</s>"}, "special piece '</s>' among"),
    ],
)
def test_models_that_cannot_be_used_are_refused(
    options: dict[str, Any], message: str, text: list[str], tmp_path: Path
) -> None:
    path, crossing = tmp_path / "user.model", ["out of the house", "out of the car"] * 50
    path.write_bytes(train(text + crossing, **({"vocab_size": 90, "hard_vocab_limit": False} | options)))
    with pytest.raises(UserError, match=message) as error:
        Vocabulary.load(path)
    assert str(path) in str(error.value)


def test_a_model_that_does_not_mark_blanks_is_refused(bpe_vocabulary: Vocabulary) -> None:
    model = sentencepiece_model_pb2.ModelProto.FromString(bpe_vocabulary.content)
    model.normalizer_spec.escape_whitespaces = False
    with pytest.raises(UserError, match="U\\+2581"):
        Vocabulary(model.SerializeToString())


def test_damaged_files_are_refused_or_read_but_never_crash(
    bpe_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    path, content, generator = tmp_path / "damaged.model", bpe_vocabulary.content, random.Random(1)
    damaged = [content[: generator.randrange(len(content))] for _ in range(40)]
    damaged += [b"", b"text, no model\n", generator.randbytes(500)]
    refusals = []
    for bytes_ in damaged:
        path.write_bytes(bytes_)
        try:
            Vocabulary.load(path)
        except UserError as error:
            refusals.append(str(error))
    assert all(str(path) in refusal for refusal in refusals)
    assert len(refusals) >= 30  # a cut between two fields may leave a smaller model that is whole


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.model"):
        Vocabulary.load(tmp_path / "nowhere.model")


def test_half_of_a_surrogate_pair_is_a_sentence(bpe_vocabulary: Vocabulary) -> None:
    for ask in (bpe_vocabulary.normalize, bpe_vocabulary.encode):
        with pytest.raises(UserError, match="half of a surrogate pair"):
            ask("a\ud800")


def test_a_vocabulary_is_learned_from_files_as_from_their_lines(tmp_path: Path) -> None:
    lines = [f"talo{ending} auto{ending}" for ending in ("", "n", "ssa", "sta", "lle", "kin")]
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("\n".join(lines[:3]) + "\n", encoding="utf-8")
    two.write_text("\n".join(lines[3:]) + "\n", encoding="utf-8")
    settings = VocabularySettings(size=30)
    wanted = learn_vocabulary(lines, settings).content
    assert learn_vocabulary([one, two], settings).content == wanted
    (tmp_path / "all").write_bytes(one.read_bytes() + two.read_bytes())
    assert learn_vocabulary(tmp_path / "all", settings).content == wanted
    assert learn_vocabulary(str(tmp_path / "all"), settings).content == wanted


@given(st.integers(0, 60), st.integers(1, 80))
def test_a_sample_is_some_of_the_lines_and_all_where_they_fit(count: int, size: int) -> None:
    lines = [str(number) for number in range(count)]
    kept, seen = sample(iter(lines), size, generator(1))
    assert seen == count
    assert len(set(kept)) == len(kept) == min(size, count)
    assert set(kept) <= set(lines)
    if count <= size:
        assert kept == lines


def test_every_line_of_a_text_is_as_likely_to_be_in_a_sample() -> None:
    counts = np.zeros(40)
    for seed in range(200):
        kept, _ = sample((str(number) for number in range(4_000)), 100, generator(seed))
        counts += np.bincount([int(line) // 100 for line in kept], minlength=40)
    assert abs(counts / 500 - 1).max() < 0.2  # 4.5 standard deviations


def test_a_vocabulary_of_a_long_text_is_learned_from_a_sample_of_it(
    text: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = VocabularySettings(size=100, sample_lines=len(text) - 1)
    path = tmp_path / "text"
    path.write_text("\n".join(text), encoding="utf-8")
    learned = [learn_vocabulary(one, wanted, progress=Progress()) for one in (text, path)]
    assert f"learning from a sample of {len(text) - 1:,} of {len(text):,} lines" in capsys.readouterr().err
    kept, _ = sample(text, len(text) - 1, generator(SAMPLE_STREAM))
    whole = learn_vocabulary(kept, VocabularySettings(size=100))
    assert learned[0].content == learned[1].content == whole.content
    fits = [VocabularySettings(size=100, **more) for more in ({}, {"sample_lines": len(text)})]
    assert len({learn_vocabulary(text, one, progress=Progress()).content for one in fits}) == 1
    assert "sample" not in capsys.readouterr().err
