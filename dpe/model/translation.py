"""The standard transformer: pieces in, pieces out, and greedy search (beam search is CTranslate2's)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.model.attention import DecoderCache, key_mask
from dpe.model.transformer import Decoder, Encoder, embedding

if TYPE_CHECKING:
    from dpe.model.settings import TransformerSettings
    from dpe.text.vocabulary import Vocabulary


class TranslationTransformer(nn.Module):
    """Encoder and decoder with one embedding for the source, the target and the output softmax.

    Where the source has a vocabulary of its own it has an embedding of its own, `source_embedding`.

    The row of the pad piece is zero and receives no gradient, so it stays zero: its logit is always 0, here
    and in an exported model, and padding adds nothing.
    """

    def __init__(
        self,
        settings: TransformerSettings,
        *,
        piece_count: int,
        pad_id: int,
        bos_id: int,
        eos_id: int,
        source_pieces: tuple[int, int] | None = None,
    ) -> None:
        """`source_pieces`: number of pieces and pad id of another vocabulary for the source."""
        super().__init__()
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self.embedding = embedding(piece_count, settings.width, pad_id=pad_id)
        self.encoder = Encoder(settings)
        self.decoder = Decoder(settings, cross_attention=True)
        self.source_embedding: nn.Embedding | None = None
        if source_pieces is not None:
            count, pad = source_pieces
            self.source_embedding = embedding(count, settings.width, pad_id=pad)
        # Looking up the pad piece gives its row no gradient, but the output softmax does.
        hook = self._clear_pad_gradient
        self.embedding.weight.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    @classmethod
    def of(cls, settings: TransformerSettings, vocabulary: Vocabulary) -> TranslationTransformer:
        """An untrained model over a vocabulary."""
        return cls(
            settings,
            piece_count=len(vocabulary),
            pad_id=vocabulary.pad_id,
            bos_id=vocabulary.bos_id,
            eos_id=vocabulary.eos_id,
            source_pieces=None if vocabulary.is_joint else (len(vocabulary.source), vocabulary.source.pad_id),
        )

    def _clear_pad_gradient(self, weight: Tensor) -> None:
        assert weight.grad is not None
        weight.grad[self.pad_id] = 0.0

    def encode(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """The encoder's output [sentence, token, width] and the mask of its padding.

        source [sentence, token], where the caller appends the end of sentence; source_lengths [sentence].
        """
        mask = key_mask(source_lengths, source.shape[1], source.device)
        table = self.source_embedding or self.embedding
        return self.encoder(table(source), mask), mask

    def decode(
        self, target_in: Tensor, memory: Tensor, mask: Tensor | None, cache: DecoderCache | None = None
    ) -> Tensor:
        """Logits of the next piece. # [sentence, position, piece]"""
        states = self.decoder(self.embedding(target_in), memory, mask, cache)
        return F.linear(states, self.embedding.weight)

    def states(self, source: Tensor, source_lengths: Tensor, target_in: Tensor) -> Tensor:
        """Teacher forcing: target_in [sentence, position] begins with bos. # [sentence, position, width]"""
        memory, mask = self.encode(source, source_lengths)
        states: Tensor = self.decoder(self.embedding(target_in), memory, mask)
        return states

    def logits(self, source: Tensor, source_lengths: Tensor, target_in: Tensor) -> Tensor:
        """Of the next piece after each position, by teacher forcing. # [sentence, position, piece]"""
        return F.linear(self.states(source, source_lengths, target_in), self.embedding.weight)

    @torch.inference_mode()
    def greedy(self, source: Tensor, source_lengths: Tensor, *, max_length: int) -> list[list[int]]:
        """The most probable piece at each step, until the end symbol or `max_length` pieces, end included."""
        prefixes = Prefixes(self, source, source_lengths, copies=1)
        results: list[list[int]] = [[] for _ in range(len(source))]
        sentences = list(range(len(source)))  # those that have not ended
        for _ in range(max_length):
            pieces = prefixes.next_logits().argmax(1)
            unfinished = (pieces != self.eos_id).nonzero()[:, 0]
            sentences = [sentences[row] for row in unfinished.tolist()]
            for sentence, piece in zip(sentences, pieces[unfinished].tolist(), strict=True):
                results[sentence].append(piece)
            if not sentences:
                break
            prefixes.extend(unfinished, pieces[unfinished])
        return results


class Prefixes:
    """The beginnings of translations, one per row, with the decoder's cache of each."""

    def __init__(
        self, model: TranslationTransformer, source: Tensor, source_lengths: Tensor, copies: int
    ) -> None:
        memory, mask = model.encode(source, source_lengths)
        self.model = model
        self.memory = memory.repeat_interleave(copies, 0)  # [row, token, width]
        self.mask = None if mask is None else mask.repeat_interleave(copies, 0)
        self.cache = DecoderCache(len(model.decoder.layers))
        self.pieces = source.new_full((len(source) * copies, 1), model.bos_id)  # [row, step]

    def next_logits(self) -> Tensor:
        """Logits of each row's next piece. # [row, piece]"""
        return self.model.decode(self.pieces[:, -1:], self.memory, self.mask, self.cache)[:, 0]

    def extend(self, rows: Tensor, pieces: Tensor) -> None:
        """Continue with these rows, repeats allowed, each followed by its piece. # both [new row]"""
        self.pieces = torch.cat([self.pieces[rows], pieces[:, None]], dim=1)
        self.memory = self.memory[rows]
        self.mask = None if self.mask is None else self.mask[rows]
        self.cache.select(rows)
