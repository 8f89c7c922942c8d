"""The mixed character-subword transformer (section 4 of the paper): characters in, subwords out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from dpe.model.attention import key_mask
from dpe.model.batching import PAD_CHARACTER, CharacterIds
from dpe.model.edge_scores import DEFAULT_THRESHOLD, edge_scores
from dpe.model.transformer import Decoder, Encoder, embedding

if TYPE_CHECKING:
    from dpe.model.settings import TransformerSettings
    from dpe.text.vocabulary import Vocabulary


class MixedTransformer(nn.Module):
    """One state per target character position, for a softmax over the pieces that may start there.

    The encoder reads the source's pieces; the decoder reads the target's characters. Position t has read the
    characters y_1..y_t, nothing after them and no segmentation, so a piece's probability there does not
    depend on the pieces before it. With `source=False` there is no encoder: a language model.

    `character_count` includes the three special characters.
    """

    def __init__(
        self,
        settings: TransformerSettings,
        *,
        piece_count: int,
        character_count: int,
        pad_id: int,
        bos_id: int,
        source: bool = True,
    ) -> None:
        """The vocabulary is joint, so the source embedding, if there is one, is the output weight too."""
        super().__init__()
        self.excluded_pieces = (pad_id, bos_id)  # never predicted: masked from the softmax
        width = settings.width
        self.character_embedding = embedding(character_count, width, pad_id=PAD_CHARACTER)
        self.decoder = Decoder(settings, cross_attention=source)
        self.encoder = Encoder(settings) if source else None
        self.source_embedding = embedding(piece_count, width, pad_id=pad_id) if source else None
        self.output_embedding = None if source else embedding(piece_count, width, pad_id=pad_id)

    @classmethod
    def of(cls, settings: TransformerSettings, vocabulary: Vocabulary, *, source: bool) -> MixedTransformer:
        """An untrained model over a vocabulary."""
        return cls(
            settings,
            piece_count=len(vocabulary),
            character_count=len(CharacterIds(vocabulary)),
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

    def states(self, source_ids: Tensor | None, source_lengths: Tensor | None, characters: Tensor) -> Tensor:
        """The state at each character position. # [sentence, position, width]

        source_ids [sentence, token], where the caller appends the end of sentence, so that an empty source
        has a token too; source_lengths [sentence]; both None for a model without a source.
        characters [sentence, position]: BEGIN_CHARACTER, then the characters; padding on the right.
        """
        embedded = self.character_embedding(characters)
        if self.encoder is None:
            return self.decoder(embedded)  # type: ignore[no-any-return]
        assert source_ids is not None
        assert source_lengths is not None
        assert self.source_embedding is not None
        mask = key_mask(source_lengths, source_ids.shape[1], source_ids.device)
        memory = self.encoder(self.source_embedding(source_ids), mask)
        return self.decoder(embedded, memory, mask)  # type: ignore[no-any-return]
