"""What decides a result acts where it should: lines, losses, draws, limits, settings of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from dpe import Segmenter
from dpe.experiment import outputs
from dpe.experiment.recipe import read_recipe
from dpe.experiment.stages import Experiment
from dpe.lattice import dynamic_program
from dpe.model.batch_order import epoch_batches
from dpe.model.checkpoint import average_weights, save_model
from dpe.model.cross_entropy import smoothed_cross_entropy_reference
from dpe.model.mixed import MixedTransformer
from dpe.model.settings import MixedSettings
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.training import SegmenterTask, train_segmenter
from dpe.text.bpe import BpeDropout
from dpe.text.draws import TARGET_STREAM, Draw
from dpe.text.segmenters import OwnCut
from dpe.text.text_file import ParallelText
from dpe.text.unigram import Unigram, uniform
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Processes, Session
from dpe.training.trainer import Trainer
from dpe.translator.settings import Search
from dpe.translator.training import TranslatorTask
from dpe.translator.translator import Translation, length_limit
from tests.epochs import batches_of
from tests.experiments import MINUSCULE
from tests.segmenters import DECODERS, SMALLEST, learned_vocabulary, save_segmenter
from tests.translators import DEV, SETTINGS, TRAIN, train, write_corpus


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_vocabulary()


@pytest.fixture(scope="module")
def unigram() -> Vocabulary:
    return learned_vocabulary(type="unigram")


@pytest.fixture
def make_task(vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task of a translator's training with some settings, as the trainer gets it."""

    def make(vocabulary: Vocabulary = vocabulary, **changes: Any) -> TranslatorTask:
        found: list[Any] = []
        monkeypatch.setattr(Trainer, "train", lambda self: found.append(self.task))
        number = len(list(tmp_path.iterdir()))
        train(tmp_path / f"out-{number}", write_corpus(tmp_path / "corpus"), vocabulary, steps=1, **changes)
        return found[0]  # type: ignore[no-any-return]

    return make


@pytest.mark.parametrize("method", ["bpe", "dpe-fixed"])
def test_a_line_is_trained_with_its_own_source_and_target(
    method: str, make_task: Any, vocabulary: Vocabulary, tmp_path: Path
) -> None:
    segmenter = save_segmenter(tmp_path / "segmenter", vocabulary) if method == "dpe-fixed" else None
    task = make_task(target_method=method, segmenter=segmenter)
    examples = [example for batch in batches_of(task, 0) for example in batch]
    assert sorted(example.line for example in examples) == list(range(len(TRAIN)))
    for example in examples:
        source, target = TRAIN[example.line]
        assert vocabulary.decode_ids(example.source[:-1]) == source
        assert vocabulary.decode_ids(example.target) == target


def test_dev_is_scored_without_dropout(make_task: Any) -> None:
    task = make_task(dropout=0.5)
    scores = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        task.model.train()
        scores.append(task.evaluate(Processes()))
    assert scores[0] == scores[1]


def test_losses_are_counted_by_the_token_and_by_the_character(make_task: Any, vocabulary: Vocabulary) -> None:
    task = make_task()
    examples = next(batches_of(task, 0))
    batch = task.collate(examples, 0)
    assert task.loss(batch)[2] == sum(len(example.target) + 1 for example in examples)  # with the end
    settings = replace(SMALLEST, source=False)
    text = ParallelText.open(None, [target for _, target in TRAIN])
    model = MixedTransformer.of(settings, vocabulary, source=False)
    segmenter = SegmenterTask(model, vocabulary, text, text, cut_source=OwnCut(vocabulary), settings=settings)
    some = next(batches_of(segmenter, 0))
    wanted = sum(len(vocabulary.normalize(TRAIN[example.line][1])) + 1 for example in some)
    assert segmenter.loss(segmenter.collate(some, 0))[2] == wanted


@pytest.mark.parametrize("smoothing", [0.0, 0.4])
def test_label_smoothing_is_that_of_the_settings(smoothing: float, make_task: Any) -> None:
    task = make_task(label_smoothing=smoothing)
    batch = task.collate(next(batches_of(task, 0)), 0)
    model, real = task.model, batch.target_out != task.model.pad_id
    states = model.states(batch.source, batch.source_lengths, batch.target_in)[real]
    wanted = smoothed_cross_entropy_reference(
        states, model.embedding.weight, batch.target_out[real], smoothing=smoothing
    )
    torch.testing.assert_close(task.loss(batch)[0], wanted[0])


@pytest.mark.parametrize("method", ["bpe-dropout", "uniform"])
def test_random_segmentations_have_the_dropout_and_the_seed_of_the_settings(
    method: str, make_task: Any, vocabulary: Vocabulary
) -> None:
    options = {"bpe_dropout": 0.4, "uniform_skew": 1.3, "cut_seed": 9, "max_tokens": 999}
    task = make_task(source_method="bpe-dropout", target_method=method, **options)
    segmenter = BpeDropout(vocabulary, dropout=0.4)
    by_side = segmenter, uniform(vocabulary, skew=1.3) if method == "uniform" else segmenter
    for example in (example for batch in batches_of(task, 3) for example in batch):
        source, target = TRAIN[example.line]
        draws = Draw(9, 3, example.line), Draw(9 + TARGET_STREAM, 3, example.line)
        rows = zip(by_side, (source, target), draws, strict=True)
        pieces = [one.cut(text, draw) for one, text, draw in rows]
        assert list(example.source[:-1]) == vocabulary.piece_ids(pieces[0])
        assert list(example.target) == vocabulary.piece_ids(pieces[1])


@pytest.mark.parametrize(
    ("method", "alpha", "alphas"),
    [
        ({"target_method": "unigram"}, 0.4, (0.4, 0.4)),
        ({"target_method": "unigram-best"}, 0.4, (0.4, None)),
        ({"source_method": "unigram-best", "target_method": "unigram"}, 0.4, (None, 0.4)),
        ({"target_method": "unigram"}, None, (None, None)),
    ],
)
def test_unigram_samples_have_the_alpha_and_the_seed_of_the_settings(
    make_task: Any, unigram: Vocabulary, method: dict[str, str], alpha: float | None, alphas: Any
) -> None:
    methods = {"source_method": "unigram"} | method
    task = make_task(unigram, **methods, unigram_alpha=alpha, cut_seed=9, max_tokens=999)
    segmenters = [Unigram(unigram, alpha=one) for one in alphas]
    for example in (example for batch in batches_of(task, 3) for example in batch):
        draws = Draw(9, 3, example.line), Draw(9 + TARGET_STREAM, 3, example.line)
        rows = zip(segmenters, TRAIN[example.line], draws, strict=True)
        pieces = [segmenter.cut(text, draw) for segmenter, text, draw in rows]
        assert list(example.source[:-1]) == unigram.piece_ids(pieces[0])
        assert list(example.target) == unigram.piece_ids(pieces[1])


@pytest.mark.parametrize(
    ("kind", "changes", "drawn"),
    [
        ("bpe", {"source_dropout": 0.3}, lambda vocabulary: BpeDropout(vocabulary, dropout=0.3)),
        ("unigram", {"source_alpha": 0.5}, lambda vocabulary: Unigram(vocabulary, alpha=0.5)),
        ("unigram", {}, lambda vocabulary: Unigram(vocabulary, alpha=0.2)),
        ("unigram", {"source_dropout": 0.0}, OwnCut),  # as before there was an alpha
    ],
)
def test_sources_of_a_segmenter_are_drawn_by_its_settings(  # noqa: PLR0917
    kind: str, changes: dict[str, Any], drawn: Any, vocabulary: Vocabulary, unigram: Vocabulary,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    found: list[Any] = []
    monkeypatch.setattr(Trainer, "train", lambda self: found.append(self.task))
    sides = [list(side) for text in (TRAIN, DEV) for side in zip(*text, strict=True)]
    texts = dict(zip(("source", "target", "dev_source", "dev_target"), sides, strict=True))
    used = vocabulary if kind == "bpe" else unigram
    settings = replace(SMALLEST, steps=1, seed=7, **changes)
    train_segmenter(tmp_path / "out", vocabulary=used, settings=settings, **texts)
    (task,) = found
    cut_source = drawn(used)
    examples = [example for batch in batches_of(task, 3) for example in batch]
    assert sorted(example.line for example in examples) == list(range(len(TRAIN)))
    for example in examples:
        pieces = cut_source.cut(TRAIN[example.line][0], Draw(7, 3, example.line))
        assert list(example.source[:-1]) == used.piece_ids(pieces)
        assert example.marked == used.normalize(TRAIN[example.line][1])
    dev = {example.line: example for example in task._dev_examples({})}
    for line, (source, _) in enumerate(DEV):
        assert list(dev[line].source[:-1]) == used.piece_ids(used.encode(source))  # as in use


def test_a_recipes_settings_reach_the_training_of_a_translator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(MINUSCULE, encoding="utf-8")
    changes = {"label_smoothing": 0.3, "bpe_dropout": 0.25, "cut_seed": 8, "max_tokens": 77, "dropout": 0.35}
    recipe = read_recipe(path, [f"translator.{key}={value}" for key, value in changes.items()])
    found: list[Any] = []

    def caught(directory: Path, **arguments: Any) -> Any:
        found.append(arguments["settings"])
        return SimpleNamespace(step=1, epoch=1, seconds=1.0, kept_score=-1.0)

    monkeypatch.setattr("dpe.experiment.stages.train_translator", caught)
    experiment = Experiment(recipe, tmp_path / "run", Session(device="cpu"))
    monkeypatch.setattr(Experiment, "vocabulary", lambda self, kind: self.corpus)  # which needs a text
    for system in recipe.systems:
        experiment.translator(system, 4).make(tmp_path)
    for settings, system in zip(found, recipe.systems, strict=True):
        assert {key: getattr(settings, key) for key in changes} == changes
        assert (settings.seed, settings.source_method, settings.target_method) == (
            4, system.source, system.target,
        )  # fmt: skip


def test_a_recipes_search_reaches_the_translator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Search] = []

    class Model:
        def stream(self, lines: Iterator[str], search: Search) -> Iterator[list[Translation]]:
            found.append(search)
            return ([Translation(line.upper(), 0.0)] for line in lines)

    monkeypatch.setattr(outputs.Translator, "load", lambda *_, **__: Model())
    texts = outputs.Texts(tmp_path, "en", "fi", moses=False)
    for split in ("dev", "test"):
        texts.plain(split, "en").write_text("a\nb\n", encoding="utf-8")
    search = Search(beam=7, length_penalty=1.7)
    (tmp_path / "out").mkdir()
    outputs.translate_texts(tmp_path / "out", tmp_path, texts, search, Session(device="cpu"))
    assert found == [search, search]
    assert (tmp_path / "out" / "test.fi").read_text(encoding="utf-8") == "A\nB\n"


def test_lines_are_shuffled_across_windows() -> None:
    def first_window(epoch: int) -> set[int]:
        made = epoch_batches(
            100, lambda n: n, lambda _: (1, 1), budget=(10, 10), seed=1, epoch=epoch, window=50
        )
        return {line for _, batch in zip(range(5), made, strict=False) for line in batch}

    for epoch in (0, 1):
        low = sum(line < 50 for line in first_window(epoch))
        assert 10 < low < 40  # unshuffled: 50; by chance outside once in ten million
    assert first_window(0) != first_window(1)


@pytest.mark.parametrize("length", [1, 5, 30, 33, 100, 400])
def test_a_translation_may_be_twice_as_long_as_its_source(length: int) -> None:
    assert length_limit(length) >= 2 * length + 20


def test_greedy_translations_of_dev_may_be_twice_as_long_as_their_source(
    make_task: Any, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task()
    asked: list[int] = []

    def endless(source: Any, lengths: Any, *, max_length: int) -> list[list[int]]:
        asked.append(max_length)
        return [[vocabulary.piece_ids(["▁"])[0]] * max_length for _ in lengths]

    monkeypatch.setattr(task.model, "greedy", endless)
    batch = task.collate(task._dev[: len(DEV)], 0)
    decoded: list[int] = []
    monkeypatch.setattr(Vocabulary, "decode_ids", lambda _, ids: decoded.append(len(ids)) or "")
    task._translated(batch)
    limits = (2 * batch.source_lengths + 20).tolist()
    assert (asked, decoded) == ([max(limits)], limits)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("bf16", [True, False])
def test_bf16_is_on_where_it_is_wanted_and_there_is_a_gpu(
    device: str, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "autocast", lambda kind, **more: asked.append(more) or nullcontext())
    batch = SimpleNamespace(to=lambda _: batch, lines=[0])
    trainer: Any = SimpleNamespace(
        settings=replace(SETTINGS, bf16=bf16),
        position=SimpleNamespace(updates=0, epoch=0),
        _own_shares=range(1),
        processes=SimpleNamespace(device=torch.device(device), world=1, rank=0),
        task=SimpleNamespace(loss=lambda _: (torch.ones(1, requires_grad=True).sum(), 1.0, 1)),
    )
    Trainer._backward(trainer, batch, 0)
    assert asked == [{"dtype": torch.bfloat16, "enabled": bf16 and device == "cuda"}]


@pytest.mark.parametrize("bf16", [True, False])
def test_a_segmenter_computes_all_of_an_answer_in_bf16_where_it_is_wanted(
    bf16: bool, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States, and the softmax that an answer asks for later; the CPU stands for a GPU."""
    entered: list[tuple[str, Any]] = []
    within: list[str] = []

    @contextmanager
    def autocast(kind: str, **options: Any) -> Iterator[None]:
        entered.append((kind, options))
        within.append("autocast")
        yield
        within.pop()

    def device(name: str, **options: Any) -> torch.device:
        assert options == {"bf16": bf16}
        return torch.device(name)

    monkeypatch.setattr(torch, "autocast", autocast)
    monkeypatch.setattr("dpe.segmenter.segmenter.choose_device", device)
    scores = MixedTransformer.edge_scores
    asked: list[list[str]] = []

    def noted(self: MixedTransformer, states: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        asked.append(list(within))
        return scores(self, states, *rest, **more)

    monkeypatch.setattr(MixedTransformer, "edge_scores", noted)
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary), bf16=bf16)
    segmenter.best("a house", "talossa")
    assert entered == [("cpu", {"dtype": torch.bfloat16, "enabled": bf16})]
    assert asked
    assert all(asked)


@pytest.mark.parametrize("decoder", DECODERS)
def test_scores_from_half_precision_are_summed_in_double(
    decoder: str, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float16 stands for bfloat16, which kills some CPUs: scores are less exact, sums over them are not."""
    autocast = torch.autocast
    half = autocast("cpu", dtype=torch.float16)
    monkeypatch.setattr(torch, "autocast", lambda kind, **_: half)
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary, decoder=decoder))
    types: list[Any] = []
    largest = dynamic_program.n_best

    def noted(scores: torch.Tensor, *rest: Any, **more: Any) -> Any:
        types.append(scores.dtype)
        return largest(scores, *rest, **more)

    monkeypatch.setattr(dynamic_program, "n_best", noted)
    sources, targets = ["a house", "", "the car"], ["talossa on auto", "\u2603", ""]
    found = segmenter.best(sources, targets)
    assert set(types) == {torch.float64}
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    exact = segmenter.best(sources, targets)
    assert [one.log_partition for one in found] != [one.log_partition for one in exact]
    for one, other in zip(found, exact, strict=True):
        assert one.log_partition == pytest.approx(other.log_partition, rel=0.01)
        assert one.score <= one.log_partition


def linear_maps(model: nn.Module) -> Sequence[nn.Linear]:
    return [part for part in model.modules() if isinstance(part, nn.Linear)]


@pytest.mark.parametrize("decoder", ["characters", "words", "translator"])
def test_linear_maps_begin_xavier_uniform(decoder: Any, vocabulary: Vocabulary) -> None:
    torch.manual_seed(1)
    shape: dict[str, Any] = {"width": 64, "heads": 4, "feed_forward": 128, "encoder_layers": 1}
    model: nn.Module
    if decoder == "translator":
        model = TranslationTransformer.of(replace(SETTINGS, **shape), vocabulary)
    else:
        model = MixedTransformer.of(MixedSettings(decoder=decoder, **shape), vocabulary, source=True)
    assert linear_maps(model)
    for part in linear_maps(model):
        bound = (6 / (part.in_features + part.out_features)) ** 0.5
        assert float(part.weight.detach().abs().max()) <= bound
        if part.weight.numel() > 1_000:
            assert float(part.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not part.bias.detach().any()


def test_the_average_is_the_mean_of_all_checkpoints(tmp_path: Path) -> None:
    values = [1.0, 2.0, 6.0]
    for number, value in enumerate(values):
        model = nn.Linear(2, 2)
        nn.init.constant_(model.weight, value)
        nn.init.constant_(model.bias, -value)
        save_model(tmp_path / f"{number}.safetensors", model, {})
    mean = average_weights([tmp_path / f"{number}.safetensors" for number in range(3)])
    assert torch.equal(mean["weight"], torch.full((2, 2), 3.0))
    assert torch.equal(mean["bias"], torch.full((2,), -3.0))


def test_adams_constants(tmp_path: Path, make_task: Any) -> None:
    trainer = Trainer(make_task(), SETTINGS, tmp_path / "none", Session(), Processes())
    (group,) = trainer.optimizer.param_groups
    assert (group["eps"], group["betas"], group["weight_decay"]) == (1e-9, (0.9, 0.98), 0)
