"""The mixed transformer: what a state may depend on, with and without a source, whatever the decoder."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpe.errors import UserError
from dpe.model import word_decoder
from dpe.model.batching import BEGIN_CHARACTER, FIRST_CHARACTER, PAD_CHARACTER, MixedInput
from dpe.model.mixed import MixedTransformer
from dpe.model.settings import MixedSettings
from dpe.model.word_decoder import word_numbers
from tests.vocabularies import make_vocabulary

PAD, BOS, EOS = 0, 2, 3
PIECES, CHARACTERS = 30, 12
MARKER = FIRST_CHARACTER
DECODERS = ["characters", "words", "parts of words"]


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the decoder's layers are; "parts of words": words of more than three characters are divided."""
    if request.param == "parts of words":
        monkeypatch.setattr(word_decoder, "LONGEST_WORD", 3)
    return "characters" if request.param == "characters" else "words"


def make_model(decoder: str = "characters", norm: str = "pre", *, source: bool = True) -> MixedTransformer:
    torch.manual_seed(1)
    settings = MixedSettings(
        width=16,
        heads=2,
        feed_forward=32,
        encoder_layers=2,
        decoder_layers=2,
        norm=norm,  # type: ignore[arg-type]
        decoder=decoder,  # type: ignore[arg-type]
    )
    model = MixedTransformer(
        settings,
        piece_count=PIECES,
        character_count=CHARACTERS,
        pad_id=PAD,
        bos_id=BOS,
        word_pieces=[EOS, *range(5, 15)],
        source=source,
    )
    return model.double().eval()


def word_ends(rows: Tensor) -> Tensor:
    """Where a marker or the end comes next. # bool [sentence, position]"""
    following = torch.cat([rows[:, 1:], torch.full_like(rows[:, :1], PAD_CHARACTER)], dim=1)
    return (rows != PAD_CHARACTER) & ((following == MARKER) | (following == PAD_CHARACTER))


def states_of(
    model: MixedTransformer,
    ids: Tensor | None,
    lengths: Tensor | None,
    rows: Tensor,
    ends: Tensor | None = None,
) -> Tensor:
    """The states of characters [sentence, position]. # [sentence, position, width]"""
    ends = word_ends(rows) if ends is None else ends
    return model.states(MixedInput(ids, lengths, rows, ends)).view(*rows.shape, -1)


def make_source() -> tuple[Tensor, Tensor]:
    """Three sources: six pieces, two, and an empty sentence, which is its end symbol alone."""
    ids = torch.full((3, 7), PAD)
    ids[0] = torch.tensor([5, 6, 7, 8, 9, 10, EOS])
    ids[1, :3] = torch.tensor([11, 12, EOS])
    ids[2, 0] = EOS
    return ids, torch.tensor([7, 3, 1])


def make_characters() -> tuple[Tensor, list[int]]:
    """Three targets: five words, of which one has five characters; one word; and nothing."""
    lengths = [14, 5, 1]
    characters = torch.full((3, 14), PAD_CHARACTER)
    characters[:, 0] = BEGIN_CHARACTER
    characters[0, 1:] = torch.tensor([3, 4, 3, 5, 6, 7, 8, 3, 9, 3, 3, 10, 11])
    characters[1, 1:5] = torch.tensor([4, 5, 6, 4])
    return characters, lengths


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("source", [True, False])
def test_changing_a_character_changes_no_distribution_before_it(
    decoder: str, norm: str, source: bool
) -> None:
    """Also where a word begins or ends by the change.

    A words decoder gives one part of the distribution at a position: if the word ends there, that of the
    pieces that begin a word, otherwise that of all others. The probability of the two parts is always there.
    """
    model = make_model(decoder, norm, source=source)
    ids, lengths = make_source() if source else (None, None)
    characters, _ = make_characters()
    before = states_of(model, ids, lengths, characters)
    for position in range(1, 14):
        for other in range(FIRST_CHARACTER, CHARACTERS):
            changed = characters.clone()
            changed[0, position] = other
            after = states_of(model, ids, lengths, changed)
            if decoder == "characters":  # whose shapes stay the same: not even rounding differs
                assert torch.equal(after[0, :position], before[0, :position])
            same = (word_ends(changed) == word_ends(characters))[0, :position]
            assert same[:-1].all()
            torch.testing.assert_close(
                after[0, :position][same], before[0, :position][same], atol=1e-12, rtol=0
            )
            torch.testing.assert_close(after[0, :position, -1], before[0, :position, -1], atol=1e-12, rtol=0)
            if other != characters[0, position]:
                assert not torch.allclose(after[0, position], before[0, position])


@pytest.mark.parametrize("source", [True, False])
def test_a_state_is_a_function_of_what_it_has_read(decoder: str, source: bool) -> None:
    """Of the characters before it, as if nothing followed, and of whether the word ends there."""
    model = make_model(decoder, source=source)
    ids, lengths = make_source() if source else (None, None)
    source_of_one = (None, None) if ids is None or lengths is None else (ids[:1], lengths[:1])
    characters, _ = make_characters()
    ends = word_ends(characters)
    states = states_of(model, ids, lengths, characters)[0]
    for position in range(14):
        read = characters[:1, : position + 1]
        alone = states_of(model, *source_of_one, read, ends[:1, : position + 1])[0, -1]
        torch.testing.assert_close(states[position], alone, atol=1e-12, rtol=0)
        flipped = ends[:1, : position + 1].clone()
        flipped[0, -1] = ~flipped[0, -1]
        other_part = states_of(model, *source_of_one, read, flipped)[0, -1]
        torch.testing.assert_close(other_part[-1], alone[-1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("wanted", [[0, 5, 6, 7, 13, 14, 28], [3, 2, 3], [], list(range(42))])
def test_states_that_are_asked_for_later_are_those_of_all(decoder: str, wanted: list[int]) -> None:
    """In any order: positions within words, at their ends, in several sentences, in padding."""
    model, characters = make_model(decoder), make_characters()[0]
    batch = MixedInput(*make_source(), characters, word_ends(characters))
    positions = torch.tensor(wanted, dtype=torch.long)
    found = model.lazy_states(batch)(positions)
    torch.testing.assert_close(found, model.states(batch)[positions], atol=1e-12, rtol=0)


@pytest.mark.parametrize("source", [True, False])
def test_states_do_not_wait_for_the_device(decoder: str, source: bool) -> None:
    """Nothing has a value on the device "meta", so whatever would wait for a GPU fails."""
    ids, lengths = make_source() if source else (None, None)
    characters = make_characters()[0]
    there = MixedInput(
        ids if ids is None else ids.to("meta"), lengths, characters.to("meta"), word_ends(characters)
    )
    states = make_model(decoder, source=source).to("meta").states(there)
    assert states.is_meta
    assert states.shape == (42, 16 if decoder == "characters" else 17)


@pytest.mark.parametrize("position", range(13))
def test_every_character_read_matters_to_all_states_after_it(decoder: str, position: int) -> None:
    model = make_model(decoder)
    characters, _ = make_characters()
    changed = characters.clone()
    changed[0, position] = 4 if characters[0, position] != 4 else 5
    before, after = (states_of(model, *make_source(), rows)[0] for rows in (characters, changed))
    assert ((before - after).abs().amax(1)[position:] > 1e-6).all()


def test_words_are_numbered_and_long_ones_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `▁a▁bcde▁f▁▁gh`: the begin symbol is a word, or belongs to a first word without a marker."""
    ends = word_ends(make_characters()[0])
    numbers = word_numbers(ends)
    assert numbers[0].tolist() == [0, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4, 5, 5, 5]
    assert numbers[1:].tolist() == [[0] * 5 + [1] * 9, [0] + [1] * 13]
    monkeypatch.setattr(word_decoder, "LONGEST_WORD", 3)
    numbers = word_numbers(ends)
    assert numbers[0].tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 6, 6]
    assert numbers[1, :5].tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("source", [True, False])
def test_a_sentence_alone_has_the_states_that_it_has_in_a_batch(
    decoder: str, norm: str, source: bool
) -> None:
    model = make_model(decoder, norm, source=source)
    ids, id_lengths = make_source()
    characters, lengths = make_characters()
    together = states_of(model, *((ids, id_lengths) if source else (None, None)), characters)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        tokens = int(id_lengths[row])
        pair = (ids[one, :tokens], id_lengths[one]) if source else (None, None)
        alone = states_of(model, *pair, characters[one, :length])
        assert alone.isfinite().all()
        torch.testing.assert_close(together[row, :length], alone[0], atol=1e-12, rtol=0)


def test_what_stands_in_the_padding_changes_nothing(decoder: str) -> None:
    model = make_model(decoder)
    ids, id_lengths = make_source()
    characters, lengths = make_characters()
    before = states_of(model, ids, id_lengths, characters)
    ids[1, 3:], characters[1, 5:] = 17, FIRST_CHARACTER
    after = states_of(model, ids, id_lengths, characters)
    torch.testing.assert_close(before[1, : lengths[1]], after[1, : lengths[1]], atol=1e-12, rtol=0)
    if decoder == "characters":
        assert torch.equal(before[1, : lengths[1]], after[1, : lengths[1]])


def test_the_source_matters(decoder: str) -> None:
    model = make_model(decoder)
    ids, id_lengths = make_source()
    characters, _ = make_characters()
    before = states_of(model, ids, id_lengths, characters)
    ids[0, 0] = 20
    assert not torch.allclose(before[0], states_of(model, ids, id_lengths, characters)[0])


def test_no_gradient_is_nan_with_empty_sentences_and_padding(decoder: str) -> None:
    model = make_model(decoder).train()
    states_of(model, *make_source(), make_characters()[0]).square().sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_a_source_without_its_end_symbol_is_refused() -> None:
    ids, lengths = make_source()
    lengths[2] = 0
    with pytest.raises(ValueError, match="end of sentence"):
        states_of(make_model(), ids, lengths, make_characters()[0])


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
    for decoder in ("characters", "words"):
        model = make_model(decoder, source=False)
        assert not any("cross" in name for name, _ in model.named_parameters())


def test_saved_weights_give_the_same_states_and_hold_no_position_table(decoder: str) -> None:
    model, other = make_model(decoder), make_model(decoder)
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    other.load_state_dict(model.state_dict())
    assert not any("positions" in name for name in model.state_dict())
    source, characters = make_source(), make_characters()[0]
    assert torch.equal(states_of(model, *source, characters), states_of(other, *source, characters))


def test_words_are_refused_where_a_word_may_begin_with_an_unknown_character() -> None:
    """Whether an unknown character begins a word cannot be told from its piece."""
    vocabulary, settings = make_vocabulary([("a", -1.0), ("\u2581a", -2.0)]), MixedSettings(decoder="words")
    with pytest.raises(UserError, match="as a piece"):
        MixedTransformer.of(settings, vocabulary, source=False)
