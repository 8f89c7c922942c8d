"""The n best segmentations of a sentence from those of its words, without enumerating their products.

Given the sentence and its source the segmentations of different words are independent, so a sentence's score
is the sum of its words' scores, and the n best of the sentence use only the n best of each word.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def sentence_n_best(word_lists: Sequence[Sequence[float]], n: int) -> list[tuple[float, tuple[int, ...]]]:
    """The n best ways to choose one segmentation per word: (score, chosen rank in each word), best first.

    Each word's list has the scores of its own n best in order; -inf stands for none and is left out. Among
    equal scores the combination with the better prefix comes first, and so on back to the first word. A
    sentence without words has one segmentation, the empty one.
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

    Both lists are in descending order, so each row of the grid of sums is: the heap has the next of each row.
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
