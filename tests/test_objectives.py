"""What training maximises: against brute force, and against the textbook's loss and gradient."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import pytest
import torch

from benchmarks.textbook import table, textbook_log_likelihood
from dpe import Segmenter
from dpe.model import word_decoder
from dpe.model.batching import MixedCollator, MixedExample
from dpe.segmenter.likelihood import batch_edge_scores, marginal_log_likelihood
from dpe.text.vocabulary import Vocabulary
from tests.oracles import brute_force, log_sum_exp, piece_scores
from tests.segmenters import DECODERS, PAIRS, learned_vocabulary, save_segmenter
from tests.vocabularies import SENTENCES, letters_vocabulary, make_vocabulary


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return learned_vocabulary()


@pytest.fixture(scope="module", params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def segmenter(vocabulary: Vocabulary, decoder: str, tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    directory = tmp_path_factory.mktemp("s") / "segmenter"
    return Segmenter.load(save_segmenter(directory, vocabulary, decoder=decoder))


@pytest.mark.parametrize("with_source", [True, False])
def test_training_maximises_the_likelihood_of_brute_force(
    tmp_path: Path, decoder: str, with_source: bool
) -> None:
    letters = letters_vocabulary()
    chosen = Segmenter.load(save_segmenter(tmp_path / "s", letters, source=with_source, decoder=decoder))
    source = "ab c" if with_source else None
    pieces = letters.encode(source) if source else None
    examples = [chosen.example(line, pieces, target) for line, target in enumerate(SENTENCES)]
    batch = MixedCollator(letters).collate(examples, epoch=0)
    found = marginal_log_likelihood(batch_edge_scores(chosen._model, batch), batch)
    wanted = [log_sum_exp(list(brute_force(chosen, source, target).values())) for target in SENTENCES]
    assert found.tolist() == pytest.approx(wanted, abs=1e-4)


def test_the_loss_and_its_gradient_are_those_of_the_textbook(tmp_path: Path, vocabulary: Vocabulary) -> None:
    """Of benchmarks/textbook.py: the full softmax, and Alg. 1 over characters that autograd records."""
    segmenter = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary))
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


@pytest.mark.parametrize("longest_word", [2, 32])
def test_the_probabilities_of_all_texts_sum_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoder: str, longest_word: int
) -> None:
    """Of all sequences of pieces that end, or go on after the fourth: as the segmenter reads whole texts.

    A decoder that knew anything of the characters to come, such as the end of a word, would give more.
    """
    monkeypatch.setattr(word_decoder, "LONGEST_WORD", longest_word)
    pieces = ["\u2581", "a", "b", "ab", "\u2581a"]
    vocabulary = make_vocabulary([(piece, -1.0) for piece in pieces])
    chosen = Segmenter.load(save_segmenter(tmp_path / "s", vocabulary, decoder=decoder))
    ended = [cut for length in range(4) for cut in itertools.product([*pieces, "?"], repeat=length)]
    unended = list(itertools.product([*pieces, "?"], repeat=4))
    examples = []
    for line, cut in enumerate(ended + unended):
        text = "".join(cut)
        example = MixedExample(line, [vocabulary.eos_id], vocabulary.words(text), text)
        examples.append(example)
    batch = MixedCollator(vocabulary).collate(examples, epoch=0)
    ids = [[*vocabulary.piece_ids(cut), vocabulary.eos_id] for cut in ended]
    ids += [vocabulary.piece_ids(cut) for cut in unended]
    columns, sentences, positions = batch.characters.shape[1], [], []
    for line, (cut, own) in enumerate(zip(ended + unended, ids, strict=True)):
        starts = itertools.accumulate(map(len, cut), initial=line * columns)
        positions += list(starts)[: len(own)]
        sentences += [line] * len(own)
    model = copy.deepcopy(chosen._model).double()
    flat = torch.tensor([piece for own in ids for piece in own])
    scores = piece_scores(model, model.states(batch))[positions, flat]
    sums = torch.zeros(len(ids), dtype=scores.dtype).index_add(0, torch.tensor(sentences), scores)
    assert float(sums.exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_the_gradient_is_that_of_finite_differences(segmenter: Segmenter, vocabulary: Vocabulary) -> None:
    model = copy.deepcopy(segmenter._model).double().requires_grad_(True)
    pairs = enumerate([*PAIRS[:5], ("", ""), ("a", "\U0001f600 talossani" * 3)])
    examples = [segmenter.example(n, vocabulary.encode(source), target) for n, (source, target) in pairs]
    batch = MixedCollator(vocabulary).collate(examples, epoch=0)

    def loss() -> torch.Tensor:
        return marginal_log_likelihood(batch_edge_scores(model, batch, threshold=0.0), batch).sum()

    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss(), list(parameters.values()))
    torch.manual_seed(3)
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        direction, step, values = torch.randn_like(parameter), 1e-7, []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(direction, alpha=sign * step)
                values.append(float(loss()))
                parameter.sub_(direction, alpha=sign * step)
        found = float((gradient * direction).sum())
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(found, rel=1e-4, abs=1e-4), name


def test_a_position_that_matters_little_gets_no_gradient_at_all(
    segmenter: Segmenter, vocabulary: Vocabulary
) -> None:
    """So that the layers below can skip it: of the softmax, and of the probability that a word ends."""
    pairs = enumerate(PAIRS[:8])
    examples = [segmenter.example(n, vocabulary.encode(source), target) for n, (source, target) in pairs]
    batch = MixedCollator(vocabulary).collate(examples, epoch=0)
    lattice = batch.lattice
    states = segmenter._model.states(batch).detach().requires_grad_(True)
    scores = segmenter._model.edge_scores(states, lattice.edge_positions, lattice.edge_pieces, threshold=0.2)
    posterior, found = torch.autograd.grad(marginal_log_likelihood(scores, batch).sum(), (scores, states))
    starts = torch.zeros(len(states)).index_add(0, lattice.edge_positions, posterior)  # [position]
    matters = starts > 0.2
    assert 0.1 < float(matters.double().mean()) < 0.9
    assert torch.equal((found != 0).any(1), matters)
