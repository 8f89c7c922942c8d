"""Pruning a vocabulary: the loss against enumeration, what stays, and a whole run from a segmenter."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import given
from hypothesis import strategies as st

import dpe as package
from dpe import Segmenter, UserError
from dpe.corpus_run.piece_counts import segmented_file
from dpe.corpus_run.pruning import plain_counts, prune_vocabulary
from dpe.segmenter.distillation import expected_pieces
from dpe.text.corpus import read_lines
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.pruning import UNSEEN, PieceModel, prune
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, split_words
from dpe.training.processes import Session
from tests.oracles import brute_force, cuts_of_text, log_sum_exp
from tests.segment_command import Dpe
from tests.segmenters import PAIRS, save_segmenter
from tests.vocabularies import LETTERS, LONGER, SENTENCES, make_vocabulary

LETTER_COUNTS = st.fixed_dictionaries(
    {piece: st.floats(0.01, 1e4) for piece, _ in [*LETTERS, *LONGER] if piece != "xy"}
)


def log_likelihood(counts: dict[str, float]) -> float:
    """Of counted pieces under their own relative frequencies."""
    total = math.fsum(counts.values())
    return math.fsum(count * math.log(count / total) for count in counts.values())


@given(LETTER_COUNTS)
def test_the_loss_is_that_of_the_best_replacement_among_all(counts: dict[str, float]) -> None:
    """Against enumeration: every segmentation of the piece but itself is scored, the best one replaces it."""
    vocabulary = make_vocabulary([*LETTERS, *LONGER])
    model = PieceModel(counts)
    total = math.fsum(counts.values())
    for piece in counts:
        if len(piece) == 1:
            continue
        others = [cut for cut in cuts_of_text(piece, vocabulary) if cut != (piece,)]
        values = {cut: sum(math.log(counts[part] / total) for part in cut) for cut in others}
        parts = tuple(model.replacement(piece))
        assert values[parts] == pytest.approx(max(values.values()))
        after = Counter(counts)
        count = after.pop(piece)
        for part in parts:
            after[part] += count  # type: ignore[assignment]
        size = math.fsum(after.values())
        # What was counted keeps its probability but for the replaced piece, as in Kudo's learner.
        instead = sum(math.log(after[part] / size) for part in parts)
        assert model.loss(piece) == pytest.approx(count * (math.log(count / total) - instead))


def test_the_cheapest_pieces_go_and_what_they_counted_stays() -> None:
    vocabulary = make_vocabulary([*LETTERS, *LONGER])
    counts = np.zeros(len(vocabulary))
    for piece, count in {MARKER: 9, "a": 5, "b": 4, "c": 3, "ab": 50, "ba": 1, "abc": 20}.items():
        counts[vocabulary.ids[piece]] = count
    sizes = []
    pruned = prune(vocabulary, counts, len(vocabulary) - 4, report=sizes.append)
    assert [piece for piece in pruned.ids if len(piece) > 1] == ["ab", "abc"]
    assert sizes
    assert pruned.type == "unigram"
    assert (pruned.pad_id, pruned.unk_id, pruned.bos_id, pruned.eos_id) == (0, 1, 2, 3)
    total = 92 + len(vocabulary.ids) * UNSEEN
    # "ba" was counted once: one "b" and one "a" instead of it.
    assert pruned.scores["a"] == pytest.approx(math.log(6 / total), abs=0.02)
    assert pruned.scores["ab"] == pytest.approx(math.log(50 / total), abs=0.02)
    assert sum(map(math.exp, pruned.scores.values())) == pytest.approx(1, abs=1e-5)
    again = prune(pruned, np.zeros(len(pruned)), len(pruned) - 2)
    assert not [piece for piece in again.ids if len(piece) > 1]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_characters_special_and_protected_pieces_stay(
    kind: str, protecting_vocabularies: dict[str, Vocabulary]
) -> None:
    vocabulary = protecting_vocabularies[kind]
    generator = np.random.default_rng(1)
    least = len(vocabulary) - sum(len(p) > 1 and p not in vocabulary.protected for p in vocabulary.ids)
    for size in (least, len(vocabulary) - 1):
        pruned = prune(vocabulary, generator.gamma(1.0, 50.0, len(vocabulary)), size)
        assert len(pruned) == size
        assert set(pruned.ids) <= set(vocabulary.ids)
        assert set(pruned.protected) == set(vocabulary.protected)
        assert pruned.characters == vocabulary.characters
        processor = sentencepiece.SentencePieceProcessor(model_proto=pruned.content)
        assert processor.get_piece_size() == size
        special = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        assert special == (pruned.pad_id, pruned.unk_id, pruned.bos_id, pruned.eos_id) == (0, 1, 2, 3)
        for line in [*SENTENCES, "talossakin <ph>x", f"☃{MARKER}a"]:
            assert "".join(pruned.encode(line)) == pruned.normalize(line)
    for size, message in ((least - 1, "too few"), (len(vocabulary), "has only")):
        with pytest.raises(UserError, match=message):
            prune(vocabulary, np.zeros(len(vocabulary)), size)


def test_special_ids_follow_their_pieces() -> None:
    """Other toolkits put them elsewhere, and leave some out; bytes stay, too."""
    vocabulary = make_vocabulary([("ab", -1.0), *LETTERS], special=("</s>", "<unk>"))
    pruned = prune(vocabulary, np.zeros(len(vocabulary)), len(vocabulary) - 1)
    assert pruned.pieces == tuple(p for p in vocabulary.pieces if p != "ab")
    assert [pruned.pieces[i] for i in (pruned.pad_id, pruned.unk_id, pruned.bos_id, pruned.eos_id)] == [
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
    ]


def test_expected_pieces_of_a_unigram_against_enumeration() -> None:
    vocabulary = make_vocabulary([*LETTERS, *LONGER], type="unigram", protected=["cc"])
    words = {f"{MARKER}abc": 3, f"{MARKER}accb": 2, "a☃b": 1, f"{MARKER}xy": 4}
    unknown = min(score for piece, score in vocabulary.scores.items() if piece != "cc") - 10
    counts = np.zeros(len(vocabulary))
    for word, times in words.items():
        cuts = {
            cut: sum(0 if piece == "cc" else vocabulary.scores.get(piece, unknown) for piece in cut)
            for cut in cuts_of_text(word, vocabulary)
        }
        total = log_sum_exp(list(cuts.values()))
        for cut, score in cuts.items():
            for piece in vocabulary.piece_ids(cut):
                counts[piece] += times * math.exp(score - total)
    assert expected_pieces(vocabulary, words) == pytest.approx(counts, abs=1e-9)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_run_counts_the_target_by_the_segmenter_and_the_source_by_the_vocabulary(
    kind: str, tmp_path: Path
) -> None:
    lines = [side for pair in PAIRS for side in pair]
    vocabulary = learn_vocabulary(lines, VocabularySettings(size=150, type=kind))  # type: ignore[arg-type]
    segmenter = Segmenter.load(save_segmenter(tmp_path / "segmenter", vocabulary))
    pairs = [("a house", "talo"), ("from the house", "talosta"), ("", "☃ on"), ("house house", "")]
    sources, targets = map(list, zip(*pairs, strict=True))
    counts = np.zeros(len(vocabulary))
    for source, target in pairs:
        cuts = brute_force(segmenter, source, target)
        total = log_sum_exp(list(cuts.values()))
        for cut, score in cuts.items():
            for piece in vocabulary.piece_ids(cut):
                counts[piece] += math.exp(score - total)
    if kind == "bpe":
        for source in sources:
            for piece in vocabulary.piece_ids(vocabulary.encode(source)):
                counts[piece] += 1
    else:
        counts += expected_pieces(
            vocabulary, Counter(word for line in sources for word in split_words(vocabulary.normalize(line)))
        )
    out = tmp_path / "v.model"
    given = {"segmenter": tmp_path / "segmenter", "source": sources, "target": targets}
    pruned = prune_vocabulary(out, **given, size=120)  # type: ignore[arg-type]
    wanted = prune(vocabulary, counts, 120)
    assert pruned.scores == pytest.approx(wanted.scores, abs=1e-3)
    assert Vocabulary.load(out).content == pruned.content
    assert list(read_lines(segmented_file(out))) == [
        " ".join(one.pieces) for one in segmenter.best(sources, targets)
    ]
    again = prune_vocabulary(tmp_path / "b", **given, size=120, session=Session(workers=2))  # type: ignore[arg-type]
    assert again.content == pruned.content
    for size in (10, 150):
        with pytest.raises(UserError, match="pieces"):
            prune_vocabulary(tmp_path / "c", **given, size=size)  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()
    assert not segmented_file(tmp_path / "c").exists()


def test_plain_counts_of_a_large_text_are_those_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = make_vocabulary([*LETTERS, *LONGER], type="unigram")
    whole = plain_counts(vocabulary, SENTENCES)
    monkeypatch.setattr("dpe.corpus_run.pruning._TYPES_AT_ONCE", 2)
    assert plain_counts(vocabulary, SENTENCES) == pytest.approx(whole)
    assert whole.sum() > 10
    assert not plain_counts(vocabulary, ["", " "]).any()


def test_the_command(segment_place: Path, tmp_path: Path, dpe: Dpe) -> None:
    source, target = str(segment_place / "x.en"), str(segment_place / "x.fi")
    out, listing = tmp_path / "v.model", tmp_path / "v.vocab"
    files = ["--source", source, "--target", target]
    common = ["vocab", "--from-segmenter", str(segment_place / "segmenter"), "--out", str(out)]
    _, err = dpe(*common, *files, "--size", "120", "--listing", str(listing), "--workers", "1")
    assert "120 pieces" in err
    model = Vocabulary.load(out)
    assert len(model) == len(list(read_lines(listing))) == 120
    wanted = package.prune_vocabulary(
        tmp_path / "w.model",
        segmenter=segment_place / "segmenter",
        source=Path(source),
        target=Path(target),
        size=120,
    )
    assert wanted.content == model.content
    for wrong, message in {
        ("--type", "bpe"): "leave --type out",
        ("--character-coverage", "0.99"): "leave --character-coverage out",
        ("--target", target): "one --target",
        ("--size", "32000"): "has only 200 pieces",
    }.items():
        _, err = dpe(*common, *files, *wrong, code=2)
        assert message in err
    _, err = dpe(*common, "--target", target, "--size", "120", code=2)
    assert "trained with a source" in err
    assert out.read_bytes() == model.content


def test_no_torch_thread_setting_is_left(segment_place: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    prune_vocabulary(tmp_path / "v", segmenter=segment_place / "lm", target=["talo"], size=150)
    assert torch.get_num_threads() == threads
