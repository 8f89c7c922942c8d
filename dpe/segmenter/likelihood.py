"""What training maximises. Here the model meets the dynamic program; in use, in scored_batch.py.

The marginal likelihood of a sentence is a sum over its words, because no piece crosses a word boundary:

    log p(y | x) = sum over words of log_partition(lattice of the word) + log p(end of sentence)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dpe.lattice.dynamic_program import best, log_partition
from dpe.model.edge_scores import DEFAULT_THRESHOLD

if TYPE_CHECKING:
    from dpe.model.batching import MixedBatch
    from dpe.model.mixed import MixedTransformer


def batch_edge_scores(
    model: MixedTransformer, batch: MixedBatch, *, threshold: float = DEFAULT_THRESHOLD
) -> Tensor:
    """Log-probability of every edge of the batch's lattices, in the order of `batch.lattice`."""
    positions, pieces = batch.lattice.edge_positions, batch.lattice.edge_pieces
    return model.edge_scores(model.states(batch), positions, pieces, threshold=threshold)


def marginal_log_likelihood(scores: Tensor, batch: MixedBatch) -> Tensor:
    """Exact log p(y | x) of every sentence (Alg. 1 over words), from the edge scores.  # [sentence]"""
    total = scores[batch.lattice.end_edges]
    for bucket in batch.lattice.buckets:
        words = log_partition(bucket.scatter(scores), bucket.lengths)  # [word]
        total = total.index_add(0, batch.lattice.word_sentence[bucket.words], words)
    return total


def best_log_probability(scores: Tensor, batch: MixedBatch) -> tuple[float, int, Tensor]:
    """Log-probability of the best segmentations (Alg. 2) of all sentences together, and their pieces' number.

    And a code for each word's: a sum of powers of 3, so equal only for equal boundaries in a word of up to 40
    characters, and almost surely in longer ones, where it overflows.  # [word]
    """
    total, pieces = float(scores[batch.lattice.end_edges].double().sum()), 0
    codes = torch.zeros_like(batch.lattice.word_sentence)
    for bucket in batch.lattice.buckets:
        cuts = best(bucket.scatter(scores), bucket.lengths)
        total += float(cuts.scores.double().sum())
        pieces += int(cuts.boundaries.sum()) - len(bucket.lengths)
        inner = cuts.boundaries[:, 1:]  # [word, position]
        codes[bucket.words] = (inner * torch.full_like(inner[0], 3, dtype=torch.int64).cumprod(0)).sum(1)
    return total, pieces, codes
