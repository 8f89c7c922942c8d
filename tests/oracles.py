"""Slow, obviously right twins of the dynamic program, and of a segmenter's answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from dpe import Segmenter
from dpe.model.batching import MixedCollator
from dpe.model.mixed import MixedTransformer
from dpe.model.word_decoder import WordDecoder
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import split_words

Cut = tuple[int, ...]  # every boundary, from 0 to the word's length
Cuts = dict[tuple[str, ...], float]  # every lattice cut, as one string per edge, with its score
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


def cuts_of_text(text: str, vocabulary: Vocabulary) -> Iterator[tuple[str, ...]]:
    """All ways to write a text as pieces: by definition, one first piece after the other."""
    if not text:
        yield ()
        return
    protected = set(vocabulary.protected)
    if starts := [p for p in protected if text.startswith(p)]:
        ends = [len(max(starts, key=len))]
    else:
        border = min((text.find(p) for p in protected if p in text), default=len(text))
        single = text[0]
        ends = [n for n in range(1, border + 1) if text[:n] in vocabulary.ids or text[:n] == single]
    for end in ends:
        for rest in cuts_of_text(text[end:], vocabulary):
            yield (text[:end], *rest)


def piece_scores(model: MixedTransformer, states: Tensor) -> Tensor:
    """Log-probability of every piece at every position, by definition. # [position, piece]"""
    logits = states[:, : model.output_weight.shape[1]] @ model.output_weight.T
    if not isinstance(model.decoder, WordDecoder):
        logits[:, list(model.excluded_pieces)] = float("-inf")
        return logits.log_softmax(1)
    ends, continues = states[:, -1].sigmoid(), (-states[:, -1]).sigmoid()
    scores = torch.full_like(logits, float("-inf"))
    for pieces, share in ((model.decoder.words, ends), (model.decoder.others, continues)):
        scores[:, pieces] = share.log()[:, None] + logits[:, pieces].log_softmax(1)
    return scores


def brute_force(segmenter: Segmenter, source: str | None, target: str) -> Cuts:
    """log p(y, z | x) of every cut z, from the full softmax of a model that reads this sentence alone."""
    vocabulary, model = segmenter.vocabulary, segmenter._model
    pieces = None if source is None else vocabulary.source.encode(source)
    example = segmenter.example(0, pieces, target)
    batch = MixedCollator(vocabulary).collate([example], epoch=0)
    rows = piece_scores(model, model.states(batch)).double()  # [position, piece]
    words = [
        list(cuts_of_text(word, vocabulary))
        for word in split_words(example.marked, at_ends=vocabulary.marks_ends)
    ]
    result: Cuts = {}
    for chosen in itertools.product(*words):
        cut = tuple(piece for word in chosen for piece in word)
        starts = itertools.accumulate(map(len, cut), initial=0)
        ids = [*vocabulary.piece_ids(cut), vocabulary.eos_id]
        result[cut] = sum(float(rows[t][i]) for t, i in zip(starts, ids, strict=True))
    return result
