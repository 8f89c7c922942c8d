"""The mixed character-subword transformer (section 4 of the paper): characters in, subwords out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from dpe.errors import UserError
from dpe.model.attention import key_mask
from dpe.model.batching import PAD_CHARACTER, CharacterIds, MixedInput
from dpe.model.edge_scores import DEFAULT_THRESHOLD, edge_scores
from dpe.model.transformer import Decoder, Encoder, embedding
from dpe.model.word_decoder import WordDecoder
from dpe.text.words import MARKER

if TYPE_CHECKING:
    from dpe.model.settings import MixedSettings
    from dpe.text.vocabulary import Vocabulary


LazyStates = Callable[[Tensor | None], Tensor]  # positions, or None for all -> [position, width]


class MixedTransformer(nn.Module):
    """One state per target character position, for a softmax over the pieces that may start there.

    The encoder reads the source's pieces; the decoder reads the target's characters. Position t has read the
    characters y_1..y_t, nothing after them and no segmentation, so a piece's probability there does not
    depend on the pieces before it. With `source=False` there is no encoder: a language model.

    The paper's decoder (`characters`) has all its layers over characters and one softmax; see `WordDecoder`
    for that of `words`, which must know the `word_pieces`: those that begin a word, and the end of sentence.

    `character_count` includes the three special characters.
    """

    def __init__(
        self,
        settings: MixedSettings,
        *,
        piece_count: int,
        character_count: int,
        pad_id: int,
        bos_id: int,
        word_pieces: Sequence[int] = (),
        source: bool = True,
        source_pieces: tuple[int, int] | None = None,
    ) -> None:
        """With a joint vocabulary the source embedding, if there is one, is the output weight too.

        With another one for the source, `source_pieces` are its number of pieces and its pad id.
        """
        super().__init__()
        self.excluded_pieces = (pad_id, bos_id)  # never predicted: masked from the softmax
        width = settings.width
        self.character_embedding = embedding(character_count, width, pad_id=PAD_CHARACTER)
        self.decoder: Decoder | WordDecoder = Decoder(settings, cross_attention=source)
        if settings.decoder == "words":
            light = Decoder(
                replace(settings, decoder_layers=settings.character_layers), cross_attention=False
            )
            others = sorted(set(range(piece_count)) - {*word_pieces, *self.excluded_pieces})
            self.decoder = WordDecoder(
                width, self.decoder, light, word_pieces=word_pieces, other_pieces=others
            )
        self.encoder = Encoder(settings) if source else None
        count, pad = source_pieces or (piece_count, pad_id)
        self.source_embedding = embedding(count, width, pad_id=pad) if source else None
        has_own = source_pieces is not None or not source
        self.output_embedding = embedding(piece_count, width, pad_id=pad_id) if has_own else None

    @classmethod
    def of(cls, settings: MixedSettings, vocabulary: Vocabulary, *, source: bool) -> MixedTransformer:
        """An untrained model over a vocabulary."""
        if settings.decoder == "words" and (MARKER not in vocabulary.ids or vocabulary.marks_ends):
            raise UserError(
                f"decoder = words needs a vocabulary that has {MARKER} as a piece, at the start of words; "
                "use characters."
            )
        begin_word = [number for piece, number in vocabulary.ids.items() if piece.startswith(MARKER)]
        return cls(
            settings,
            piece_count=len(vocabulary),
            character_count=len(CharacterIds(vocabulary)),
            word_pieces=[*begin_word, vocabulary.eos_id],
            pad_id=vocabulary.pad_id,
            bos_id=vocabulary.bos_id,
            source=source,
            source_pieces=None if vocabulary.is_joint else (len(vocabulary.source), vocabulary.source.pad_id),
        )

    @property
    def reads_words(self) -> bool:
        """Whether the decoder reads words as units, and so had better begin to read where one begins."""
        return isinstance(self.decoder, WordDecoder)

    @property
    def output_weight(self) -> Tensor:
        """The weight of the softmax over pieces. # [piece, width]"""
        table = self.output_embedding or self.source_embedding
        assert table is not None
        return table.weight

    def edge_scores(
        self, states: Tensor, positions: Tensor, pieces: Tensor, *, threshold: float = DEFAULT_THRESHOLD
    ) -> Tensor:
        """Log-probability of each piece where it starts, from the states [position, width]. # [edge]"""
        if isinstance(self.decoder, WordDecoder):
            weight = self.output_weight
            return self.decoder.edge_scores(states, weight, positions, pieces, threshold=threshold)
        return edge_scores(
            states, self.output_weight, positions, pieces, excluded=self.excluded_pieces, threshold=threshold
        )

    def states(self, batch: MixedInput) -> Tensor:
        """What the scores of pieces are computed from, as the lattice counts positions. # [position, width]

        Position `sentence * columns + t` has read the first t characters of its sentence, where `columns` is
        the padded length of all sentences. States of padding are finite and have no meaning.
        """
        return self.decoded(batch, *self.encoded(batch))(None)

    def lazy_states(self, batch: MixedInput) -> LazyStates:
        """As `states`, but the last feed-forward is left until positions are asked for."""
        return self.decoded(batch, *self.encoded(batch))

    def encoded(self, batch: MixedInput) -> tuple[Tensor | None, Tensor | None]:
        """The encoder's output [sentence, token, width] and the mask of its padding, if there is a source."""
        if self.encoder is None:
            return None, None
        assert batch.source is not None
        assert batch.source_lengths is not None
        assert self.source_embedding is not None
        mask = key_mask(batch.source_lengths, batch.source.shape[1], batch.source.device)
        return self.encoder(self.source_embedding(batch.source), mask), mask

    def decoded(self, batch: MixedInput, memory: Tensor | None, mask: Tensor | None) -> LazyStates:
        """The states of a batch given the encoder's output."""
        decoder, table = self.decoder, self.character_embedding
        if isinstance(decoder, WordDecoder):
            return decoder(batch.characters, batch.word_ends, memory, mask, embedding=table)  # type: ignore[no-any-return]
        unfinished = decoder(table(batch.characters), memory, mask, finish=False).flatten(0, 1)
        return lambda at: decoder.finished(unfinished if at is None else unfinished[at])
