"""The standard subword transformer: pieces in, pieces out, with greedy and beam search."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpe.model.attention import DecoderCache, key_mask
from dpe.model.transformer import Decoder, Encoder, TransformerSettings, embedding


class Hypothesis(NamedTuple):
    """A translation without beginning and end symbols, and its log-probability over length ** penalty."""

    ids: list[int]
    score: float


class TranslationTransformer(nn.Module):
    """Encoder and decoder with one embedding for the source, the target and the output softmax.

    The embedding's row of the pad piece is zero and receives no gradient, so it stays zero: its logit is
    always 0, here and in an exported model, and padding adds nothing.
    """

    def __init__(
        self, settings: TransformerSettings, *, piece_count: int, pad_id: int, bos_id: int, eos_id: int
    ) -> None:
        super().__init__()
        self.pad_id, self.bos_id, self.eos_id = pad_id, bos_id, eos_id
        self.embedding = embedding(piece_count, settings.width, pad_id=pad_id)
        self.encoder = Encoder(settings)
        self.decoder = Decoder(settings, cross_attention=True)
        # The lookups give the row no gradient already, the output softmax does.
        hook = self._clear_pad_gradient
        self.embedding.weight.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def _clear_pad_gradient(self, weight: Tensor) -> None:
        assert weight.grad is not None
        weight.grad[self.pad_id] = 0.0

    def encode(self, source: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor | None]:
        """The encoder's output [sentence, token, width] and the mask of its padding.

        source [sentence, token], closed by the end of sentence by the caller; source_lengths [sentence].
        """
        mask = key_mask(source_lengths, source.shape[1], source.device)
        return self.encoder(self.embedding(source), mask), mask

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
        """The most probable piece at every step, until the end symbol or `max_length` pieces (it counts)."""
        prefixes = _Prefixes(self, source, source_lengths, copies=1)
        results: list[list[int]] = [[] for _ in range(len(source))]
        sentences = list(range(len(source)))  # those that have not ended
        for _ in range(max_length):
            pieces = prefixes.next_logits().argmax(1)
            going_on = (pieces != self.eos_id).nonzero()[:, 0]
            sentences = [sentences[row] for row in going_on.tolist()]
            for sentence, piece in zip(sentences, pieces[going_on].tolist(), strict=True):
                results[sentence].append(piece)
            if not sentences:
                break
            prefixes.extend(going_on, pieces[going_on])
        return results

    @torch.inference_mode()
    def beam_search(
        self,
        source: Tensor,
        source_lengths: Tensor,
        *,
        beam: int,
        max_length: int,
        length_penalty: float = 1.0,
    ) -> list[Hypothesis]:
        """The best hypothesis found for each sentence, by log-probability / length ** length_penalty.

        The length counts the end symbol. A sentence is done when `beam` hypotheses have ended; one that
        reaches `max_length` pieces counts as ended, without the probability of an end symbol.
        """
        search = _BeamSearch(self, source, source_lengths, beam=beam, penalty=length_penalty)
        for _ in range(max_length):
            search.step()
            if not search.sentences:
                break
        search.end_all()
        return [max(ended, key=lambda hypothesis: hypothesis.score) for ended in search.ended]


class _Prefixes:
    """The beginnings of translations, one per row, and what the decoder remembers of each."""

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
        """Go on with these rows, repeats allowed, each followed by its piece. # both [new row]"""
        self.pieces = torch.cat([self.pieces[rows], pieces[:, None]], dim=1)
        self.memory = self.memory[rows]
        self.mask = None if self.mask is None else self.mask[rows]
        self.cache.select(rows)


class _BeamSearch:
    """`beam` prefixes for every sentence that is not done, in the rows [sentence, beam] flattened."""

    def __init__(
        self,
        model: TranslationTransformer,
        source: Tensor,
        source_lengths: Tensor,
        *,
        beam: int,
        penalty: float,
    ) -> None:
        self.beam, self.penalty, self.eos_id = beam, penalty, model.eos_id
        self.prefixes = _Prefixes(model, source, source_lengths, beam)
        self.sentences = list(range(len(source)))  # those not done
        self.ended: list[list[Hypothesis]] = [[] for _ in self.sentences]
        # All prefixes of a sentence begin equal: only the first may go on, or each would count `beam` times.
        self.scores = self.prefixes.memory.new_full((len(source), beam), float("-inf"))  # [sentence, beam]
        self.scores[:, 0] = 0.0

    def step(self) -> None:
        """Extend every prefix by one piece and keep the best; drop the sentences that are done."""
        log_probabilities = self.prefixes.next_logits().log_softmax(1)  # [row, piece]
        piece_count = log_probabilities.shape[1]
        totals = (self.scores.flatten()[:, None] + log_probabilities).view(len(self.scores), -1)
        # Each prefix ends in one way, so among twice as many candidates as beams enough go on.
        scores, candidates = totals.topk(min(2 * self.beam, totals.shape[1]))  # [sentence, rank]
        offsets = torch.arange(len(scores), device=scores.device)[:, None] * self.beam
        rows, pieces = candidates // piece_count + offsets, candidates % piece_count
        ending = pieces == self.eos_id
        self.end(scores, rows, ending)
        self.scores, ranks = scores.masked_fill(ending, float("-inf")).topk(self.beam)  # [sentence, beam]
        open_ = [i for i, sentence in enumerate(self.sentences) if len(self.ended[sentence]) < self.beam]
        self.keep(open_, rows.gather(1, ranks), pieces.gather(1, ranks))

    def end(self, scores: Tensor, rows: Tensor, ending: Tensor) -> None:
        """Record the candidates that end among the best `beam` of their sentence. # [sentence, rank]"""
        among_best = ending[:, : self.beam] & scores[:, : self.beam].isfinite()
        for index, rank in among_best.nonzero().tolist():
            prefix = self.prefixes.pieces[rows[index, rank], 1:].tolist()
            self.record(self.sentences[index], prefix, float(scores[index, rank]), len(prefix) + 1)

    def end_all(self) -> None:
        """Record the prefixes that have reached the greatest length as they are."""
        for row, score in enumerate(self.scores.flatten().tolist()):
            if score > float("-inf"):
                prefix = self.prefixes.pieces[row, 1:].tolist()
                self.record(self.sentences[row // self.beam], prefix, score, len(prefix))

    def record(self, sentence: int, ids: list[int], log_probability: float, length: int) -> None:
        self.ended[sentence].append(Hypothesis(ids, log_probability / max(length, 1) ** self.penalty))

    def keep(self, open_: list[int], rows: Tensor, pieces: Tensor) -> None:
        """Go on with the sentences of these indices only. # rows, pieces: [sentence, beam]"""
        self.sentences = [self.sentences[index] for index in open_]
        self.scores = self.scores[open_]
        self.prefixes.extend(rows[open_].flatten(), pieces[open_].flatten())
