"""The mixed transformer: what a state may depend on, with and without a source."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpe.model.batching import BEGIN_CHARACTER, FIRST_CHARACTER, PAD_CHARACTER
from dpe.model.mixed import MixedTransformer
from dpe.model.settings import TransformerSettings

PAD, BOS, EOS = 0, 2, 3
PIECES, CHARACTERS = 30, 12
SETTINGS = {
    norm: TransformerSettings(
        width=16,
        heads=2,
        feed_forward=32,
        encoder_layers=2,
        decoder_layers=2,
        norm=norm,  # type: ignore[arg-type]
    )
    for norm in ("pre", "post")
}


def make_model(norm: str = "pre", *, source: bool = True) -> MixedTransformer:
    torch.manual_seed(1)
    model = MixedTransformer(
        SETTINGS[norm],
        piece_count=PIECES,
        character_count=CHARACTERS,
        pad_id=PAD,
        bos_id=BOS,
        source=source,
    )
    return model.eval()


def make_source() -> tuple[Tensor, Tensor]:
    """Three sources: six pieces, two, and an empty sentence, which is its end symbol alone."""
    ids = torch.full((3, 7), PAD)
    ids[0] = torch.tensor([5, 6, 7, 8, 9, 10, EOS])
    ids[1, :3] = torch.tensor([11, 12, EOS])
    ids[2, 0] = EOS
    return ids, torch.tensor([7, 3, 1])


def make_characters() -> tuple[Tensor, list[int]]:
    """Three targets, the last one empty: nothing but the beginning."""
    generator = torch.Generator().manual_seed(2)
    lengths = [9, 5, 1]
    characters = torch.full((3, 9), PAD_CHARACTER)
    for row, length in enumerate(lengths):
        characters[row, 0] = BEGIN_CHARACTER
        characters[row, 1:length] = torch.randint(
            FIRST_CHARACTER, CHARACTERS, (length - 1,), generator=generator
        )
    return characters, lengths


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("source", [True, False])
def test_changing_a_character_changes_no_state_before_it(norm: str, source: bool) -> None:
    model = make_model(norm, source=source)
    ids, lengths = make_source() if source else (None, None)
    characters, _ = make_characters()
    before = model.states(ids, lengths, characters)
    for position in range(1, 9):
        changed = characters.clone()
        changed[0, position] = FIRST_CHARACTER + (changed[0, position] - FIRST_CHARACTER + 1) % 9
        after = model.states(ids, lengths, changed)
        assert torch.equal(after[0, :position], before[0, :position])
        assert not torch.allclose(after[0, position], before[0, position])


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("source", [True, False])
def test_a_sentence_alone_has_the_states_that_it_has_in_a_batch(norm: str, source: bool) -> None:
    model = make_model(norm, source=source)
    ids, id_lengths = make_source()
    characters, lengths = make_characters()
    together = model.states(ids, id_lengths, characters) if source else model.states(None, None, characters)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        tokens = int(id_lengths[row])
        pair = (ids[one, :tokens], id_lengths[one]) if source else (None, None)
        alone = model.states(*pair, characters[one, :length])
        assert alone.isfinite().all()
        torch.testing.assert_close(together[row, :length], alone[0], atol=1e-5, rtol=0)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    model = make_model()
    ids, id_lengths = make_source()
    characters, lengths = make_characters()
    before = model.states(ids, id_lengths, characters)
    ids[1, 3:], characters[1, 5:] = 17, FIRST_CHARACTER
    after = model.states(ids, id_lengths, characters)
    assert torch.equal(before[1, : lengths[1]], after[1, : lengths[1]])


def test_the_source_matters() -> None:
    model = make_model()
    ids, id_lengths = make_source()
    characters, _ = make_characters()
    before = model.states(ids, id_lengths, characters)
    ids[0, 0] = 20
    assert not torch.allclose(before[0], model.states(ids, id_lengths, characters)[0])


def test_no_gradient_is_nan_with_empty_sentences_and_padding() -> None:
    model = make_model().train()
    model.states(*make_source(), make_characters()[0]).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_a_source_without_its_end_symbol_is_refused() -> None:
    ids, lengths = make_source()
    lengths[2] = 0
    with pytest.raises(ValueError, match="end of sentence"):
        make_model().states(ids, lengths, make_characters()[0])


def test_output_weight_is_the_source_embedding_where_there_is_one() -> None:
    tied, alone = make_model(), make_model(source=False)
    assert tied.source_embedding is not None
    assert tied.output_weight is tied.source_embedding.weight
    assert alone.source_embedding is None
    for model in (tied, alone):
        assert model.output_weight.shape == (PIECES, 16)


def test_padding_and_beginning_are_never_predicted() -> None:
    assert set(make_model().excluded_pieces) == {PAD, BOS}


def test_language_model_has_no_encoder_nor_cross_attention() -> None:
    names = {name.split(".")[0] for name, _ in make_model(source=False).named_parameters()}
    assert names == {"character_embedding", "output_embedding", "decoder"}
    assert not any("cross" in name for name, _ in make_model(source=False).named_parameters())


def test_saved_weights_give_the_same_states_and_hold_no_position_table() -> None:
    model, other = make_model(), make_model()
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    other.load_state_dict(model.state_dict())
    assert not any("positions" in name for name in model.state_dict())
    source, characters = make_source(), make_characters()[0]
    assert torch.equal(model.states(*source, characters), other.states(*source, characters))
