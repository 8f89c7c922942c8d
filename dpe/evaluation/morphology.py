"""Segmentations against gold morphemes: are the cuts inside a word where its morphemes meet?

An evaluated word is a run of letters and marks; punctuation and the word marker beside it are no part of
it, so a word's two ends, and with them the cut after a lone marker, never count. A word that the gold
does not list is skipped. Recall alone rewards cutting everywhere: read it beside precision and pieces per
word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpe.errors import UserError
from dpe.evaluation.segmented_text import Cuts, words_with_cuts
from dpe.text.corpus import read_lines


@dataclass(frozen=True)
class WordTally:
    """How one word type was cut: sums over its tokens, and the number of boundaries in its gold."""

    word: str
    boundaries: int
    tokens: int
    cuts: int
    right_cuts: int
    right_morphs: int  # whose two ends are both the gold's, with nothing between
    exact: int  # tokens whose cuts are exactly the gold's


@dataclass(frozen=True)
class BoundaryScores:
    """Boundary scores of a set of words, pooled: a word with more boundaries weighs more.

    A share of nothing is 1: a system that never cuts makes no wrong cut, and its F1 is 0 all the same.
    """

    words: int
    precision: float
    recall: float
    f1: float
    pieces_per_word: float
    exact_match: float
    morph_f1: float  # of whole morphs instead of boundaries: both ends right, nothing between


@dataclass(frozen=True)
class MorphologyScores:
    """Scores over word types and over tokens, and both for the words that the gold splits at all.

    Each type has weight 1: one that is cut in several ways counts each by its share of the type's tokens.
    A type is a word as written: `Talo` and `talo` are two. `split_*` are None if the gold splits no word.
    """

    types: BoundaryScores
    tokens: BoundaryScores
    split_types: BoundaryScores | None
    split_tokens: BoundaryScores | None


def read_gold(path: Path) -> dict[str, Cuts]:
    """The boundaries of each word in a file of lines `word TAB morphs separated by blanks`, packed or not."""
    gold: dict[str, Cuts] = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, cuts = _gold_entry(line, f"{path}, line {number}")
        if gold.setdefault(word, cuts) != cuts:
            raise UserError(f"{path}, line {number}: {word!r} has a second analysis; keep one per word.")
    return gold


def _gold_entry(line: str, where: str) -> tuple[str, Cuts]:
    word, tab, analysis = line.partition("\t")
    morphs = analysis.split(" ")
    if not (word and tab and all(morphs)) or "\t" in analysis:
        raise UserError(f"{where}: must be a word, a tab, and its morphs separated by single blanks.")
    if "".join(morphs) != word:
        raise UserError(f"{where}: the morphs {analysis!r} do not join to the word {word!r}; correct one.")
    return word, frozenset(accumulate(len(morph) for morph in morphs[:-1]))


def tally(lines: Iterable[Sequence[str]], gold: Mapping[str, Cuts]) -> list[WordTally]:
    """How each word type of the segmented lines was cut, for the words of which the gold knows the cuts."""
    ways: dict[str, Counter[Cuts]] = {}
    for pieces in lines:
        for word, cuts in words_with_cuts(pieces):
            ways.setdefault(word, Counter())[cuts] += 1
    tallies = ((word, gold_cuts(word, gold), counts) for word, counts in ways.items())
    return [_tally_word(word, right, counts) for word, right, counts in tallies if right is not None]


def gold_cuts(word: str, gold: Mapping[str, Cuts]) -> Cuts | None:
    """The word's boundaries, found as written or in lower case."""
    lower = word.lower()
    if word not in gold and len(lower) != len(word):  # offsets would not carry over (İ becomes two)
        return None
    return gold.get(word, gold.get(lower))


def _tally_word(word: str, right: Cuts, counts: Counter[Cuts]) -> WordTally:
    return WordTally(
        word=word,
        boundaries=len(right),
        tokens=counts.total(),
        cuts=sum(len(cuts) * count for cuts, count in counts.items()),
        right_cuts=sum(len(cuts & right) * count for cuts, count in counts.items()),
        right_morphs=sum(_right_morphs(cuts, right, len(word)) * count for cuts, count in counts.items()),
        exact=counts[right],
    )


def _right_morphs(cuts: Cuts, right: Cuts, length: int) -> int:
    return len(set(pairwise((0, *sorted(cuts), length))) & set(pairwise((0, *sorted(right), length))))


def count_matrix(tallies: Sequence[WordTally], *, by_type: bool) -> NDArray[np.float64]:
    """What the scores pool, one row per word, which weighs 1 (`by_type`) or its number of tokens.

    [word, (tokens, boundaries, cuts, right cuts, right morphs, exact)]
    """
    rows = [
        (w.tokens, w.boundaries * w.tokens, w.cuts, w.right_cuts, w.right_morphs, w.exact) for w in tallies
    ]
    matrix = np.array(rows, dtype=np.float64).reshape(-1, 6)
    return matrix / matrix[:, :1] if by_type else matrix


def pooled_scores(sums: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The fields of `BoundaryScores` from rows of a `count_matrix` added up; any leading axes."""
    words, boundaries, cuts, right, right_morphs, exact = np.moveaxis(sums, -1, 0)
    return {
        "words": words,
        "precision": _share(right, cuts),
        "recall": _share(right, boundaries),
        "f1": _share(2 * right, cuts + boundaries),
        "pieces_per_word": 1 + cuts / words,
        "exact_match": exact / words,
        "morph_f1": 2 * right_morphs / (cuts + boundaries + 2 * words),
    }


def boundary_scores(tallies: Sequence[WordTally], *, by_type: bool) -> BoundaryScores:
    """Scores of at least one word, each weighing 1 (`by_type`) or its number of tokens."""
    scores = pooled_scores(count_matrix(tallies, by_type=by_type).sum(axis=0))
    return BoundaryScores(
        words=round(float(scores["words"])),
        precision=float(scores["precision"]),
        recall=float(scores["recall"]),
        f1=float(scores["f1"]),
        pieces_per_word=float(scores["pieces_per_word"]),
        exact_match=float(scores["exact_match"]),
        morph_f1=float(scores["morph_f1"]),
    )


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.ones_like(whole), where=whole > 0)


def evaluate(lines: Iterable[Sequence[str]], gold: Mapping[str, Cuts]) -> MorphologyScores:
    """Score segmented lines (pieces with U+2581 word markers) against the gold of `read_gold`."""
    tallies = tally(lines, gold)
    if not tallies:
        raise UserError(
            "No word of the segmented text is in the gold; check that both are the same language."
        )
    split = [word for word in tallies if word.boundaries]
    return MorphologyScores(
        types=boundary_scores(tallies, by_type=True),
        tokens=boundary_scores(tallies, by_type=False),
        split_types=boundary_scores(split, by_type=True) if split else None,
        split_tokens=boundary_scores(split, by_type=False) if split else None,
    )
