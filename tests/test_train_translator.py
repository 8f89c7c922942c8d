"""Training a translator: every way to cut, cuts of a segmenter kept and shared, resumption, refusals."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from dpe import Segmenter, UserError
from dpe.cli import run
from dpe.model.checkpoint import load_tensors
from dpe.segmenter.scored_batch import ScoredBatch
from dpe.segmenter.settings import SegmentSettings
from dpe.text.bpe import BpeDropout
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.segmenters import CountSegmenter, LongestMatch, OwnCut
from dpe.text.unigram import Unigram
from dpe.text.vocabulary import Vocabulary
from dpe.training.log import read_curve
from dpe.training.trainer import Trainer
from dpe.translator.settings import TranslatorSettings
from dpe.translator.targets import KeptCuts
from dpe.translator.translator import Translator
from tests.segmenters import learned_vocabulary, save_segmenter
from tests.translators import TRAIN, train, write_corpus

TWO_STEPS = {"steps": 2}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_vocabulary()


@pytest.fixture(scope="module")
def unigram() -> Vocabulary:
    lines = (side for pair in TRAIN for side in pair)
    return learn_vocabulary(lines, VocabularySettings(size=200, type="unigram"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def segmenter(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_segmenter(tmp_path_factory.mktemp("segmenter") / "segmenter", vocabulary)


@pytest.fixture(scope="module")
def unigram_segmenter(unigram: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_segmenter(tmp_path_factory.mktemp("unigram") / "segmenter", unigram)


@pytest.fixture(scope="module")
def language_model(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_segmenter(tmp_path_factory.mktemp("lm") / "segmenter", vocabulary, source=False)


def read_cuts(path: Path) -> list[list[str]]:
    return [line.split() for line in gzip.decompress(path.read_bytes()).decode().split("\n")[:-1]]


def cut_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.pieces.gz"), key=lambda path: path.name.partition(".")[2])


@pytest.mark.parametrize(
    ("now", "before", "can"),
    [
        ({"steps": 20}, {"steps": 10}, True),
        ({"steps": 10}, {"steps": 20}, False),
        ({"epochs": 3}, {"epochs": 3, "patience": 2}, True),
        ({"epochs": 3, "patience": 2}, {"epochs": 3}, False),
        ({"epochs": 9, "patience": 1}, {"epochs": 3, "patience": 2}, False),
        ({"epochs": 9, "average": 2}, {"epochs": 3, "average": 2}, False),
        ({"epochs": 9, "batch": 7}, {"epochs": 3}, False),
        ({"epochs": 9, "evaluate_updates": 7}, {"epochs": 3}, False),
        ({"until_cuts_change_less_than": 0.01}, {"until_cuts_change_less_than": 0.02}, True),
        ({"until_cuts_change_less_than": 0.02}, {"until_cuts_change_less_than": 0.01}, False),
        ({}, {"until_cuts_change_less_than": 0.01}, True),
        ({"until_cuts_change_less_than": 0.01}, {}, False),
        ({"epochs": 9, "schedule": "linear"}, {"epochs": 3, "schedule": "linear"}, False),
        ({"epochs": 9, "schedule": "linear"}, {"epochs": 9, "schedule": "linear", "patience": 2}, True),
    ],
)
def test_a_training_can_only_become_longer(now: Any, before: Any, can: bool) -> None:
    assert TranslatorSettings(**now).prolongs(TranslatorSettings(**before)) is can


@pytest.mark.parametrize("source", ["bpe", "bpe-dropout"])
@pytest.mark.parametrize("target", ["bpe", "bpe-dropout", "longest-match"])
def test_count_based_methods_train(
    corpus: Path, vocabulary: Vocabulary, tmp_path: Path, source: str, target: str
) -> None:
    train(
        tmp_path, corpus, vocabulary, **TWO_STEPS,
        source_method=source, target_method=target, bpe_dropout=0.3,
    )  # fmt: skip
    assert (tmp_path / "model.safetensors").exists()


def test_unigram_sampling_trains(corpus: Path, unigram: Vocabulary, tmp_path: Path) -> None:
    methods = {"source_method": "unigram", "target_method": "unigram"}
    train(tmp_path, corpus, unigram, **TWO_STEPS, **methods)
    assert (tmp_path / "model.safetensors").exists()


def test_bits_fall_and_bleu_is_noted(corpus: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    train(tmp_path, corpus, vocabulary, epochs=4, average=2)
    records = [record for record in read_curve(tmp_path / "training.jsonl") if "dev_bits" in record]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4, 4]
    assert records[3]["dev_bits"] < records[0]["dev_bits"] - 0.5
    assert records[-1]["averaged"] == 2
    assert all(0 <= record["dev_bleu"] <= 100 and record["dev_length"] >= 0 for record in records)
    best = max(records, key=lambda record: record["dev_bleu"])
    assert load_tensors(tmp_path / "model.safetensors")[1]["dev_bleu"] == best["dev_bleu"]


def test_training_stops_when_bleu_does_not_improve(
    corpus: Path, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([5.0, 7.0, 6.0, 6.5, 9.0])
    monkeypatch.setattr("dpe.translator.training.dev_bleu", lambda **_: lambda *_: (next(values), 1.0))
    position = train(tmp_path, corpus, vocabulary, epochs=9, patience=2, batch=4_000)
    assert position.epoch == 4


def test_long_lines_are_left_out(corpus: Path, vocabulary: Vocabulary, tmp_path: Path) -> None:
    kept = [
        line for line, pair in enumerate(TRAIN) if max(len(vocabulary.encode(side)) for side in pair) <= 12
    ]
    assert 0 < len(kept) < len(TRAIN)
    position = train(tmp_path, corpus, vocabulary, epochs=1, max_tokens=12, batch=13)
    assert position.step == len(kept)  # a batch holds one line


def test_giant_lines_of_dev_are_left_out(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, sizes = write_corpus(tmp_path / "corpus"), list[tuple[int, int]]()
    for side in ("en", "fi"):
        with (corpus / f"dev.{side}").open("a", encoding="utf-8") as file:
            file.write("a " * 1001 + "\n")
    monkeypatch.setattr(
        "dpe.translator.training.dev_bleu",
        lambda **_: lambda *texts: sizes.append(tuple(map(len, texts))) or (1.0, 1.0),
    )
    train(tmp_path / "out", corpus, vocabulary, steps=1)
    assert sizes == [(10, 10)]


def expected_cuts(
    directory: Path, *, epoch: int, dropout: float = 0.0, alpha: float | None = None
) -> list[list[str]]:
    """Best cuts of the training targets given the sources drawn for an epoch, through the Segmenter."""
    segmenter = Segmenter.load(directory)
    source_cuts: CountSegmenter = OwnCut(segmenter.vocabulary)
    if alpha is not None:
        source_cuts = Unigram(segmenter.vocabulary, alpha=alpha)
    elif dropout:
        source_cuts = BpeDropout(segmenter.vocabulary, dropout=dropout)
    examples = [
        segmenter.example(
            line, source_cuts.cut(source, Draw(9, epoch, line)) if segmenter.has_source else None, target
        )
        for line, (source, target) in enumerate(TRAIN)
    ]
    return [list(cut.pieces) for cut in segmenter.answers(examples, ScoredBatch.best)]


def differing(one: list[list[str]], other: list[list[str]]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def test_dpe_cuts_the_target_given_each_epochs_source(
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, tmp_path: Path
) -> None:
    train(
        tmp_path, corpus, vocabulary, epochs=2, segmenter=segmenter,
        source_method="bpe-dropout", target_method="dpe", bpe_dropout=0.2, cut_seed=9, batch=4_000,
    )  # fmt: skip
    files = cut_files(tmp_path / "cuts")
    assert [path.name.split(".")[1] for path in files] == ["epoch-000", "epoch-001"]
    first, second = map(read_cuts, files)
    # Another batch may decide a tie by rounding, hence the tolerance.
    assert differing(first, expected_cuts(segmenter, epoch=0, dropout=0.2)) <= 1
    assert differing(second, expected_cuts(segmenter, epoch=1, dropout=0.2)) <= 1
    records = [record for record in read_curve(tmp_path / "training.jsonl") if "dev_bleu" in record]
    assert all(record["cutting_seconds"] > 0 < record["training_seconds"] for record in records)
    assert "changed_lines" not in records[0]
    assert records[1]["changed_lines"] == differing(first, second) / len(TRAIN) > 0


def test_dpe_cuts_the_target_given_each_epochs_samples_of_the_source(
    corpus: Path, unigram: Vocabulary, unigram_segmenter: Path, tmp_path: Path, epochs: list[int]
) -> None:
    """Also when the training was stopped in between; it then ends with the same weights."""
    settings: dict[str, Any] = {"source_method": "unigram", "target_method": "dpe", "batch": 4_000}
    settings |= {"segmenter": unigram_segmenter, "unigram_alpha": 0.3, "cut_seed": 9}
    train(tmp_path / "whole", corpus, unigram, epochs=2, cuts=tmp_path / "cuts", **settings)
    first, second = map(read_cuts, cut_files(tmp_path / "cuts"))
    assert differing(first, expected_cuts(unigram_segmenter, epoch=0, alpha=0.3)) <= 1
    assert differing(second, expected_cuts(unigram_segmenter, epoch=1, alpha=0.3)) <= 1
    assert differing(first, second) > 0
    for steps in ({"steps": 2}, {"epochs": 2}):
        train(tmp_path / "stopped", corpus, unigram, cuts=tmp_path / "cuts", **steps, **settings)
    assert epochs == [0, 1]
    whole, stopped = (load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("whole", "stopped"))
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_fixed_targets_over_a_unigram_vocabulary_are_cut_given_its_best_source(
    corpus: Path, unigram: Vocabulary, unigram_segmenter: Path, tmp_path: Path
) -> None:
    for source in ("unigram", "unigram-best"):
        train(
            tmp_path / source, corpus, unigram, **TWO_STEPS, segmenter=unigram_segmenter,
            source_method=source, target_method="dpe-fixed", cuts=tmp_path / "cuts",
        )  # fmt: skip
    (file,) = cut_files(tmp_path / "cuts")
    assert differing(read_cuts(file), expected_cuts(unigram_segmenter, epoch=0)) <= 1


@pytest.mark.parametrize(("method", "is_lm"), [("dpe-fixed", False), ("dpe-fixed", True), ("dpe", True)])
def test_what_does_not_depend_on_dropout_is_cut_once(  # noqa: PLR0917
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, language_model: Path, tmp_path: Path,
    method: str, is_lm: bool,
) -> None:  # fmt: skip
    directory = language_model if is_lm else segmenter
    train(
        tmp_path, corpus, vocabulary, epochs=2, segmenter=directory,
        source_method="bpe-dropout", target_method=method, bpe_dropout=0.2, batch=4_000,
    )  # fmt: skip
    (file,) = cut_files(tmp_path / "cuts")
    assert differing(read_cuts(file), expected_cuts(directory, epoch=0, dropout=0.0)) <= 1


def test_target_sampling_draws_other_cuts_every_epoch(
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, tmp_path: Path
) -> None:
    train(
        tmp_path, corpus, vocabulary, epochs=2, segmenter=segmenter,
        target_method="dpe", target_sampling=1.0, batch=4_000,
    )  # fmt: skip
    first, second = map(read_cuts, cut_files(tmp_path / "cuts"))
    assert differing(first, second) > len(TRAIN) // 10
    for cut, (_, target) in zip(first, TRAIN, strict=True):
        assert "".join(cut) == vocabulary.normalize(target)


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs whose targets are segmented, not taken from disk."""
    found: list[int] = []
    segment = KeptCuts._segment

    def counting(self: KeptCuts, out: Path, settings: SegmentSettings, *more: Any) -> None:
        found.append(settings.epoch)
        segment(self, out, settings, *more)

    monkeypatch.setattr(KeptCuts, "_segment", counting)
    return found


def dpe_training(out: Path, corpus: Path, vocabulary: Vocabulary, **more: Any) -> None:
    train(
        out, corpus, vocabulary, source_method="bpe-dropout", target_method="dpe", bpe_dropout=0.1, **more
    )  # fmt: skip


def test_translators_share_cuts_and_a_resumed_one_ends_alike(
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, tmp_path: Path, epochs: list[int]
) -> None:
    shared = {"segmenter": segmenter, "cuts": tmp_path / "cuts"}
    dpe_training(tmp_path / "whole", corpus, vocabulary, epochs=2, **shared)
    assert epochs == [0, 1]
    dpe_training(tmp_path / "other", corpus, vocabulary, epochs=2, seed=2, **shared)
    assert epochs == [0, 1]  # another seed of the network, the same cuts
    dpe_training(tmp_path / "stopped", corpus, vocabulary, steps=5, **shared)
    dpe_training(tmp_path / "stopped", corpus, vocabulary, epochs=2, **shared)
    assert epochs == [0, 1]
    whole, stopped, other = (
        load_tensors(tmp_path / name / "last.safetensors")[0] for name in ("whole", "stopped", "other")
    )
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)
    assert not torch.equal(whole["model.embedding.weight"], other["model.embedding.weight"])


def test_another_seed_of_the_cuts_cuts_anew(
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, tmp_path: Path
) -> None:
    for seed in (1, 2):
        dpe_training(
            tmp_path / str(seed), corpus, vocabulary, **TWO_STEPS, cut_seed=seed,
            segmenter=segmenter, cuts=tmp_path / "cuts",
        )  # fmt: skip
    first, second = cut_files(tmp_path / "cuts")
    assert read_cuts(first) != read_cuts(second)


@pytest.mark.parametrize(
    ("changes", "with_segmenter", "sentence"),
    [
        ({"target_method": "dpe"}, False, "needs a segmenter"),
        ({"target_method": "dpe-fixed"}, False, "needs a segmenter"),
        ({"target_method": "bpe"}, True, "does not use a segmenter"),
        ({"target_method": "bpe", "target_sampling": 1.0}, False, "needs target method dpe"),
        ({"target_method": "dpe-fixed", "target_sampling": 1.0}, True, "needs target method dpe"),
        ({"target_method": "dpe", "target_sampling": 0.0}, True, "at least 1e-100"),
        ({"target_method": "dpe"}, True, "choose bpe-dropout as source method, or dpe-fixed"),
        (
            {"source_method": "unigram-best", "target_method": "dpe"},
            True,
            "choose unigram with unigram_alpha as source method, or dpe-fixed",
        ),
        (
            {"source_method": "unigram", "target_method": "dpe", "unigram_alpha": None},
            True,
            "the source is not drawn",
        ),
        (
            {"source_method": "unigram", "target_method": "dpe", "unigram_nbest": 8},
            True,
            "leave unigram_nbest out",
        ),
        ({"source_method": "unigram", "target_method": "dpe"}, True, "needs a unigram vocabulary"),
        ({"source_method": "unigram-best"}, False, "needs a unigram vocabulary"),
        ({"source_method": "unigram"}, False, "needs a unigram vocabulary"),
        ({"target_method": "unigram"}, False, "needs a unigram vocabulary"),
        ({"label_smoothing": 1.0}, False, "label_smoothing is 1.0; it must be less than 1"),
    ],
)
def test_what_does_not_fit_is_refused(  # noqa: PLR0917
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, tmp_path: Path,
    changes: dict[str, Any], with_segmenter: bool, sentence: str,
) -> None:  # fmt: skip
    with pytest.raises(UserError, match=sentence):
        train(
            tmp_path / "out",
            corpus,
            vocabulary,
            segmenter=segmenter if with_segmenter else None,
            **TWO_STEPS | changes,
        )
    assert not (tmp_path / "out").exists()


def test_other_vocabularies_are_refused(
    corpus: Path, vocabulary: Vocabulary, unigram: Vocabulary, segmenter: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="another vocabulary"):
        dpe_training(
            tmp_path, corpus, learned_vocabulary(180), **TWO_STEPS,
            segmenter=segmenter,
        )  # fmt: skip
    with pytest.raises(UserError, match="needs a bpe vocabulary"):
        train(tmp_path, corpus, unigram, **TWO_STEPS)


def test_going_on_with_another_segmenter_is_refused(
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, language_model: Path, tmp_path: Path
) -> None:
    dpe_training(tmp_path, corpus, vocabulary, **TWO_STEPS, segmenter=segmenter)
    with pytest.raises(UserError, match="other settings"):
        dpe_training(tmp_path, corpus, vocabulary, **TWO_STEPS, segmenter=language_model)


def command(corpus: Path, *more: object) -> list[str]:
    sides = [f"--{name}{side}" for name in ("", "dev-") for side in ("source", "target")]
    files = [corpus / f"{name}.{language}" for name in ("train", "dev") for language in ("en", "fi")]
    paths = [item for pair in zip(sides, files, strict=True) for item in pair]
    return ["-q", "train-translator", *map(str, [*paths, "--preset", "tiny", "--steps", 2, *more])]


def test_the_command_trains_a_translator_that_can_be_loaded(
    corpus: Path, vocabulary: Vocabulary, segmenter: Path, tmp_path: Path
) -> None:
    vocabulary.save(tmp_path / "vocab.model")
    out = tmp_path / "out"
    options = ["--vocab", tmp_path / "vocab.model", "--out", out, "--batch-tokens", 500]
    dpe = ["--source-method", "bpe-dropout", "--target-method", "dpe", "--segmenter", segmenter]
    moses = ["--moses", "en", "fi", "--cuts", tmp_path / "shared"]
    assert run(command(corpus, *options, *dpe, *moses)) == 0
    assert len(cut_files(tmp_path / "shared")) == 1
    assert (out / "training.png").exists()
    assert isinstance(Translator.load(out).translate("a dog.", beam=1), str)


def test_the_command_refuses_in_one_sentence(
    corpus: Path, vocabulary: Vocabulary, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vocabulary.save(tmp_path / "vocab.model")
    options = ["--vocab", tmp_path / "vocab.model", "--out", tmp_path / "out", "--target-method", "dpe"]
    assert run(command(corpus, *options)) == 2
    assert capsys.readouterr().err == ("dpe: Target method dpe needs a segmenter; give --segmenter.\n")


CUTS = {"bpe": OwnCut, "bpe-dropout": BpeDropout, "longest-match": LongestMatch}


@pytest.mark.parametrize(
    "methods", [("bpe", "bpe-dropout"), ("bpe-dropout", "longest-match"), ("bpe-dropout", "bpe")]
)
def test_each_side_is_cut_by_its_method(
    methods: tuple[str, str],
    corpus: Path,
    vocabulary: Vocabulary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []
    monkeypatch.setattr(Trainer, "train", lambda self: found.append(self.task))
    chosen: dict[str, Any] = dict(zip(("source_method", "target_method"), methods, strict=True))
    train(tmp_path / "out", corpus, vocabulary, steps=1, **chosen)
    (task,) = found
    assert (type(task._cut_source), type(task._targets.segmenter)) == tuple(map(CUTS.get, methods))
