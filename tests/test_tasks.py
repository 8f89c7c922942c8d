"""What the trainings of both models hand to the trainer: which lines, which draws, which loss."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
import torch

from dpe.model.batching import MixedCollator
from dpe.model.cross_entropy import smoothed_cross_entropy_reference
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.training import SegmenterTask
from dpe.text.bpe import BpeDropout
from dpe.text.corpus import write_lines
from dpe.text.draws import Draw
from dpe.text.learning import VocabularySettings, learn_vocabulary
from dpe.text.segmenters import METHODS, CountSegmenter, OwnCut, make_segmenter
from dpe.text.text_file import ParallelText
from dpe.text.vocabulary import Vocabulary
from dpe.translator.targets import CountTargets
from dpe.translator.training import TranslatorLines, TranslatorTask
from tests.epochs import batches_of
from tests.segmenters import SMALLEST, TARGETS, learned_vocabulary
from tests.translators import SETTINGS, TRAIN, open_corpus, write_corpus


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_vocabulary()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def translator_task(corpus: Path, vocabulary: Vocabulary) -> TranslatorTask:
    settings = replace(
        SETTINGS, source_method="bpe-dropout", bpe_dropout=0.3, cut_seed=9, batch=500, label_smoothing=0.3
    )
    return TranslatorTask(
        TranslationTransformer.of(settings, vocabulary),
        vocabulary,
        open_corpus(corpus, "train"),
        open_corpus(corpus, "dev"),
        targets=CountTargets(OwnCut(vocabulary), seed=9),
        settings=settings,
    )


def segmenter_task(corpus: Path, vocabulary: Vocabulary, cut_source: CountSegmenter) -> SegmenterTask:
    return SegmenterTask(
        MixedTransformer.of(SMALLEST, vocabulary, source=True),
        vocabulary,
        open_corpus(corpus, "train"),
        open_corpus(corpus, "dev"),
        cut_source=cut_source,
        settings=replace(SMALLEST, batch=2_000, seed=4),
    )


def test_the_source_is_cut_by_the_draw_that_a_segmenters_cuts_know_of(
    corpus: Path, vocabulary: Vocabulary
) -> None:
    task, dropout = translator_task(corpus, vocabulary), BpeDropout(vocabulary, dropout=0.3)
    for epoch in (0, 1):
        for example in chain.from_iterable(batches_of(task, epoch)):
            cut = dropout.cut(TRAIN[example.line][0], Draw(9, epoch, example.line))
            assert example.source == [*vocabulary.piece_ids(cut), vocabulary.eos_id]


def test_the_loss_is_smoothed_and_the_number_shown_is_not(corpus: Path, vocabulary: Vocabulary) -> None:
    task = translator_task(corpus, vocabulary)
    task.model.eval()
    batch = task.collate(next(batches_of(task, 0)), 0)
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
    task = segmenter_task(corpus, vocabulary, BpeDropout(vocabulary, dropout=0.3))
    dropout = BpeDropout(vocabulary, dropout=0.3)
    for epoch in (0, 1):
        for example in chain.from_iterable(batches_of(task, epoch)):
            cut = dropout.cut(TRAIN[example.line][0], Draw(4, epoch, example.line))
            assert example.source == [*vocabulary.piece_ids(cut), vocabulary.eos_id]


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_process_loads_the_same_examples(corpus: Path, vocabulary: Vocabulary, method: str) -> None:
    if method == "unigram":
        vocabulary = learn_vocabulary(TARGETS, VocabularySettings(size=24, type="unigram"))
    segmenter = make_segmenter(method, vocabulary, dropout=0.3, alpha=0.5)
    text, targets = open_corpus(corpus, "train"), CountTargets(segmenter, seed=2)
    lines = TranslatorLines(text, vocabulary, segmenter, targets.start(3), SETTINGS, epoch=3)
    here = lines([5, 1, 7])
    assert pickle.loads(pickle.dumps(lines))([5, 1, 7]) == here


def test_a_segmenter_does_not_see_one_character_in_a_thousand(corpus: Path, vocabulary: Vocabulary) -> None:
    task = segmenter_task(corpus, vocabulary, OwnCut(vocabulary))
    hiding, hidden = MixedCollator(vocabulary, unknown_rate=0.001, seed=4), 0
    for examples in batches_of(task, 2):
        characters = task.collate(examples, 2).characters
        assert torch.equal(characters, hiding.collate(examples, epoch=2).characters)
        hidden += int((characters == hiding.characters.unknown).sum())
    assert hidden > 0


def test_lines_are_as_long_as_the_model_reads_them(tmp_path: Path) -> None:
    write_lines(tmp_path / "text", ["talo", "\ufdfa" * 60])  # each becomes 18 characters
    text = ParallelText.open(None, tmp_path / "text")
    vocabulary = learn_vocabulary(TARGETS, VocabularySettings(size=30))
    settings = replace(SMALLEST, batch=160, max_characters=100)
    model = MixedTransformer.of(SMALLEST, vocabulary, source=False)
    task = SegmenterTask(model, vocabulary, text, text, cut_source=OwnCut(vocabulary), settings=settings)
    assert [example.marked for batch in batches_of(task, 0) for example in batch] == ["\u2581talo"]
    assert task.left_out(1) == "1 lines longer than 100 characters left out"
