"""The transformer's parts: positions, masks, dropout, causality, the cache; both orders of norm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from dpe.errors import UserError
from dpe.model.attention import CrossAttention, DecoderCache, SelfAttention, key_mask
from dpe.model.fast_layers import Linear, add_dropped, random_mask
from dpe.model.settings import TransformerSettings
from dpe.model.transformer import Decoder, Encoder, Positions, embedding

NORMS = ("pre", "post")


def make_settings(norm: str = "pre", dropout: float = 0.0) -> TransformerSettings:
    return TransformerSettings(
        width=16,
        heads=4,
        feed_forward=32,
        encoder_layers=2,
        decoder_layers=2,
        dropout=dropout,
        norm=norm,  # type: ignore[arg-type]
    )


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UserError, match="multiple of heads"):
        TransformerSettings(width=10, heads=4, feed_forward=8, encoder_layers=1, decoder_layers=1)
    with pytest.raises(UserError, match="dropout"):
        make_settings(dropout=1.0)
    with pytest.raises(UserError, match="heads is 0; it must be at least 1"):
        TransformerSettings(width=16, heads=0, feed_forward=8, encoder_layers=1, decoder_layers=1)


def test_positions_follow_their_formula_also_beyond_the_table() -> None:
    positions = Positions(6, length=4)
    for position in (0, 3, 4, 1000):
        vector = positions(position, position + 1)[0]
        for i in range(3):
            angle = position / 10000 ** (i / 3)
            assert vector[i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert vector[3 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)
    assert positions.state_dict() == {}


def test_positions_grown_in_inference_serve_training() -> None:
    decoder = Decoder(make_settings(), cross_attention=False)
    with torch.inference_mode():
        decoder(normal(1, 600, 16))
    decoder(normal(1, 600, 16)).sum().backward()
    assert not decoder.positions.table.is_inference()


def test_key_mask() -> None:
    mask = key_mask(torch.tensor([1, 3]), 3, torch.device("cpu"))
    assert mask is not None
    assert mask[:, 0, 0].tolist() == [[True, False, False], [True, True, True]]
    assert key_mask(torch.tensor([3, 3]), 3, torch.device("cpu")) is None
    with pytest.raises(ValueError, match="end of sentence"):
        key_mask(torch.tensor([0, 3]), 3, torch.device("cpu"))


def textbook_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, heads: int) -> Tensor:
    """softmax(q k / sqrt(size)) v, head by head. # query, key, value: [position, width]"""
    outputs = []
    for q, k, v in zip(query.chunk(heads, 1), key.chunk(heads, 1), value.chunk(heads, 1), strict=True):
        weights = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~allowed, float("-inf")).softmax(1)
        outputs.append(weights @ v)
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_the_textbook(causal: bool) -> None:
    attention = SelfAttention(16, 4, causal=causal)
    x = normal(1, 7, 16)
    allowed = torch.ones(7, 7).tril().bool() if causal else torch.ones(7, 7).bool()
    query, key, value = attention.query_key_value(x[0]).chunk(3, dim=1)
    wanted = attention.output(textbook_attention(query, key, value, allowed, heads=4))
    torch.testing.assert_close(attention(x)[0], wanted)


def test_cross_attention_equals_the_textbook() -> None:
    attention = CrossAttention(16, 4)
    x, memory = normal(2, 3, 16), normal(2, 5, 16, seed=1)
    lengths = torch.tensor([5, 2])
    got = attention(x, memory, key_mask(lengths, 5, x.device), None)
    for sentence, length in enumerate(lengths.tolist()):
        key, value = attention.key_value(memory[sentence]).chunk(2, dim=1)
        allowed = (torch.arange(5) < length).expand(3, 5)
        query = attention.query(x[sentence])
        wanted = attention.output(textbook_attention(query, key, value, allowed, heads=4))
        torch.testing.assert_close(got[sentence], wanted)


@pytest.mark.parametrize("zero_rows", [[], [0, 2, 3, 4, 6, 7, 8, 10], list(range(12))])
def test_linear_gradient_equals_autograd_with_and_without_zero_rows(zero_rows: list[int]) -> None:
    ours, plain = Linear(5, 3).double(), nn.Linear(5, 3).double()
    plain.load_state_dict(ours.state_dict())
    incoming = normal(12, 3).double()
    incoming[zero_rows] = 0.0
    incoming[1] *= 1e-200  # its square underflows, and it counts all the same
    results = []
    for layer in (ours, plain):
        x = normal(4, 3, 5, seed=1).double().requires_grad_()
        output = layer(x)
        gradients = torch.autograd.grad(output, (x, layer.weight, layer.bias), incoming.view(4, 3, 3))
        results.append((output, *gradients))
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0)


def test_linear_gradient_that_is_nan_stays_visible() -> None:
    layer, incoming = Linear(5, 3), torch.zeros(12, 3)
    incoming[7, 1] = float("nan")
    gradients = torch.autograd.grad(layer(normal(12, 5)), (layer.weight, layer.bias), incoming)
    assert all(gradient.isnan().any() for gradient in gradients)


@pytest.mark.parametrize("norm", NORMS)
def test_encoder_ignores_padding_and_company(norm: str) -> None:
    encoder = Encoder(make_settings(norm))
    x = normal(3, 9, 16)
    lengths = torch.tensor([9, 4, 1])
    together = encoder(x, key_mask(lengths, 9, x.device))
    for sentence, length in enumerate(lengths.tolist()):
        alone = encoder(x[sentence : sentence + 1, :length], None)
        torch.testing.assert_close(together[sentence, :length], alone[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("cross_attention", [False, True])
def test_decoder_sees_nothing_that_comes_later(norm: str, cross_attention: bool) -> None:
    decoder = Decoder(make_settings(norm), cross_attention=cross_attention)
    memory = normal(2, 5, 16, seed=1) if cross_attention else None
    x = normal(2, 8, 16)
    before = decoder(x, memory)
    for position in range(8):
        changed = x.clone()
        changed[:, position] = normal(2, 16, seed=7)
        after = decoder(changed, memory)
        assert torch.equal(after[:, :position], before[:, :position])
        assert not torch.allclose(after[:, position], before[:, position])


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("cross_attention", [False, True])
def test_one_position_at_a_time_equals_all_at_once(norm: str, cross_attention: bool) -> None:
    decoder = Decoder(make_settings(norm), cross_attention=cross_attention).eval()
    memory = normal(2, 5, 16, seed=1) if cross_attention else None
    mask = key_mask(torch.tensor([5, 3]), 5, torch.device("cpu")) if cross_attention else None
    x = normal(2, 6, 16)
    cache = DecoderCache(layers=2)
    steps = [decoder(x[:, t : t + 1], memory, mask, cache) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps, dim=1), decoder(x, memory, mask), atol=1e-5, rtol=0)


def test_selected_rows_of_a_cache_go_on_as_their_own_prefix() -> None:
    decoder = Decoder(make_settings(), cross_attention=False).eval()
    x = normal(3, 4, 16)
    cache = DecoderCache(layers=2)
    for t in range(3):
        decoder(x[:, t : t + 1], cache=cache)
    rows = torch.tensor([2, 0, 2])
    cache.select(rows)
    last = decoder(x[rows, 3:], cache=cache)
    torch.testing.assert_close(last, decoder(x[rows])[:, 3:], atol=1e-5, rtol=0)


def test_only_norm_first_has_a_last_norm() -> None:
    assert isinstance(Encoder(make_settings("pre")).final_norm, nn.LayerNorm)
    assert not list(Encoder(make_settings("post")).final_norm.parameters())
    output = Encoder(make_settings("post"))(normal(2, 5, 16), None)
    torch.testing.assert_close(output.mean(-1), torch.zeros(2, 5), atol=1e-5, rtol=0)


def test_random_mask_has_the_probability_asked_for() -> None:
    torch.manual_seed(1)
    for dropout in (0.1, 0.3, 0.5):
        mask = random_mask(torch.Size([1001, 999]), dropout)  # not a multiple of the elements per draw
        size = mask.numel()
        five_sigma = 5 * math.sqrt(dropout * (1 - dropout) / size)
        assert mask.float().mean().item() == pytest.approx(1 - dropout, abs=five_sigma)
        neighbours = (mask[:, 1:] == mask[:, :-1]).float().mean().item()
        assert neighbours == pytest.approx(dropout**2 + (1 - dropout) ** 2, abs=5 * math.sqrt(1 / size))


def test_dropped_sum_and_its_gradient() -> None:
    torch.manual_seed(2)
    x, update = normal(40, 50).requires_grad_(), normal(40, 50, seed=1).requires_grad_()
    result = add_dropped(x, update, 0.25)
    kept = ~torch.isclose(result, x)
    assert 0.6 < kept.float().mean() < 0.9
    torch.testing.assert_close(result, torch.where(kept, x + update / 0.75, x))
    x_gradient, update_gradient = torch.autograd.grad(result.sum(), (x, update))
    assert (x_gradient == 1).all()
    torch.testing.assert_close(update_gradient, kept / 0.75)


def test_dropout_acts_in_training_only_and_follows_the_seed() -> None:
    encoder = Encoder(make_settings(dropout=0.5))
    x = normal(2, 5, 16)

    def run(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return encoder(x, None)

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))
    encoder.eval()
    assert torch.equal(run(1), run(2))


@pytest.mark.parametrize("decoder", [False, True])
def test_the_embedded_input_is_dropped_too(decoder: bool) -> None:
    settings = make_settings("post", dropout=0.25)
    stack = Decoder(settings, cross_attention=False) if decoder else Encoder(settings)
    stack.layers = nn.ModuleList()  # what is left is the input
    x = normal(9, 50, 16)
    dropped = stack(x, finish=False) if decoder else stack(x, None)
    whole = 4.0 * x + stack.positions(0, 50)
    kept = dropped != 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.03)
    torch.testing.assert_close(dropped, torch.where(kept, whole / 0.75, 0.0))


def test_embedding_pads_with_zero() -> None:
    table = embedding(300, 64, pad_id=5)
    assert (table.weight[5] == 0).all()
    assert table.weight[6:].std().item() == pytest.approx(1 / 8, rel=0.05)


def test_runs_without_data_on_the_meta_device() -> None:
    with torch.device("meta"):
        encoder, decoder = Encoder(make_settings()), Decoder(make_settings(), cross_attention=True)
        x = torch.empty(2, 5, 16)
    mask = key_mask(torch.tensor([5, 2]), 5, x.device)  # lengths on the CPU
    output = decoder(x, encoder(x, mask), mask)
    assert output.shape == (2, 5, 16)
    assert output.device.type == "meta"
