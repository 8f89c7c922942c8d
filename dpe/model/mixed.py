"""The mixed character-subword transformer (section 4 of the paper): characters in, subwords out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from dpe.model.attention import key_mask
from dpe.model.batching import PAD_CHARACTER, CharacterIds, MixedInput
from dpe.model.edge_scores import DEFAULT_THRESHOLD, edge_scores
from dpe.model.transformer import Decoder, Encoder, embedding
from dpe.model.word_context import WordContext
from dpe.text.words import MARKER

if TYPE_CHECKING:
    from dpe.model.settings import MixedSettings
    from dpe.text.vocabulary import Vocabulary


class MixedTransformer(nn.Module):
    """One state per target character position, for a softmax over the pieces that may start there.

    The encoder reads the source's pieces; the decoder reads the target's characters. Position t has read the
    characters y_1..y_t, nothing after them and no segmentation, so a piece's probability there does not
    depend on the pieces before it. With `source=False` there is no encoder: a language model.

    The paper's decoder (`characters`) has all its layers over characters. That of `words` has
    `decoder_layers` over the words before the current one (`WordContext`), whose output is added to the
    characters' embeddings, and `character_layers` over characters.

    `character_count` includes the three special characters; `marker` is the character that begins a word.
    """

    def __init__(
        self,
        settings: MixedSettings,
        *,
        piece_count: int,
        character_count: int,
        pad_id: int,
        bos_id: int,
        marker: int,
        source: bool = True,
    ) -> None:
        """The vocabulary is joint, so the source embedding, if there is one, is the output weight too."""
        super().__init__()
        self.excluded_pieces = (pad_id, bos_id)  # never predicted: masked from the softmax
        width = settings.width
        self.character_embedding = embedding(character_count, width, pad_id=PAD_CHARACTER)
        self.word_context = None
        if settings.decoder == "words":
            self.word_context = WordContext(settings, marker=marker, cross_attention=source)
            settings = replace(settings, decoder_layers=settings.character_layers)
        self.decoder = Decoder(settings, cross_attention=source)
        self.encoder = Encoder(settings) if source else None
        self.source_embedding = embedding(piece_count, width, pad_id=pad_id) if source else None
        self.output_embedding = None if source else embedding(piece_count, width, pad_id=pad_id)

    @classmethod
    def of(cls, settings: MixedSettings, vocabulary: Vocabulary, *, source: bool) -> MixedTransformer:
        """An untrained model over a vocabulary."""
        characters = CharacterIds(vocabulary)
        return cls(
            settings,
            piece_count=len(vocabulary),
            character_count=len(characters),
            marker=int(characters.encode(MARKER)[0]),
            pad_id=vocabulary.pad_id,
            bos_id=vocabulary.bos_id,
            source=source,
        )

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
        return edge_scores(
            states, self.output_weight, positions, pieces, excluded=self.excluded_pieces, threshold=threshold
        )

    def states(self, batch: MixedInput) -> Tensor:
        """The state at every position, as the lattice of a batch counts them. # [position, width]

        Position `sentence * columns + t` has read the first t characters of its sentence, where `columns` is
        the padded length of all sentences. States of padding are finite and have no meaning.
        """
        return self.decoded(batch.characters, *self.encoded(batch))

    def word_start(self, characters: Tensor, earliest: int, latest: int) -> int:
        """Where to begin to read in the middle of a line, from the position `earliest` to `latest`.

        At `earliest` if the decoder reads characters only, or if no word begins there; characters [position].
        """
        if self.word_context is None or earliest == 0:
            return earliest
        begins = (characters[earliest + 1 : latest + 2] == self.word_context.marker).nonzero()[:, 0]
        return earliest + (int(begins[0]) if len(begins) else 0)

    def encoded(self, batch: MixedInput) -> tuple[Tensor | None, Tensor | None]:
        """The encoder's output [sentence, token, width] and the mask of its padding, if there is a source."""
        if self.encoder is None:
            return None, None
        assert batch.source is not None
        assert batch.source_lengths is not None
        assert self.source_embedding is not None
        mask = key_mask(batch.source_lengths, batch.source.shape[1], batch.source.device)
        return self.encoder(self.source_embedding(batch.source), mask), mask

    def decoded(self, characters: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """The states of characters [sentence, position] given the encoder's output. # [position, width]"""
        embedded = self.character_embedding(characters)  # [sentence, position, width]
        if self.word_context is not None:
            embedded = embedded + self.word_context(characters, embedded, memory, mask)
        return self.decoder(embedded, memory, mask).flatten(0, 1)  # type: ignore[no-any-return]
