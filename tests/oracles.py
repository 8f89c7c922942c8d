"""Slow, obviously right twins of the dynamic program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from torch import Tensor

Cut = tuple[int, ...]  # every boundary, from 0 to the word's length
Edges = Sequence[dict[int, float]]  # Edges[start][end] is the score of the piece over start .. end


def enumerate_cuts(edge_scores: Tensor, length: int) -> Iterator[tuple[Cut, float]]:
    """Every cut of one word, from its scores [start, span], with the cut's score."""
    for inner in itertools.product([False, True], repeat=max(length - 1, 0)):
        cut = (0, *(k for k, is_boundary in enumerate(inner, start=1) if is_boundary), length)
        pieces = list(itertools.pairwise(cut)) if length else []
        if all(end - start <= edge_scores.shape[1] for start, end in pieces):
            score = sum(edge_scores[start, end - start - 1].item() for start, end in pieces)
            if score > float("-inf"):
                yield (cut if length else (0,)), score


def log_sum_exp(values: Sequence[float]) -> float:
    top = max(values, default=float("-inf"))
    return top if top == float("-inf") else top + math.log(math.fsum(math.exp(v - top) for v in values))


def posterior(edge_scores: Tensor, length: int, temperature: float = 1.0) -> dict[Cut, float]:
    """Probability of every cut of one word, by its definition."""
    scores = {cut: score / temperature for cut, score in enumerate_cuts(edge_scores, length)}
    total = log_sum_exp(list(scores.values()))
    return {cut: math.exp(score - total) for cut, score in scores.items()}


def edges_of(edge_scores: Tensor, length: int) -> list[dict[int, float]]:
    """One word's scores [start, span] as one dictionary of ends per start."""
    rows = edge_scores.tolist()
    return [
        {start + span + 1: score for span, score in enumerate(rows[start]) if start + span < length}
        for start in range(length)
    ]


def textbook_alphas(edges: Edges) -> list[float]:
    """Alg. 1 as the paper writes it, one character after the other: log-weight of every prefix."""
    arriving: list[list[tuple[int, float]]] = [[] for _ in range(len(edges) + 1)]
    for start, by_end in enumerate(edges):
        for end, score in by_end.items():
            arriving[end].append((start, score))
    alphas = [0.0]
    for end in range(1, len(edges) + 1):
        alphas.append(log_sum_exp([alphas[start] + score for start, score in arriving[end]]))
    return alphas


def textbook_log_partition(edges: Edges) -> float:
    """Alg. 1 over a whole sentence, blind to where its words end."""
    return textbook_alphas(edges)[-1]


def mirrored(edges: Edges) -> list[dict[int, float]]:
    """The same edges read from right to left: its alphas are the betas of the original."""
    length = len(edges)
    result: list[dict[int, float]] = [{} for _ in edges]
    for start, by_end in enumerate(edges):
        for end, score in by_end.items():
            result[length - end][length - start] = score
    return result
