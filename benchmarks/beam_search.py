"""Beam search in torch, as textbooks have it: what CTranslate2's translations and speed are compared with."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dpe.model.translation import Prefixes, TranslationTransformer


class Hypothesis(NamedTuple):
    """A translation without beginning and end symbols, and its log-probability over length ** penalty."""

    ids: list[int]
    score: float


@torch.inference_mode()
def beam_search(
    model: TranslationTransformer,
    source: Tensor,
    source_lengths: Tensor,
    *,
    beam: int,
    max_length: int,
    length_penalty: float = 1.0,
) -> list[Hypothesis]:
    """The best hypothesis found for each sentence, by log-probability / length ** length_penalty.

    The length counts the end symbol. A sentence is done when `beam` hypotheses have ended; one that reaches
    `max_length` pieces counts as ended, without the probability of an end symbol.
    """
    search = _BeamSearch(model, source, source_lengths, beam=beam, penalty=length_penalty)
    for _ in range(max_length):
        search.step()
        if not search.sentences:
            break
    search.end_all()
    return [max(ended, key=lambda hypothesis: hypothesis.score) for ended in search.ended]


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
        self.prefixes = Prefixes(model, source, source_lengths, beam)
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
