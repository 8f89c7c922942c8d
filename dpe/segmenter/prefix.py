"""How probable it is that a target begins with a prefix, and which character comes next: exactly.

The model writes piece after piece. Its text begins with the prefix y_1..y_n once the pieces written are the
prefix, or once the last of them reaches over its end. So with alpha_t, the summed probability of all
segmentations of y_1..y_t (Alg. 1),

    p(prefix) = alpha_n + sum over t < n of alpha_t * p(a longer piece that begins with y_t+1..y_n | y_1..y_t)

A piece that reaches over the end says which character comes next; so does every piece that starts there.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpe.errors import refuse
from dpe.segmenter.answers import PrefixScore
from dpe.segmenter.long_lines import LONGEST, is_long
from dpe.text.words import MARKER

if TYPE_CHECKING:
    from dpe.model.batching import MixedBatch, MixedCollator, MixedExample
    from dpe.model.mixed import MixedTransformer
    from dpe.text.vocabulary import Vocabulary

_LAST = chr(0x10FFFF)
_UNKNOWN, _END = "unknown", "end"  # what may follow beside a character


class _Edge(NamedTuple):
    """A piece that starts in the prefix; `following` is its character behind the prefix, if it has one."""

    start: int
    end: int
    piece: int
    following: str = ""


class PrefixReader:
    """Answers about prefixes, by one model and its vocabulary."""

    def __init__(self, model: MixedTransformer, collator: MixedCollator, vocabulary: Vocabulary) -> None:
        refuse(
            (
                vocabulary.protected,
                "A prefix may end inside a protected string, which is never segmented; "
                "prefixes need a vocabulary without protected strings.",
            )
        )
        self._model, self._collator, self._vocabulary = model, collator, vocabulary
        self._sorted = sorted(vocabulary.ids)  # pieces that begin alike stand together
        self._first = {number: piece[0] for piece, number in vocabulary.ids.items()}
        self._first[vocabulary.eos_id] = _END
        words = [number for number, first in self._first.items() if first in (MARKER, _END)]
        others = set(range(len(vocabulary))) - {*words, *model.excluded_pieces}
        self._words, self._others = torch.tensor(words), torch.tensor(sorted(others))

    @torch.inference_mode()
    def score(self, example: MixedExample) -> PrefixScore:
        """The answer about targets that begin as this example does."""
        refuse((is_long(example), f"A prefix or its source is longer than {LONGEST:,} characters or pieces."))
        batch = self._collator.collate([example], epoch=0).to(self._model.output_weight.device)
        states = self._model.states(batch)  # [position, width]
        alphas = np.full(len(example.marked) + 1, -np.inf)
        alphas[0] = 0.0
        weights: defaultdict[str, list[float]] = defaultdict(list)  # by what follows the prefix
        edges = list(self._edges(example.marked))
        for edge, score in zip(edges, self._scores(states, edges), strict=True):
            weight = alphas[edge.start] + score
            if edge.following:
                weights[edge.following].append(weight)
            else:
                alphas[edge.end] = np.logaddexp(alphas[edge.end], weight)
        over = [weight for parts in weights.values() for weight in parts]
        total = float(np.logaddexp.reduce([alphas[-1], *over]))
        for piece, score in self._scores_behind(states, batch):
            weights[self._first.get(piece, _UNKNOWN)].append(alphas[-1] + score)
        shares = {
            following: math.exp(np.logaddexp.reduce(weights[following]) - total) for following in weights
        }
        shares = dict(sorted(shares.items(), key=lambda share: -share[1]))
        unknown, end = shares.pop(_UNKNOWN), shares.pop(_END)
        return PrefixScore(example.marked, total, shares, unknown, end)

    def _edges(self, marked: str) -> Iterator[_Edge]:
        """Every piece that starts in the prefix and agrees with it, by start."""
        ids, length, max_span = self._vocabulary.ids, len(marked), self._vocabulary.max_span
        for start in range(length):
            for end in range(start + 1, min(start + max_span, length) + 1):
                piece = ids.get(marked[start:end], self._vocabulary.unk_id if end == start + 1 else None)
                if piece is not None:
                    yield _Edge(start, end, piece)
            if (left := length - start) < max_span:
                rest = marked[start:]
                alike = slice(*(bisect_left(self._sorted, bound) for bound in (rest, rest + _LAST)))
                for longer in self._sorted[alike]:
                    if len(longer) > left:
                        yield _Edge(start, length, ids[longer], longer[left])

    def _scores(self, states: Tensor, edges: Sequence[_Edge]) -> list[float]:
        starts = torch.tensor([edge.start for edge in edges], dtype=torch.long, device=states.device)
        pieces = torch.tensor([edge.piece for edge in edges], dtype=torch.long, device=states.device)
        scores: list[float] = self._model.edge_scores(states, starts, pieces).tolist()
        return scores

    def _scores_behind(self, states: Tensor, batch: MixedBatch) -> Iterator[tuple[int, float]]:
        """Every piece and its log-probability behind the prefix.

        There a word ends or it does not, and a decoder over words has a state for each case. `states` are of
        a batch in which it ends.
        """
        going_on = states
        if self._model.reads_words:
            inside = torch.arange(batch.word_ends.shape[1], device=states.device) < len(states) - 1
            going_on = self._model.states(replace(batch, word_ends=batch.word_ends & inside))
        for last, pieces in ((states, self._words), (going_on, self._others)):
            place = torch.zeros_like(pieces, device=states.device)
            scores = self._model.edge_scores(last[-1:], place, pieces.to(states.device))
            yield from zip(pieces.tolist(), scores.tolist(), strict=True)
