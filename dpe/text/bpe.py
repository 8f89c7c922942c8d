"""BPE's merges of one word, with dropout: which pair of symbols is merged next, until none is.

The definition: every step drops each possible merge with probability p, afresh, and applies the best that
remains (lowest rank, then leftmost); the word is finished when a step has none.

What makes it fast: going through a step's merges from the best on, only those up to the first survivor
matter. So the draws of a whole line are one sequence of survivals and drops, and it is enough to draw how
many merges survive before the next one that is dropped. A word that is finished before that needs no
work: its cut is the plain one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import add
from typing import NamedTuple

Candidate = tuple[int, int, int]  # rank of a merge, its first symbol, the symbol behind its second


class MergingWord(NamedTuple):
    """A word as BPE starts, and as it ends when nothing is dropped."""

    symbols: Sequence[str]
    solid: frozenset[int]  # symbols that never merge: the protected strings
    candidates: list[Candidate]  # the first possible merges, as a heap
    plain: Sequence[str] = ()
    merges: int = 0

    @classmethod
    def start(cls, symbols: Sequence[str], solid: frozenset[int], ranks: Mapping[str, int]) -> MergingWord:
        pairs = enumerate(map(ranks.get, map(add, symbols, symbols[1:])))
        heap = [(rank, i, i + 2) for i, rank in pairs if rank is not None]
        if solid:
            heap = [entry for entry in heap if entry[1] not in solid and entry[1] + 1 not in solid]
        heapify(heap)
        plain, _ = merge(cls(symbols, solid, heap), ranks, until_drop=math.inf, survivals=lambda: math.inf)
        return cls(symbols, solid, heap, plain, len(symbols) - len(plain))


def draw_survivals(dropout: float, generator: random.Random) -> Callable[[], float]:
    """Draws how many merges survive before the next one that is dropped: a geometric number."""
    if dropout == 0:
        return lambda: math.inf
    if dropout == 1:
        return lambda: 0.0
    uniform, log, log_survival = generator.random, math.log, math.log1p(-dropout)
    return lambda: log(1.0 - uniform()) // log_survival


def merge(
    word: MergingWord, ranks: Mapping[str, int], *, until_drop: float, survivals: Callable[[], float]
) -> tuple[list[str], float]:
    """Merge a word to its end; gives the pieces, and how many merges are left until the next drop.

    The symbols are a linked list. A merge leaves entries of the heap behind whose pair is gone; they are
    recognised by their end and thrown away without a draw, because they are no possible merges.
    """
    texts, solid, rank_of = list(word.symbols), word.solid, ranks.get
    count = len(texts)
    after, before = list(range(1, count + 2)), list(range(-1, count))
    heap = list(word.candidates)
    dropped: list[Candidate] = []
    while heap:
        candidate = heappop(heap)
        _, first, end = candidate
        second = after[first]
        if not texts[first] or after[second] != end:
            continue
        if until_drop < 1:
            dropped.append(candidate)
            until_drop = survivals()
            continue
        until_drop -= 1
        texts[first] += texts[second]
        texts[second] = ""
        after[first], before[end] = end, first
        for start in (before[first], first):
            neighbour = after[start] if start >= 0 else count
            if neighbour == count or start in solid or neighbour in solid:
                continue
            if (rank := rank_of(texts[start] + texts[neighbour])) is not None:
                heappush(heap, (rank, start, after[neighbour]))
        for candidate in dropped:  # the next step draws afresh
            heappush(heap, candidate)
        dropped.clear()
    return [text for text in texts if text], until_drop
