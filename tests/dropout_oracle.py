"""BPE dropout and unigram cuts straight from their definitions, slowly; shares nothing with the fast code."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from scipy.stats import chisquare

Symbols = tuple[str, ...]


def possible_merges(symbols: Sequence[str], ranks: Mapping[str, int]) -> list[tuple[int, int]]:
    """(rank, place) of every adjacent pair that is a piece with a rank."""
    places = range(len(symbols) - 1)
    return [(ranks[symbols[i] + symbols[i + 1]], i) for i in places if symbols[i] + symbols[i + 1] in ranks]


def apply_merge(symbols: Symbols, place: int) -> Symbols:
    return (*symbols[:place], symbols[place] + symbols[place + 1], *symbols[place + 2 :])


def dropout_distribution(symbols: Symbols, ranks: Mapping[str, int], p: float) -> dict[Symbols, float]:
    """Probability of every final cut: each step sums over all subsets of merges that may be dropped."""
    merges = possible_merges(symbols, ranks)
    total: Counter[Symbols] = Counter()
    after = {place: dropout_distribution(apply_merge(symbols, place), ranks, p) for _, place in merges}
    for kept in itertools.product((False, True), repeat=len(merges)):
        weight = math.prod(1 - p if keep else p for keep in kept)
        remaining = [merge for merge, keep in zip(merges, kept, strict=True) if keep]
        outcomes = after[min(remaining)[1]] if remaining else {symbols: 1.0}
        for cut, probability in outcomes.items():
            total[cut] += weight * probability
    return dict(total)


def dropout_cut(symbols: Symbols, ranks: Mapping[str, int], p: float, generator: random.Random) -> Symbols:
    """One draw, step by step."""
    while True:
        remaining = [merge for merge in possible_merges(symbols, ranks) if generator.random() >= p]
        if not remaining:
            return symbols
        symbols = apply_merge(symbols, min(remaining)[1])


def all_cuts(text: str, pieces: Mapping[str, float]) -> Iterator[Symbols]:
    """Every cut of a text into pieces; a character that is no piece is a piece of its own."""
    if not text:
        yield ()
    for end in range(1, len(text) + 1):
        if text[:end] in pieces or end == 1:
            for rest in all_cuts(text[end:], pieces):
                yield (text[:end], *rest)


def unigram_distribution(
    cuts: Sequence[Symbols], scores: Mapping[str, float], alpha: float
) -> dict[Symbols, float]:
    """Probability of every cut among `cuts`, proportional to exp(alpha * score)."""
    unknown = min(scores.values()) - 10
    weights = [math.exp(alpha * sum(scores.get(piece, unknown) for piece in cut)) for cut in cuts]
    return {cut: weight / sum(weights) for cut, weight in zip(cuts, weights, strict=True)}


def chi_square_p_value(observed: Counter[Symbols], expected: Mapping[Symbols, float]) -> float:
    """P-value of the observed cuts; rare ones are one class. Impossible ones are an error."""
    assert set(observed) <= set(expected), set(observed) - set(expected)
    total = sum(observed.values())
    common = [cut for cut in expected if expected[cut] * total >= 5]
    seen = [observed[cut] for cut in common]
    wanted = [expected[cut] * total for cut in common]
    if len(common) < len(expected):
        seen.append(total - sum(seen))
        wanted.append(total - sum(wanted))
    assert len(seen) > 1, "nothing to compare"
    return float(chisquare(seen, wanted, sum_check=False).pvalue)
