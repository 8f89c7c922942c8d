"""Distillation: what a segmenter has learned, as the scores of an ordinary SentencePiece unigram model.

A unigram model gives piece w the score s_w; a segmentation of a word has weight exp(sum of its scores). The
scores that make its posterior q_s as close as possible to the segmenter's, over the words of a corpus, are

    argmin_s  sum over words of KL(p(z | word, context) || q_s(z | word))
  = argmin_s  sum_v n_v log Z_v(s) - sum_w c_w s_w

where n_v counts the word type v, Z_v sums over its segmentations, and c_w is the expected count of piece w
under the segmenter's exact posterior. It is convex, and its gradient is (expected counts under q_s) - c. A
small ridge holds scores near log c: it decides where the corpus does not, since adding to each score a number
for every character of its piece changes no posterior.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpe.errors import UserError
from dpe.lattice.dynamic_program import boundary_probabilities, edge_marginals, log_partition
from dpe.lattice.lattice import LatticeBatch, LatticeBuilder
from dpe.text.best_pieces import UNKNOWN_PENALTY
from dpe.text.pruning import UNSEEN
from dpe.text.vocabulary import Vocabulary

_UPDATES_AT_ONCE, _LEAST_GAIN = 10, 1e-5
_CELLS_AT_ONCE = 500_000  # of a padded lattice: some megabytes, so that a step stays in the cache


@dataclass(frozen=True)
class PieceCounts:
    """Expected counts of all pieces, by id: in the words that are fitted, and in all other words."""

    fitted: NDArray[np.float64]  # [piece]
    other: NDArray[np.float64]  # [piece]


def frequent_words(vocabulary: Vocabulary, lines: Callable[[], Iterable[str]], limit: int) -> dict[str, int]:
    """The `limit` most frequent words of a text, and how often each occurs in it.

    In bounded memory: when twice as many are known, the rarest half is forgotten, and the text is read once
    more to count those that are left. A word that is as rare as others may then be missed for them.
    """
    counts: Counter[str] = Counter()
    was_full = False
    for line in lines():
        counts.update(vocabulary.words(vocabulary.normalize(line)))
        if len(counts) >= 2 * limit:
            was_full = True
            counts = Counter(dict(counts.most_common(limit)))
    kept = dict(counts.most_common(limit))
    if was_full:
        kept = dict.fromkeys(kept, 0)
        for line in lines():
            for word in vocabulary.words(vocabulary.normalize(line)):
                if word in kept:
                    kept[word] += 1
    return kept


class UnigramFit:
    """The convex objective over the scores of all pieces, and its minimum."""

    def __init__(
        self, vocabulary: Vocabulary, words: Mapping[str, int], counts: PieceCounts, *, ridge: float
    ) -> None:
        """Words with their frequencies; `counts.fitted` are of these words."""
        if not words:
            raise UserError("The text to distil from has no words.")
        protected = set(vocabulary.protected)
        free = [i for piece, i in vocabulary.ids.items() if piece not in protected]
        self.is_free = torch.zeros(len(vocabulary), dtype=torch.bool).index_fill_(0, torch.tensor(free), True)
        total = torch.from_numpy(counts.fitted + counts.other) + UNSEEN
        self.start = (total / total[self.is_free].sum()).log()  # [piece]
        # Of unknown characters, as SentencePiece scores them. They compete only where a character has no
        # piece of its own, but a longer piece contains it.
        self.start[~self.is_free] = self.start[self.is_free].min() - UNKNOWN_PENALTY
        self._expected = torch.from_numpy(counts.fitted) * self.is_free  # [piece]
        self._ridge = ridge
        self._batches = list(_weighted(vocabulary, words))

    def value(self, scores: Tensor) -> tuple[float, Tensor]:
        """The objective at scores [piece], and its gradient [piece], 0 for pieces without a score."""
        leaf = scores.detach().clone().requires_grad_(True)
        total = 0.0
        for lattice, frequencies in self._batches:
            of_edges = leaf[lattice.edge_pieces]
            for bucket in lattice.buckets:
                partitions = log_partition(bucket.scatter(of_edges), bucket.lengths)
                part = partitions @ frequencies[bucket.words]
                part.backward(retain_graph=True)  # type: ignore[no-untyped-call]
                total += part.item()
        assert leaf.grad is not None
        away = (scores - self.start) * self.is_free
        value = total - float(self._expected @ scores) + 0.5 * self._ridge * float(away @ away)
        return value, (leaf.grad - self._expected) * self.is_free + self._ridge * away

    def minimum(
        self,
        *,
        max_updates: int,
        least_gain: float = _LEAST_GAIN,
        report: Callable[[str], None] = lambda _: None,
    ) -> Tensor:
        """The scores [piece] with the smallest value, by L-BFGS over scores scaled by their curvature.

        It ends when ten updates gain less than `least_gain`, in nats a word.
        """
        scale = self._curvature().rsqrt()
        words = float(sum(frequencies.sum() for _, frequencies in self._batches))
        moved = torch.zeros_like(self.start, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [moved],
            max_iter=min(max_updates, _UPDATES_AT_ONCE),
            max_eval=2 * _UPDATES_AT_ONCE,
            history_size=20,
            tolerance_grad=1e-7 * words**0.5,
            tolerance_change=1e-13 * words,
            line_search_fn="strong_wolfe",
        )
        values: list[float] = []

        def closure() -> float:
            value, gradient = self.value(self.start + moved.detach() * scale)
            moved.grad = gradient * scale
            values.append(value)
            report(f"fitting: {len(values)} evaluations, {value / words:.6f} nats a word")
            return value

        gain = float("inf")
        for _ in range(0, max_updates, _UPDATES_AT_ONCE):
            before = min(values, default=gain)
            optimizer.step(closure)  # type: ignore[no-untyped-call]
            gain = before - min(values)
            if gain <= least_gain * words:
                break
        return (self.start + moved.detach() * scale).detach()

    def _curvature(self) -> Tensor:
        """About the diagonal of the Hessian at the start: the variance of each edge, summed. # [piece]"""
        variances = _sums_over_edges(self._batches, self.start, lambda p: (p * (1 - p)).clamp_min(0))
        return variances + self._ridge


def expected_pieces(vocabulary: Vocabulary, words: Mapping[str, int]) -> NDArray[np.float64]:
    """How often a unigram model itself expects each piece in words with these frequencies. # [piece]"""
    return _sums_over_edges(_weighted(vocabulary, words), _scores(vocabulary), lambda p: p).numpy()


def unigram_boundaries(vocabulary: Vocabulary, words: Collection[str]) -> dict[str, tuple[float, ...]]:
    """The probability of a boundary after each character of words, under a unigram model itself."""
    scores, found = _scores(vocabulary), dict[str, tuple[float, ...]]()
    for rows, lattice in _batches(vocabulary, words):
        of_edges = scores[lattice.edge_pieces]
        for bucket in lattice.buckets:
            probabilities = boundary_probabilities(bucket.scatter(of_edges), bucket.lengths)
            for row, values in zip(bucket.words.tolist(), probabilities[:, 1:].tolist(), strict=True):
                found[rows[row]] = tuple(values[: len(rows[row])])
    return found


def _scores(vocabulary: Vocabulary) -> Tensor:
    """Those of a unigram model. # [piece]"""
    scores = torch.full((len(vocabulary),), vocabulary.unknown_score, dtype=torch.float64)
    for piece, score in vocabulary.scores.items():
        scores[vocabulary.ids[piece]] = score
    return scores


def _sums_over_edges(
    batches: Iterable[tuple[LatticeBatch, Tensor]], scores: Tensor, value: Callable[[Tensor], Tensor]
) -> Tensor:
    """The sum over the edges of each piece of a value of their posterior probability. # [piece]"""
    sums = torch.zeros_like(scores)
    for lattice, frequencies in batches:
        of_edges = scores[lattice.edge_pieces]
        for bucket in lattice.buckets:
            values = value(edge_marginals(bucket.scatter(of_edges), bucket.lengths))  # [word, start, span]
            weighted = (values * frequencies[bucket.words][:, None, None]).flatten()
            sums.index_add_(0, lattice.edge_pieces[bucket.edges], weighted[bucket.cells])
    return sums


def _weighted(vocabulary: Vocabulary, words: Mapping[str, int]) -> Iterator[tuple[LatticeBatch, Tensor]]:
    """Lattices of words, with their frequencies [word]."""
    for rows, lattice in _batches(vocabulary, words):
        yield lattice, torch.tensor([words[row] for row in rows], dtype=torch.float64)


def _batches(vocabulary: Vocabulary, words: Collection[str]) -> Iterator[tuple[list[str], LatticeBatch]]:
    """Words of similar length, with their lattices."""
    builder, rows = LatticeBuilder(vocabulary), list[str]()
    for word in [*sorted(words, key=lambda word: (len(word), word)), ""]:
        if rows and (not word or (len(rows) + 1) * len(word) * min(len(word), 16) > _CELLS_AT_ONCE):
            stride = sum(map(len, rows)) + 1
            yield rows, builder.batch([rows], stride=stride, end_piece=vocabulary.eos_id)
            rows = []
        rows.append(word)


def distilled_vocabulary(vocabulary: Vocabulary, scores: NDArray[np.float64]) -> Vocabulary:
    """A unigram model with the same pieces, ids, normaliser and protected strings, and scores [piece]."""
    protected = set(vocabulary.protected)
    return vocabulary.as_unigram(
        {piece: float(scores[i]) for piece, i in vocabulary.ids.items() if piece not in protected}
    )
