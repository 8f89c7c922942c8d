"""Distillation: the fit against enumeration, a unigram model recovered, and a whole run."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch

from dpe import Segmenter, UserError
from dpe.corpus_run.distillation import distill
from dpe.corpus_run.piece_counts import segmented_file
from dpe.corpus_run.pruning import prune_vocabulary
from dpe.segmenter.distillation import (
    PieceCounts,
    UnigramFit,
    distilled_vocabulary,
    frequent_words,
)
from dpe.segmenter.settings import DistillSettings
from dpe.text.corpus import read_lines
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER, pieces_by_word, split_words
from dpe.training.processes import Session
from tests.oracles import Cuts, brute_force, cuts_of_text, log_sum_exp
from tests.segment_command import Dpe
from tests.segmenters import PAIRS
from tests.vocabularies import LETTERS, LONGER, make_vocabulary

WORDS = {f"{MARKER}abc": 5, f"{MARKER}aab": 3, f"{MARKER}bcba": 2, f"{MARKER}ab": 7, "a": 1}


def posterior(word: str, vocabulary: Vocabulary, scores: np.ndarray) -> Cuts:
    """Probability of every segmentation of a word, by definition."""
    logs = {
        cut: float(sum(scores[i] for i in vocabulary.piece_ids(cut)))
        for cut in cuts_of_text(word, vocabulary)
    }
    total = log_sum_exp(list(logs.values()))
    return {cut: math.exp(score - total) for cut, score in logs.items()}


def random_posteriors(vocabulary: Vocabulary, seed: int) -> dict[str, Cuts]:
    """Of each word any distribution: no unigram model need have it."""
    generator = np.random.default_rng(seed)
    found = {}
    for word in WORDS:
        cuts = list(cuts_of_text(word, vocabulary))
        found[word] = dict(zip(cuts, generator.dirichlet(np.ones(len(cuts))).tolist(), strict=True))
    return found


def expected(vocabulary: Vocabulary, posteriors: dict[str, Cuts]) -> PieceCounts:
    counts = np.zeros(len(vocabulary))
    for word, cuts in posteriors.items():
        for cut, probability in cuts.items():
            for piece in vocabulary.piece_ids(cut):
                counts[piece] += WORDS[word] * probability
    return PieceCounts(counts, np.zeros(len(vocabulary)))


def divergence(vocabulary: Vocabulary, posteriors: dict[str, Cuts], scores: np.ndarray) -> float:
    total = 0.0
    for word, cuts in posteriors.items():
        q = posterior(word, vocabulary, scores)
        total += WORDS[word] * sum(p * math.log(p / q[cut]) for cut, p in cuts.items() if p)
    return total


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_fit_has_the_smallest_divergence(seed: int) -> None:
    vocabulary = make_vocabulary(LETTERS + LONGER)
    posteriors = random_posteriors(vocabulary, seed)
    fit = UnigramFit(vocabulary, WORDS, expected(vocabulary, posteriors), ridge=1e-6)
    scores = fit.minimum(max_updates=500, least_gain=0)
    _, gradient = fit.value(scores)
    assert gradient.abs().max() < 1e-4
    least = divergence(vocabulary, posteriors, scores.numpy())
    generator = np.random.default_rng(seed)
    for size in (1e-2, 0.1, 1.0):
        for _ in range(10):
            other = scores.numpy() + size * generator.normal(size=len(scores))
            assert divergence(vocabulary, posteriors, other) > least - 1e-6


def test_the_value_differs_from_the_divergence_by_a_constant_and_has_its_gradient() -> None:
    vocabulary = make_vocabulary(LETTERS + LONGER)
    posteriors = random_posteriors(vocabulary, 4)
    fit = UnigramFit(vocabulary, WORDS, expected(vocabulary, posteriors), ridge=1e-12)
    points = [fit.start + torch.randn(len(fit.start), dtype=torch.float64) * fit.is_free for _ in range(3)]
    gaps = [fit.value(p)[0] - divergence(vocabulary, posteriors, p.numpy()) for p in points]
    assert gaps == pytest.approx([gaps[0]] * 3)
    _, gradient = fit.value(points[0])
    for piece in vocabulary.ids.values():
        step = torch.zeros(len(fit.start), dtype=torch.float64)
        step[piece] = 1e-5
        slope = (fit.value(points[0] + step)[0] - fit.value(points[0] - step)[0]) / 2e-5
        assert float(gradient[piece]) == pytest.approx(slope, abs=1e-6)


def test_a_unigram_model_is_recovered() -> None:
    vocabulary = make_vocabulary(LETTERS + LONGER, type="unigram")
    generator = np.random.default_rng(5)
    truth = generator.normal(size=len(vocabulary)) - 3
    posteriors = {word: posterior(word, vocabulary, truth) for word in WORDS}
    fit = UnigramFit(vocabulary, WORDS, expected(vocabulary, posteriors), ridge=1e-9)
    scores = fit.minimum(max_updates=1000, least_gain=0).numpy()
    for word, cuts in posteriors.items():
        assert posterior(word, vocabulary, scores) == pytest.approx(cuts, abs=1e-4)


def test_words_beyond_the_limit_are_left_out_and_the_others_counted_right() -> None:
    vocabulary = make_vocabulary(LETTERS)
    lines = ["a a b", "c ab", "a ba", "bb b", "", "a cc b", "aaa aab aba"]
    truth = Counter(MARKER + word for line in lines for word in line.split())
    assert frequent_words(vocabulary, lambda: lines, 100) == truth
    few = frequent_words(vocabulary, lambda: lines, 2)
    assert few == {f"{MARKER}a": truth[f"{MARKER}a"], f"{MARKER}b": truth[f"{MARKER}b"]}


def test_dpe_keeps_protected_strings_whole() -> None:
    vocabulary = make_vocabulary([*LETTERS, *LONGER, ("c@", -3.0), ("@a", -3.0)], protected=["@", "ba@c"])
    scores = np.random.default_rng(6).normal(size=len(vocabulary)) - 8
    distilled = distilled_vocabulary(vocabulary, scores)
    assert distilled.pieces == vocabulary.pieces
    assert distilled.protected == vocabulary.protected
    for line in ["abc@abc", "c@a", "aba@cab", "@@", "x@☃ @", "", f"a{MARKER}b@"]:
        pieces = distilled.encode(line)
        assert "".join(pieces) == vocabulary.normalize(line)
        assert pieces.count("@") + pieces.count("ba@c") == line.count("@")


def test_counts_of_a_run_are_those_of_every_line(segment_place: Path, tmp_path: Path) -> None:
    """Against enumeration of every segmentation, by which the pairing of lines shows."""
    segmenter = Segmenter.load(segment_place / "segmenter")
    pairs = [("a house", "talo"), ("from the house", "talosta"), ("", "☃ on")]
    sources, targets = map(list, zip(*pairs, strict=True))
    out = tmp_path / "d.model"
    distilled = distill(out, segmenter=segment_place / "segmenter", source=sources, target=targets)
    assert Vocabulary.load(out).content == distilled.content
    assert list(read_lines(segmented_file(out))) == [
        " ".join(one.pieces) for one in segmenter.best(sources, targets)
    ]
    counts = np.zeros(len(segmenter.vocabulary))
    for source, target in pairs:
        cuts = brute_force(segmenter, source, target)
        total = log_sum_exp(list(cuts.values()))
        for cut, score in cuts.items():
            for piece in segmenter.vocabulary.piece_ids(cut):
                counts[piece] += math.exp(score - total)
    words = frequent_words(segmenter.vocabulary, lambda: targets, 100)
    fit = UnigramFit(
        segmenter.vocabulary, words, PieceCounts(counts, np.zeros(len(counts))), ridge=DistillSettings().ridge
    )
    wanted = distilled_vocabulary(segmenter.vocabulary, fit.minimum(max_updates=300).numpy()).scores
    assert distilled.scores == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("counts", ["posterior", "best"])
def test_a_language_model_and_both_counts(segment_place: Path, tmp_path: Path, counts: str) -> None:
    targets = [target for _, target in PAIRS[:60]] + ["", "  ", f"{MARKER}a", "☃☃ talo", "\u4e2d\u6587"]
    settings = DistillSettings(counts=counts, max_types=40)  # type: ignore[arg-type]
    whole = distill(tmp_path / "a", segmenter=segment_place / "lm", target=targets, settings=settings)
    again = distill(
        tmp_path / "b",
        segmenter=segment_place / "lm",
        target=targets,
        settings=settings,
        session=Session(workers=2),
    )
    assert whole.content == again.content
    assert whole.type == "unigram"
    processor = sentencepiece.SentencePieceProcessor(model_proto=whole.content)
    for line in targets:
        assert whole.encode(line) == processor.encode(line, out_type=str)
        assert "".join(whole.encode(line)) == whole.normalize(line)
    assert all(math.isfinite(score) for score in whole.scores.values())


@pytest.mark.parametrize("targets", [["漢字 漢", "☃"], ["", f"{MARKER}{MARKER}", "☃ ☃"], ["a" * 2_500]])
def test_text_that_says_little_still_gives_a_model(
    segment_place: Path, tmp_path: Path, targets: list[str]
) -> None:
    """Only unknown characters, hardly a word, one very long one."""
    settings = DistillSettings(max_updates=20)
    model = distill(tmp_path / "m", segmenter=segment_place / "lm", target=targets, settings=settings)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.content)
    for line in [*targets, "talossa ☃", ""]:
        assert model.encode(line) == processor.encode(line, out_type=str)
        assert "".join(model.encode(line)) == model.normalize(line)
    assert all(math.isfinite(score) for score in model.scores.values())
    segmenter = Segmenter.load(segment_place / "lm")
    pruned = prune_vocabulary(tmp_path / "p", segmenter=segment_place / "lm", target=targets, size=150)
    assert len(pruned) == 150
    assert set(pruned.ids) < set(segmenter.vocabulary.ids)
    assert "".join(pruned.encode(targets[0])) == pruned.normalize(targets[0])


def test_words_beyond_the_limit_are_counted_in_pieces_only(segment_place: Path, tmp_path: Path) -> None:
    """One type is fitted. Pieces that are in no segmentation of it keep the scores of their counts."""
    targets = ["auto auto auto", "talossa", "kirjoissa"]
    few = distill(
        tmp_path / "few",
        segmenter=segment_place / "lm",
        target=targets,
        settings=DistillSettings(max_types=1),
    )
    record = json.loads((tmp_path / ".few.pieces.gz.dpe.json").read_text("utf-8"))
    fitted = {key for key in record["totals"] if not key.startswith("other ")}
    pieces = few.pieces
    assert set("".join(pieces[int(key)] for key in fitted)) == set(f"{MARKER}auto")
    words = {f"{MARKER}auto": 3}
    counts = PieceCounts(*(np.zeros(len(few)) for _ in range(2)))
    for key, value in record["totals"].items():
        kind, _, piece = key.rpartition(" ")
        (counts.other if kind else counts.fitted)[int(piece)] = value
    fit = UnigramFit(few, words, counts, ridge=DistillSettings().ridge)
    elsewhere = [piece for piece in few.ids if not set(piece) & set(f"{MARKER}auto")]
    assert len(elsewhere) > 10
    for piece in elsewhere:
        assert few.scores[piece] == pytest.approx(float(fit.start[few.ids[piece]]), abs=1e-4)


def test_mistakes(segment_place: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trained with a source"):
        distill(tmp_path / "m", segmenter=segment_place / "segmenter", target=["a"])
    with pytest.raises(UserError, match="trained without a source"):
        distill(tmp_path / "m", segmenter=segment_place / "lm", source=["a"], target=["a"])
    with pytest.raises(UserError, match="no words"):
        distill(tmp_path / "m", segmenter=segment_place / "lm", target=["", ""])
    assert not (tmp_path / "m").exists()


def test_the_command_and_what_the_stored_scores_say(segment_place: Path, tmp_path: Path, dpe: Dpe) -> None:
    """Every word is cut as the best path by the stored scores, in double precision, whoever cuts it."""
    source, target = str(segment_place / "x.en"), str(segment_place / "x.fi")
    files, out = ["--source", source, "--target", target], str(tmp_path / "distilled.model")
    dpe("distill", "--segmenter", str(segment_place / "segmenter"), *files, "--out", out)
    model, lines = Vocabulary.load(Path(out)), list(read_lines(Path(target)))
    unknown = min(model.scores.values()) - 10
    for line in lines:
        words = split_words(model.normalize(line))
        for word, pieces in zip(words, pieces_by_word(words, model.encode(line)), strict=True):
            scores = {
                cut: sum(model.scores.get(piece, unknown) for piece in cut)
                for cut in cuts_of_text(word, model)
            }
            assert scores[tuple(pieces)] == pytest.approx(max(scores.values()), abs=1e-4)
    encoded, _ = dpe("encode", "--vocab", out, "--method", "unigram", target)
    assert encoded.splitlines() == [" ".join(model.encode(line)) for line in lines]
    content = Path(out).read_bytes()
    _, err = dpe("distill", "--segmenter", str(segment_place / "lm"), *files, "--out", out, code=2)
    assert "trained without a source" in err
    _, err = dpe(
        "distill", "--segmenter", str(segment_place / "lm"), "--target", target, "--out", target, code=2
    )
    assert Path(out).read_bytes() == content
    assert list(read_lines(Path(target))) == lines
