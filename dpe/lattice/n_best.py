"""The n best cuts of a sentence from the n best cuts of its words, without enumerating their products.

Given the sentence and its source the cuts of different words are independent, so a sentence's score is the
sum of its words' scores, and a sentence among the n best uses only cuts that are among the n best of their
words.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def sentence_n_best(word_lists: Sequence[Sequence[float]], n: int) -> list[tuple[float, tuple[int, ...]]]:
    """The n best ways to choose one cut per word: (score, rank of the cut chosen in each word), best first.

    Each word's list has the scores of its own n best cuts in order; -inf stands for no cut and is left out.
    Among equal scores the combination with the better prefix comes first, and so on back to the first word.
    A sentence without words has one cut, the empty one.
    """
    prefixes = [0.0]
    pointers: list[list[tuple[int, int]]] = []  # per word and rank: (rank of the prefix, rank in the word)
    for scores in word_lists:
        kept = _largest_sums(prefixes, [score for score in scores if score > float("-inf")], n)
        prefixes = [total for total, _ in kept]
        pointers.append([pair for _, pair in kept])
    return [(total, _ranks(pointers, last)) for last, total in enumerate(prefixes)]


def _largest_sums(first: list[float], second: list[float], n: int) -> list[tuple[float, tuple[int, int]]]:
    """The n largest first[i] + second[j] with their (i, j), the smaller (i, j) first among equals.

    Both lists fall, so each row of the grid of sums does: the heap holds the next sum of every row.
    """
    heap = [(-(score + second[0]), i, 0) for i, score in enumerate(first)] if second else []
    heapq.heapify(heap)
    found: list[tuple[float, tuple[int, int]]] = []
    while heap and len(found) < n:
        total, i, j = heap[0]
        found.append((-total, (i, j)))
        if j + 1 < len(second):
            heapq.heapreplace(heap, (-(first[i] + second[j + 1]), i, j + 1))
        else:
            heapq.heappop(heap)
    return found


def _ranks(pointers: list[list[tuple[int, int]]], last: int) -> tuple[int, ...]:
    """Follow the pointers back from the sentence's rank to the rank chosen in each word."""
    ranks = []
    prefix = last
    for pairs in reversed(pointers):
        prefix, rank = pairs[prefix]
        ranks.append(rank)
    return tuple(reversed(ranks))
