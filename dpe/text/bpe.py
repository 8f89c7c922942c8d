"""BPE dropout (Provilkov et al. 2020): merging the symbols of a word while some merges are dropped.

The definition: every step drops each possible merge with probability p, independently, and applies the best
that remains (lowest rank, then leftmost); the word is finished when a step has none.

What makes it fast: of a step's merges, taken from the best on, only those up to the first survivor matter.
So the draws of a whole line are one sequence of survivals and drops, and it is enough to draw how many merges
survive before the next drop. A word that is finished before that drop needs no work: its segmentation is
that of plain BPE, which is remembered.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from dpe.errors import UserError
from dpe.text.draws import Draw
from dpe.text.words import WordCache

if TYPE_CHECKING:
    from dpe.text.vocabulary import Vocabulary

DROPOUT = 0.05  # the paper's
Candidate = tuple[int, int, int]  # rank of a merge, its first symbol, the symbol after its second


class BpeDropout:
    """BPE with dropout, a function of the line and the draw; without dropout it is SentencePiece's BPE."""

    def __init__(self, vocabulary: Vocabulary, *, dropout: float = DROPOUT) -> None:
        if not 0 <= dropout <= 1:
            raise UserError(f"Dropout must be a probability from 0 to 1, got {dropout}.")
        self._vocabulary, self._dropout = vocabulary, dropout
        self._ranks = vocabulary.ranks
        self._words = WordCache(self._analyse)

    def cut(self, line: str, draw: Draw = Draw()) -> list[str]:
        marked = self._vocabulary.normalize(line)
        survivals = draw_survivals(self._dropout, draw.generator())
        pieces: list[str] = []
        until_drop = survivals()  # merges that survive before the next drop
        for text in self._vocabulary.words(marked):
            word = self._words[text]
            if word.merges <= until_drop:
                until_drop -= word.merges
                pieces += word.plain
            else:
                merged, until_drop = merge(word, self._ranks, until_drop=until_drop, survivals=survivals)
                pieces += merged
        return self._vocabulary.write_unknown(marked, pieces)

    def _analyse(self, text: str) -> MergingWord:
        carriers = self._vocabulary.carriers
        symbols: list[str] = []
        solid: list[int] = []
        for part, protected in self._vocabulary.word_parts(text):
            solid += [len(symbols)] * protected
            symbols += [part] if protected else start_symbols(part, carriers)
        return MergingWord.start(symbols, frozenset(solid), self._ranks)


def start_symbols(text: str, carriers: Collection[str]) -> Sequence[str]:
    """What merging begins with: the characters, a last one with its marker if together they are a carrier."""
    return [*text[:-2], text[-2:]] if text[-2:] in carriers else text


class MergingWord(NamedTuple):
    """A word as BPE starts with it, and its segmentation when nothing is dropped."""

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
    """A function that draws how many merges survive before the next drop: a geometric distribution."""
    if dropout == 0:
        return lambda: math.inf
    if dropout == 1:
        return lambda: 0.0
    uniform, log, log_survival = generator.random, math.log, math.log1p(-dropout)
    return lambda: log(1.0 - uniform()) // log_survival


def merge(
    word: MergingWord, ranks: Mapping[str, int], *, until_drop: float, survivals: Callable[[], float]
) -> tuple[list[str], float]:
    """Merge a word until no merge is possible; returns its pieces and the merges left until the next drop.

    The symbols are a linked list. A merge leaves entries in the heap whose pair no longer exists; they are
    recognised by their end and discarded without a draw, because they are not possible merges.
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
        for candidate in dropped:  # the next step draws again
            heappush(heap, candidate)
        dropped.clear()
    return [text for text in texts if text], until_drop
