"""What training maximises: against brute force, and against the textbook's loss and gradient."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from benchmarks.textbook import table, textbook_log_likelihood
from dpe import Segmenter
from dpe.model.batching import MixedCollator
from dpe.segmenter.likelihood import batch_edge_scores, marginal_log_likelihood
from dpe.text.vocabulary import Vocabulary
from tests.oracles import brute_force, log_sum_exp
from tests.segmenters import PAIRS, learned_vocabulary, save_segmenter
from tests.vocabularies import SENTENCES, letters_vocabulary


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_vocabulary()


@pytest.fixture(scope="module")
def segmenter(vocabulary: Vocabulary, tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    return Segmenter.load(save_segmenter(tmp_path_factory.mktemp("s") / "segmenter", vocabulary))


@pytest.mark.parametrize("with_source", [True, False])
def test_training_maximises_the_likelihood_of_brute_force(tmp_path: Path, with_source: bool) -> None:
    letters = letters_vocabulary()
    chosen = Segmenter.load(save_segmenter(tmp_path / "s", letters, source=with_source))
    source = "ab c" if with_source else None
    pieces = letters.encode(source) if source else None
    examples = [chosen.example(line, pieces, target) for line, target in enumerate(SENTENCES)]
    batch = MixedCollator(letters).collate(examples, epoch=0)
    found = marginal_log_likelihood(batch_edge_scores(chosen._model, batch), batch)
    wanted = [log_sum_exp(list(brute_force(chosen, source, target).values())) for target in SENTENCES]
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
