"""The edges of a sentence with their posterior probabilities, as its lattice is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dpe.lattice import dynamic_program

if TYPE_CHECKING:
    from dpe.lattice.lattice import Bucket
    from dpe.segmenter.scored_batch import ScoredBatch

# Arcs off the best path that are worth a browser's time, in a whole sentence.
MOST_OTHERS = 3_000


class ScoredEdge(NamedTuple):
    """One piece over one span of a word."""

    start: int
    end: int
    piece: int  # its id
    score: float
    probability: float
    on_best_path: bool


@dataclass(frozen=True)
class WordEdges:
    """The edges of a word by start, then end, and how many improbable ones are not among them."""

    edges: list[ScoredEdge]
    left_out: int


def sentence_edges(batch: ScoredBatch) -> list[WordEdges]:
    """The edges of the words of a batch's only sentence, in the order of the words.

    All edges on the best path are there, and of the others the MOST_OTHERS most probable of the sentence,
    so that a word of a thousand characters stays small enough to be drawn.
    """
    (example,) = batch.examples
    by_word: list[list[ScoredEdge]] = [[] for _ in example.words]
    for bucket, (scores, lengths) in zip(batch.lattice.buckets, batch.bucket_scores(), strict=True):
        for row, edge in _bucket_edges(bucket, batch.lattice.edge_pieces[bucket.edges], scores, lengths):
            by_word[int(bucket.words[row])].append(edge)
    others = [(word, e) for word, edges in enumerate(by_word) for e in edges if not e.on_best_path]
    dropped = set(sorted(others, key=lambda other: -other[1].probability)[MOST_OTHERS:])
    kept = [[e for e in edges if (word, e) not in dropped] for word, edges in enumerate(by_word)]
    return [WordEdges(own, len(all_) - len(own)) for own, all_ in zip(kept, by_word, strict=True)]


def _bucket_edges(
    bucket: Bucket, pieces: Tensor, scores: Tensor, lengths: Tensor
) -> list[tuple[int, ScoredEdge]]:
    """Every edge of a bucket with its word's row in it; a word's edges come by start, then span.

    pieces [edge of the bucket], scores [word, start, span], lengths [word].
    """
    marginals = dynamic_program.edge_marginals(scores, lengths)  # [word, start, span]
    begun = dynamic_program.best(scores, lengths).boundaries.cpu().numpy()  # [word, position]
    cells = torch.unravel_index(bucket.cells, bucket.shape)  # word, start, span of each edge
    columns = (*cells, pieces, scores[cells], marginals[cells].clamp(max=1.0))
    found = []
    for word, start, span, piece, score, probability in zip(*(c.tolist() for c in columns), strict=True):
        end = start + span + 1
        ends = begun[word][start] and begun[word][end]
        is_step = bool(ends and not begun[word][start + 1 : end].any())  # of the best path
        found.append((word, ScoredEdge(start, end, piece, score, probability, is_step)))
    return found
