"""What training optimises, on which draws, by which steps: against brute force and the textbook."""

from __future__ import annotations

import copy
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import test_trainer
import torch
from models import make_model
from segmenters import PAIRS, learned_vocabulary, save_segmenter
from test_segmenter import LETTERS, LONGER, SENTENCES, brute_force, log_sum
from test_trainer import NETWORK, TARGETS, train
from translators import SETTINGS, TRAIN, bleu, open_corpus, write_corpus
from translators import train as train_translator

from benchmarks.textbook import table, textbook_log_likelihood
from dpe import Segmenter
from dpe.errors import UserError
from dpe.inference import scored_batch
from dpe.model.batching import MixedCollator
from dpe.model.chunked_softmax import product_type
from dpe.model.cross_entropy import smoothed_cross_entropy_reference
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer
from dpe.text.draws import Draw
from dpe.text.segmenters import Bpe, BpeDropout, LongestMatch
from dpe.text.vocabulary import Vocabulary
from dpe.training.checkpoint import average_weights, put_weights, read_settings, save_tensors
from dpe.training.curve import read_curve
from dpe.training.objectives import batch_edge_scores, marginal_log_likelihood
from dpe.training.segmenter_task import SegmenterData, SegmenterTask
from dpe.training.session import Stopping
from dpe.training.target_cuts import CountTargets
from dpe.training.trainer import Trainer
from dpe.training.translator_task import TranslatorData, TranslatorTask


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_vocabulary()


@pytest.fixture(scope="module")
def segmenter(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    return Segmenter.load(save_segmenter(tmp_path_factory.mktemp("s") / "segmenter", vocabulary))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("with_source", [True, False])
def test_training_maximises_the_likelihood_of_brute_force(tmp_path: Path, with_source: bool) -> None:
    letters = make_model(LETTERS + LONGER, protected=["cc"])
    chosen = Segmenter.load(save_segmenter(tmp_path / "s", letters, source=with_source))
    source = "ab c" if with_source else None
    pieces = letters.encode(source) if source else None
    examples = [chosen.example(line, pieces, target) for line, target in enumerate(SENTENCES)]
    batch = MixedCollator(letters).collate(examples, epoch=0)
    found = marginal_log_likelihood(batch_edge_scores(chosen._model, batch), batch)
    wanted = [log_sum(list(brute_force(chosen, source, target).values())) for target in SENTENCES]
    assert found.tolist() == pytest.approx(wanted, abs=1e-4)


def test_the_loss_and_its_gradient_are_those_of_the_textbook(
    segmenter: Segmenter, vocabulary: Vocabulary
) -> None:
    """Of benchmarks/textbook.py: the full softmax, and Alg. 1 over characters that autograd records."""
    model = copy.deepcopy(segmenter._model).double().requires_grad_(True)
    pairs = enumerate(PAIRS[:12])
    examples = [segmenter.example(n, vocabulary.encode(source), target) for n, (source, target) in pairs]
    batch = MixedCollator(vocabulary).collate(examples, epoch=0)
    ours = marginal_log_likelihood(batch_edge_scores(model, batch, threshold=0.0), batch)
    theirs = textbook_log_likelihood(model, batch, table(batch))
    torch.testing.assert_close(ours, theirs)
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(loss.sum(), parameters) for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_answers_found_in_parts_are_the_same(segmenter: Segmenter, monkeypatch: pytest.MonkeyPatch) -> None:
    sources, targets = map(list, zip(*PAIRS[:20], strict=True))
    ranked, drawn = segmenter.n_best(sources, targets, n=3), segmenter.sample(sources, targets, n=5)
    monkeypatch.setattr(scored_batch, "_CELLS_AT_ONCE", 1)
    assert segmenter.n_best(sources, targets, n=3) == ranked
    assert segmenter.sample(sources, targets, n=5) == drawn


def translator_task(corpus: Path, vocabulary: Vocabulary) -> TranslatorTask:
    data = TranslatorData(
        vocabulary=vocabulary,
        train=open_corpus(corpus, "train"),
        dev=open_corpus(corpus, "dev"),
        cut_source=BpeDropout(vocabulary, dropout=0.3),
        targets=CountTargets(Bpe(vocabulary), seed=9),
        dev_bleu=bleu,
        cut_seed=9,
    )
    model = TranslationTransformer.of(SETTINGS.network, vocabulary)
    return TranslatorTask(model, data, batch=500, seed=1, label_smoothing=0.3)


def test_the_source_is_cut_by_the_draw_that_a_segmenters_cuts_know_of(
    corpus: Path, vocabulary: Vocabulary
) -> None:
    task, dropout = translator_task(corpus, vocabulary), BpeDropout(vocabulary, dropout=0.3)
    for epoch in (0, 1):
        for example in chain.from_iterable(task.batches(epoch)):
            cut = dropout.cut(TRAIN[example.line][0], Draw(9, epoch, example.line))
            assert example.source == [*vocabulary.piece_ids(cut), vocabulary.eos_id]


def test_the_loss_is_smoothed_and_the_number_shown_is_not(corpus: Path, vocabulary: Vocabulary) -> None:
    task = translator_task(corpus, vocabulary)
    task.model.eval()
    batch = task.collate(next(task.batches(0)), 0)
    loss, nats, tokens = task.loss(batch)
    states = task.model.states(batch.source, batch.source_lengths, batch.target_in)
    real = batch.target_out != vocabulary.pad_id
    wanted = smoothed_cross_entropy_reference(
        states[real], task.model.embedding.weight, batch.target_out[real], smoothing=0.3
    )
    assert (float(loss.detach()), nats) == pytest.approx(
        tuple(float(one.detach()) for one in wanted[:2]), rel=1e-4
    )
    assert tokens == int(real.sum())


def test_a_segmenter_learns_from_draws_of_every_epoch(corpus: Path, vocabulary: Vocabulary) -> None:
    data = SegmenterData(
        vocabulary=vocabulary,
        train=open_corpus(corpus, "train"),
        dev=open_corpus(corpus, "dev"),
        cut_source=BpeDropout(vocabulary, dropout=0.3),
    )
    task = SegmenterTask(MixedTransformer.of(NETWORK, vocabulary, source=True), data, batch=2_000, seed=4)
    dropout = BpeDropout(vocabulary, dropout=0.3)
    for epoch in (0, 1):
        for example in chain.from_iterable(task.batches(epoch)):
            cut = dropout.cut(TRAIN[example.line][0], Draw(4, epoch, example.line))
            assert example.source == [*vocabulary.piece_ids(cut), vocabulary.eos_id]


def test_the_rate_rises_and_falls_and_gradients_are_clipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = torch.optim.Adam.step

    def recorded(self: torch.optim.Adam, *arguments: Any) -> Any:
        (group,) = self.param_groups
        rates.append(group["lr"])
        assert group["betas"] == (0.9, 0.98)
        assert torch.cat([p.grad.flatten() for p in group["params"]]).norm() < 1.0 + 1e-4
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", recorded)
    train(tmp_path / "out", steps=9)
    assert rates == pytest.approx([1e-3 * min(n / 4, (4 / n) ** 0.5) for n in range(1, 10)])


def test_an_average_is_the_mean(tmp_path: Path) -> None:
    for n in (1, 2, 6):
        save_tensors(tmp_path / str(n), {"w": torch.full((2,), float(n))}, {})
    assert average_weights(tmp_path / str(n) for n in (1, 2, 6))["w"].tolist() == [3.0, 3.0]


def test_another_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tmp_path / "out", steps=1)
    there = Vocabulary.load(tmp_path / "out" / "vocab.model")
    monkeypatch.setattr(test_trainer, "TARGETS", [*TARGETS[:-1], "talossa autossa"])
    monkeypatch.setattr(test_trainer, "learn_vocabulary", lambda *_: there)
    with pytest.raises(UserError, match=r"other settings \(another data\."):
        train(tmp_path / "out", steps=2)


@pytest.mark.parametrize(
    ("weights", "says"),
    [({}, "another network"), ({"weight": torch.ones(2, 1), "bias": torch.ones(1)}, "another size")],
)
def test_weights_of_another_network_are_refused(weights: dict[str, torch.Tensor], says: str) -> None:
    with pytest.raises(UserError, match=says):
        put_weights(torch.nn.Linear(1, 1), weights, name="last.safetensors")


def test_a_record_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "training.jsonl").write_text('{"step": 1}\n{"step": 2')
    assert read_curve(tmp_path / "training.jsonl") == [{"step": 1}]


def test_a_model_of_another_format_is_refused(tmp_path: Path, vocabulary: Vocabulary) -> None:
    directory = save_segmenter(tmp_path / "s", vocabulary)
    path = directory / "settings.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(UserError, match="has format 2, and this version of dpe reads format 1"):
        read_settings(directory, "segmenter")


def test_products_are_of_the_type_that_autocast_wants() -> None:
    states = torch.zeros(1)
    assert product_type(states) == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product_type(states) == torch.bfloat16


CUTS = {"bpe": Bpe, "bpe-dropout": BpeDropout, "longest-match": LongestMatch}


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
    monkeypatch.setattr(Trainer, "train", lambda self: found.append(self.task.data))
    chosen: dict[str, Any] = dict(zip(("source_method", "target_method"), methods, strict=True))
    train_translator(tmp_path / "out", corpus, vocabulary, stopping=Stopping(steps=1), **chosen)
    (data,) = found
    assert (type(data.cut_source), type(data.targets.segmenter)) == tuple(map(CUTS.get, methods))
