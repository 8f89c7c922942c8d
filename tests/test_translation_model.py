"""The translation transformer: padding, tied embeddings, searches against recomputation and brute force."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from benchmarks.beam_search import beam_search
from dpe.model.settings import TransformerSettings
from dpe.model.translation import TranslationTransformer

PAD, BOS, EOS = 0, 1, 2


def make_model(*, pieces: int, seed: int = 1, norm: str = "pre") -> TranslationTransformer:
    """A random model with large linear maps: a fresh one, its embeddings tied, repeats its last piece."""
    torch.manual_seed(seed)
    settings = TransformerSettings(
        width=16,
        heads=2,
        feed_forward=32,
        encoder_layers=1,
        decoder_layers=2,
        norm=norm,  # type: ignore[arg-type]
    )
    model = TranslationTransformer(settings, piece_count=pieces, pad_id=PAD, bos_id=BOS, eos_id=EOS).eval()
    with torch.no_grad():
        for part in (*model.encoder.modules(), *model.decoder.modules()):
            if isinstance(part, nn.Linear):
                part.weight *= 3.0
    return model


def make_source(pieces: int, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    source = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in enumerate(lengths):
        source[row, : length - 1] = torch.randint(3, pieces, (length - 1,), generator=generator)
        source[row, length - 1] = EOS
    return source, torch.tensor(lengths)


def next_log_probabilities(model: TranslationTransformer, source: Tensor, prefix: list[int]) -> Tensor:
    """log p(next piece | prefix, source) for one sentence without padding, from scratch. # [piece]"""
    target_in = torch.tensor([[BOS, *prefix]])
    with torch.no_grad():
        logits = model.logits(source[None], torch.tensor([len(source)]), target_in)
    return logits[0, -1].log_softmax(0)


def greedy_from_scratch(model: TranslationTransformer, source: Tensor, max_length: int) -> list[int]:
    prefix: list[int] = []
    for _ in range(max_length):
        piece = int(next_log_probabilities(model, source, prefix).argmax())
        if piece == EOS:
            break
        prefix.append(piece)
    return prefix


def test_logits_ignore_padding_and_company() -> None:
    model = make_model(pieces=20)
    source, lengths = make_source(20, (6, 3, 1))
    target_in = torch.tensor([[BOS, 5, 6, 7], [BOS, 8, PAD, PAD], [BOS, PAD, PAD, PAD]])
    together = model.logits(source, lengths, target_in)
    for row, (length, target_length) in enumerate(zip((6, 3, 1), (4, 2, 1), strict=True)):
        alone = model.logits(
            source[row : row + 1, :length], lengths[row : row + 1], target_in[row : row + 1, :target_length]
        )
        torch.testing.assert_close(together[row, :target_length], alone[0], atol=1e-5, rtol=0)


def test_one_embedding_serves_source_target_and_output() -> None:
    model = make_model(pieces=20)
    tables = [p for p in model.parameters() if p.shape[0] == 20]
    assert len(tables) == 1
    source, lengths = make_source(20, (4,))
    states = model.decoder(model.embedding(torch.tensor([[BOS]])), *model.encode(source, lengths))
    logits = model.logits(source, lengths, torch.tensor([[BOS]]))
    torch.testing.assert_close(logits, states @ tables[0].T)


def test_pad_row_stays_zero_in_training() -> None:
    model = make_model(pieces=20).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    source, lengths = make_source(20, (6, 3))
    target_in = torch.tensor([[BOS, 5, 6], [BOS, 8, PAD]])
    before = model.embedding.weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):  # gradients add up over two backward passes
            model.logits(source, lengths, target_in).logsumexp(-1).sum().backward()
        optimizer.step()
    assert (model.embedding.weight[PAD] == 0).all()
    assert (model.embedding.weight[BOS] != before[BOS]).all()


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("seed", range(4))
def test_greedy_equals_recomputation_from_scratch(norm: str, seed: int) -> None:
    model = make_model(pieces=12, seed=seed, norm=norm)
    lengths = (6, 3, 1, 4, 2)
    source, source_lengths = make_source(12, lengths)
    got = model.greedy(source, source_lengths, max_length=8)
    wanted = [greedy_from_scratch(model, source[row, :length], 8) for row, length in enumerate(lengths)]
    assert got == wanted


def test_searches_end_at_different_steps() -> None:
    """Otherwise the tests above and below would not try the removal of ended sentences."""
    lengths = (6, 3, 1, 4, 2)
    found = set()
    for seed in range(4):
        model = make_model(pieces=12, seed=seed)
        found |= {len(ids) for ids in model.greedy(*make_source(12, lengths), max_length=8)}
    assert len(found) > 2


@pytest.mark.parametrize("seed", range(4))
def test_beam_of_one_is_greedy(seed: int) -> None:
    model = make_model(pieces=12, seed=seed)
    source, lengths = make_source(12, (6, 3, 1, 4, 2))
    greedy = model.greedy(source, lengths, max_length=8)
    beam = beam_search(model, source, lengths, beam=1, max_length=8)
    assert [hypothesis.ids for hypothesis in beam] == greedy


def every_score(
    model: TranslationTransformer, source: Tensor, pieces: int, max_length: int, penalty: float
) -> dict[tuple[int, ...], float]:
    """The score of every translation: those that end within max_length pieces, and those cut off by it."""
    scores: dict[tuple[int, ...], float] = {}
    others = [piece for piece in range(pieces) if piece != EOS]
    for length in range(max_length + 1):
        for ids in itertools.product(others, repeat=length):
            total = sum(
                float(next_log_probabilities(model, source, list(ids[:t]))[ids[t]]) for t in range(length)
            )
            if length < max_length:
                total += float(next_log_probabilities(model, source, list(ids))[EOS])
            scores[ids] = total / min(length + 1, max_length) ** penalty
    return scores


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_best_of_all_translations(seed: int, penalty: float) -> None:
    pieces, max_length = 4, 3
    model = make_model(pieces=pieces, seed=seed)
    source, lengths = make_source(pieces, (4, 2))
    found = beam_search(model, source, lengths, beam=64, max_length=max_length, length_penalty=penalty)
    for row, length in enumerate((4, 2)):
        scores = every_score(model, source[row, :length], pieces, max_length, penalty)
        best = max(scores, key=scores.__getitem__)
        assert tuple(found[row].ids) == best
        assert found[row].score == pytest.approx(scores[best], abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_beam_scores_are_those_of_the_model_and_company_changes_nothing(seed: int) -> None:
    model = make_model(pieces=12, seed=seed)
    rows = (6, 3, 1, 4, 2)
    source, lengths = make_source(12, rows)
    together = beam_search(model, source, lengths, beam=3, max_length=6, length_penalty=0.6)
    for row, length in enumerate(rows):
        one = slice(row, row + 1)
        (alone,) = beam_search(
            model, source[one, :length], lengths[one], beam=3, max_length=6, length_penalty=0.6
        )
        assert alone.ids == together[row].ids
        pieces = [*alone.ids, EOS][:6]
        total = sum(
            float(next_log_probabilities(model, source[row, :length], pieces[:t])[pieces[t]])
            for t in range(len(pieces))
        )
        assert together[row].score == pytest.approx(total / len(pieces) ** 0.6, abs=1e-4)


def test_logits_on_the_meta_device() -> None:
    with torch.device("meta"):
        model = make_model(pieces=20)
        ids = torch.empty(2, 5, dtype=torch.long)
    assert model.logits(ids, torch.tensor([5, 3]), ids).shape == (2, 5, 20)
