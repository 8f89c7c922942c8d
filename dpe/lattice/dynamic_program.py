"""Exact answers about all segmentations of a word (the paper's Alg. 1 and 2), for a batch of words at once.

Every function takes the same two tensors:

    edge_scores  [word, start, span]  log-weight of the piece over characters start .. start + span + 1;
                                      -inf where no piece matches, so beyond the word's end too
    lengths      [word]               characters in each word

The weight of a segmentation is the product of its pieces' weights. The sum and the maximum over all of them
come from one pass over the characters; every other answer walks back from the end of the word. Seen from
position k, the last piece has probability exp(alpha[j] + score[j, k] - alpha[k]), where j is its start; the
marginals, the entropy and the samples only need these backward steps, in which no exponent can overflow.

The recursion runs in float64 whatever the type of the scores: it costs almost no time, and in float32 a word
of 5,000 characters (text without spaces) would keep only three digits of its posterior.

A word without any segmentation has log partition -inf and best score -inf, and every probability about it is
0, never NaN. A word of length 0 has one segmentation, the empty one, with score 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dpe.errors import UserError

MINUS_INFINITY = float("-inf")
_COLDEST, _HOTTEST = 1e-100, 1e100  # beyond these a divided score would be infinite, or all would be equal


@dataclass(frozen=True)
class Cuts:
    """Segmentations of a batch of words, with their scores at temperature 1.

    `best` gives one per word: scores [word], boundaries [word, position]. `n_best` and `sample` give several:
    scores [word, rank or draw], boundaries [word, rank or draw, position]. A boundary is True where a piece
    starts or ends, so at 0 and at the word's length too. A segmentation that does not exist (the word has
    fewer than n) has score -inf and no boundary at all.
    """

    scores: Tensor
    boundaries: Tensor


def log_partition(edge_scores: Tensor, lengths: Tensor) -> Tensor:
    """Log of the summed weight of all segmentations (Alg. 1). [word]

    Differentiable once: its gradient is the posterior probability of each edge, computed by `_backward` and
    not by recording the loop.
    """
    result: Tensor = _LogPartition.apply(edge_scores, lengths)  # type: ignore[no-untyped-call]
    return result


@torch.no_grad()
def edge_marginals(edge_scores: Tensor, lengths: Tensor) -> Tensor:
    """Posterior probability of each edge. [word, start, span]"""
    steps, visits = _posterior(edge_scores, lengths)
    return _by_start(steps.mul_(visits[1:, None]), edge_scores.dtype)


@torch.no_grad()
def boundary_probabilities(edge_scores: Tensor, lengths: Tensor) -> Tensor:
    """Posterior probability of a boundary at each position, 1 at both ends. [word, position]"""
    _, visits = _posterior(edge_scores, lengths)
    return visits.T.to(edge_scores.dtype)


@torch.no_grad()
def entropy(edge_scores: Tensor, lengths: Tensor) -> Tensor:
    """Entropy of the posterior over segmentations, in nats. [word]

    By the chain rule it is the entropy of each backward step, weighted by the probability to be there. No
    large numbers are subtracted, as in log_partition - expected score, so it is never negative.
    """
    steps, visits = _posterior(edge_scores, lengths)
    step_entropies: Tensor = torch.special.entr(steps).sum(1)  # [end, word]
    return (step_entropies * visits[1:]).sum(0).to(edge_scores.dtype)


def best(edge_scores: Tensor, lengths: Tensor) -> Cuts:
    """The segmentation with the highest score (Alg. 2, the MAP); ties are broken as in `n_best`."""
    first = n_best(edge_scores, lengths, n=1)
    return Cuts(first.scores[:, 0], first.boundaries[:, 0])


@torch.no_grad()
def n_best(edge_scores: Tensor, lengths: Tensor, *, n: int) -> Cuts:
    """The n segmentations with the highest scores, best first.

    Among equal scores the one with the longer last piece comes first; if these are equal, the one with the
    longer piece before it, and so on.
    """
    by_end = _by_end(edge_scores)
    ends, max_span, words = by_end.shape
    alpha = by_end.new_full((ends + max_span, n, words), MINUS_INFINITY)  # [padding + position, rank, word]
    alpha[max_span - 1, 0] = 0.0
    choices = lengths.new_empty(ends, n, words)
    for end in range(ends):
        candidates = by_end[end, :, None] + alpha[end : end + max_span]  # [back, rank, word]
        alpha[end + max_span], choices[end] = _largest(candidates.flatten(0, 1), n)
    at_end = (lengths + max_span - 1).expand(1, n, -1)
    scores = alpha.gather(0, at_end)[0]  # [rank, word]
    boundaries = _walk(max_span - choices // n, choices % n, lengths) & (scores > MINUS_INFINITY)
    return Cuts(scores.T.to(edge_scores.dtype), boundaries.permute(2, 1, 0))


@torch.no_grad()
def sample(edge_scores: Tensor, lengths: Tensor, *, uniforms: Tensor, temperature: float = 1.0) -> Cuts:
    """Independent exact draws from the posterior: forward filter, backward sample.

    The randomness is the argument `uniforms` [draw, word, start], numbers in [0, 1): at position k the walk
    back uses entry k - 1 to choose the piece that ends there. So a draw depends on its own numbers only,
    whatever the batch and its padding. Temperature divides the edge scores before the forward pass; the
    returned scores are those at temperature 1.
    """
    if not _COLDEST <= temperature <= _HOTTEST:
        raise UserError(f"The temperature must be from {_COLDEST:g} to {_HOTTEST:g}, got {temperature}.")
    by_end = _by_end(edge_scores)
    tempered = by_end / temperature
    alpha = _forward(tempered)
    cumulative = _steps_back(tempered, alpha).cumsum(1)  # [end, back, word]
    # 1 - u lies in (0, 1], so that it neither meets a step of probability 0 nor passes the last one.
    thresholds = (1.0 - uniforms.to(by_end.dtype)).permute(2, 0, 1) * cumulative[:, -1:]  # [end, draw, word]
    back = (cumulative[:, :, None] < thresholds[:, None]).sum(1)  # [end, draw, word]
    draws = torch.arange(len(uniforms), device=lengths.device)[:, None].expand_as(back)
    connected = _at_lengths(alpha, lengths, by_end) > MINUS_INFINITY  # [word]
    boundaries = _walk(by_end.shape[1] - back, draws, lengths) & connected  # [position, draw, word]
    scores = by_end.gather(1, back).masked_fill(~boundaries[1:], 0.0).sum(0)
    scores = scores.masked_fill(~connected, MINUS_INFINITY)
    return Cuts(scores.T.to(edge_scores.dtype), boundaries.permute(2, 1, 0))


class _LogPartition(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edge_scores: Tensor, lengths: Tensor) -> Tensor:
        by_end = _by_end(edge_scores)
        alpha = _forward(by_end)
        ctx.save_for_backward(by_end, alpha, lengths)
        return _at_lengths(alpha, lengths, by_end).to(edge_scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        by_end, alpha, lengths = ctx.saved_tensors
        steps, visits = _backward(by_end, alpha, lengths)
        return _by_start(steps.mul_((visits[1:] * gradient)[:, None]), gradient.dtype), None


def _posterior(edge_scores: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    by_end = _by_end(edge_scores)
    return _backward(by_end, _forward(by_end), lengths)


# The layout. Words come last, so that each step of a loop is a few long vector operations, and the edges that
# end together lie together, the longest first: entry [end, back, word] is the edge of length max_span - back
# that ends at position end + 1. `alpha` and `visits` have max_span - 1 rows of padding before position 0, so
# that rows end .. end + max_span of them are the starts of those edges, in the same order.


def _by_end(edge_scores: Tensor) -> Tensor:
    """Edges grouped by their end. [word, start, span] -> [end, back, word]"""
    words, starts, max_span = edge_scores.shape
    by_end = edge_scores.new_full((starts, max_span, words), MINUS_INFINITY, dtype=torch.float64)
    for span in range(min(starts, max_span)):
        by_end[span:, max_span - 1 - span] = edge_scores[:, : starts - span, span].T
    return by_end


def _by_start(by_end: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of `_by_end`, with 0 for edges beyond the last character. -> [word, start, span]"""
    ends, max_span, words = by_end.shape
    by_start = by_end.new_zeros((words, ends, max_span), dtype=dtype)
    for span in range(min(ends, max_span)):
        by_start[:, : ends - span, span] = by_end[span:, max_span - 1 - span].T
    return by_start


def _forward(by_end: Tensor) -> Tensor:
    """Alg. 1: log of the summed weight of all segmentations of every prefix. [padding + position, word]"""
    ends, max_span, words = by_end.shape
    alpha = by_end.new_full((ends + max_span, words), MINUS_INFINITY)
    alpha[max_span - 1] = 0.0
    for end in range(ends):
        alpha[end + max_span] = torch.logsumexp(by_end[end] + alpha[end : end + max_span], 0)
    return alpha


def _steps_back(by_end: Tensor, alpha: Tensor) -> Tensor:
    """Probability of each last piece, given that a piece ends there. [end, back, word]

    All are 0 at a position that no segmentation of the prefix reaches.
    """
    ends, max_span, _ = by_end.shape
    at_start = alpha.unfold(0, max_span, 1)[:ends].transpose(1, 2)  # [end, back, word]
    at_end = alpha[max_span:]
    reachable_end = at_end.masked_fill(at_end == MINUS_INFINITY, 0.0)  # -inf - -inf would be NaN
    return (by_end + at_start).sub_(reachable_end[:, None]).exp_()


def _backward(by_end: Tensor, alpha: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The backward steps [end, back, word] and the probability to visit each position [position, word]."""
    steps = _steps_back(by_end, alpha)
    ends, max_span, _ = steps.shape
    connected = _at_lengths(alpha, lengths, by_end) > MINUS_INFINITY
    visits = torch.zeros_like(alpha)  # [padding + position, word]
    visits.scatter_(0, (lengths + max_span - 1)[None], connected[None].to(visits.dtype))
    for end in reversed(range(ends)):
        visits[end : end + max_span].addcmul_(steps[end], visits[end + max_span])
    return steps, visits[max_span - 1 :]


def _at_lengths(alpha: Tensor, lengths: Tensor, by_end: Tensor) -> Tensor:
    return alpha.gather(0, (lengths + by_end.shape[1] - 1)[None])[0]  # [word]


def _largest(candidates: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest rows of each column and their indices, the earlier row first among equals. [n, word]

    `topk` guarantees no order among equals.
    """
    if n == 1:
        index = candidates.argmax(0, keepdim=True)  # far cheaper than a sort
    else:
        index = candidates.sort(dim=0, descending=True, stable=True).indices[:n]
    return candidates.gather(0, index), index


def _walk(piece_lengths: Tensor, previous_path: Tensor, lengths: Tensor) -> Tensor:
    """Follow back pointers [end, path, word] from the words' ends to 0. -> boundaries [position, path, word]

    The walk on `path` that is at end + 1 took a piece of that length, and continues at its start on
    `previous_path` (for n-best: the rank of the prefix).
    """
    ends, paths, words = piece_lengths.shape
    piece_lengths, previous_path = piece_lengths.flatten(0, 1), previous_path.flatten(0, 1)
    position = lengths.expand(paths, words)
    path = torch.arange(paths, device=lengths.device)[:, None].expand(paths, words)
    boundaries = torch.zeros(ends + 1, paths, words, dtype=torch.bool, device=lengths.device)
    boundaries.scatter_(0, position[None], True)
    for _ in range(ends):
        here = (position - 1).clamp_min(0) * paths + path
        position = (position - piece_lengths.gather(0, here)).clamp_min(0)  # a walk at 0 stays there
        path = previous_path.gather(0, here)
        boundaries.scatter_(0, position[None], True)
    return boundaries
