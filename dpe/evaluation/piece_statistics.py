"""What a segmentation looks like in numbers: fertility, vocabulary use, lengths, Renyi efficiency."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dpe.errors import UserError
from dpe.text.words import MARKER

RENYI_ALPHA = 2.5


@dataclass(frozen=True)
class LineLengths:
    """Pieces per line."""

    mean: float
    median: float
    percentile_95: float
    longest: int


@dataclass(frozen=True)
class Statistics:
    """Numbers of one segmented text.

    `words` are separated by blanks, punctuation included, and `fertility` is pieces per such word. A
    piece at the beginning of a word and the same letters inside one are different pieces. `covering` is
    how many of the most frequent pieces make up 95 % of the text. `piece_lengths` counts pieces of the
    text by their characters without the marker, so that a lone marker has length 0; `line_lengths`
    counts lines by their pieces.
    """

    lines: int
    words: int
    pieces: int
    fertility: float
    distinct: int
    used_once: int
    covering: int
    renyi_efficiency: float
    characters_per_piece: float
    pieces_per_line: LineLengths
    piece_lengths: dict[int, int]
    line_lengths: dict[int, int]


def collect_statistics(lines: Iterable[Sequence[str]], *, vocabulary_size: int | None = None) -> Statistics:
    """Read pieces, line by line, and count; see `renyi_efficiency` for `vocabulary_size`."""
    counts: Counter[str] = Counter()
    line_lengths: Counter[int] = Counter()
    for pieces in lines:
        counts.update(pieces)
        line_lengths[len(pieces)] += 1
    words = sum(count for piece, count in counts.items() if piece.startswith(MARKER))
    piece_lengths: Counter[int] = Counter()
    for piece, count in counts.items():
        piece_lengths[len(piece.replace(MARKER, ""))] += count
    total = counts.total()
    return Statistics(
        lines=line_lengths.total(),
        words=words,
        pieces=total,
        fertility=total / words if words else 0.0,
        distinct=len(counts),
        used_once=sum(count == 1 for count in counts.values()),
        covering=_covering(counts, 0.95),
        renyi_efficiency=renyi_efficiency(counts.values(), vocabulary_size=vocabulary_size),
        characters_per_piece=_mean(piece_lengths),
        pieces_per_line=_summary(line_lengths),
        piece_lengths=dict(sorted(piece_lengths.items())),
        line_lengths=dict(sorted(line_lengths.items())),
    )


def renyi_efficiency(
    counts: Iterable[int], *, alpha: float = RENYI_ALPHA, vocabulary_size: int | None = None
) -> float:
    """Renyi entropy of the piece frequencies divided by its maximum (Zouhar et al., 2023).

    H_alpha = log(sum of p ** alpha) / (1 - alpha), over log |V|. |V| is the number of pieces that occur,
    or `vocabulary_size`; only with the same |V| are two texts comparable. 1 is a uniform distribution.
    """
    occurring = np.array([count for count in counts if count], dtype=np.float64)
    size = vocabulary_size or len(occurring)
    if size < len(occurring):
        raise UserError(f"The vocabulary size is {size}, and {len(occurring)} different pieces occur.")
    if size < 2 or not len(occurring):
        return 1.0  # one piece alone is uniform
    shares: NDArray[np.float64] = occurring / occurring.sum()
    entropy = math.log(float((shares**alpha).sum())) / (1.0 - alpha)
    return entropy / math.log(size)


def _covering(counts: Counter[str], share: float) -> int:
    """How many of the most frequent pieces it takes to make up this share of the text."""
    wanted = share * counts.total()
    reached = accumulate(count for _, count in counts.most_common())
    return next((number for number, sum_ in enumerate(reached, start=1) if sum_ >= wanted), 0)


def _mean(histogram: Counter[int]) -> float:
    return sum(value * count for value, count in histogram.items()) / max(histogram.total(), 1)


def _summary(histogram: Counter[int]) -> LineLengths:
    values = np.repeat(
        *(np.array(part, dtype=np.int64) for part in (list(histogram), list(histogram.values())))
    )
    if not len(values):
        return LineLengths(0.0, 0.0, 0.0, 0)
    return LineLengths(
        mean=float(values.mean()),
        median=float(np.median(values)),
        percentile_95=float(np.percentile(values, 95)),
        longest=int(values.max()),
    )
