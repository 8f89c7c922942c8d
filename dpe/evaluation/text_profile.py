"""One segmented text: fertility, vocabulary use, lengths, Renyi efficiency, words segmented in several ways.

For the last, a word is a token between spaces, its punctuation included: that a count-based segmenter treats
`outfit` and `(outfit` differently says nothing about context. Only cuts inside runs of letters count.

A source word goes with a segmentation when it is in a larger share of its source lines than of those of the
word's other segmentations, and the log-likelihood ratio of the two shares (Dunning, 1993) is above 10.83,
which chance alone exceeds once in a thousand; the largest are shown. This says nothing about causes: so many
source words are tried that some pass by chance, and one may go with another that matters.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpe.choices import SegmentedFormat
from dpe.errors import UserError
from dpe.evaluation.segmented_text import Cuts, CutWord, read_cut_tokens, read_pieces
from dpe.evaluation.tables import Table, percent
from dpe.text.corpus import read_pairs
from dpe.text.words import MARKER

RENYI_ALPHA = 2.5
TOP_WORDS = 20
SHOWN_WAYS = 4  # segmentations of a word in the table; the JSON has all
CLUES = 3  # source words shown for a segmentation
SMALLEST_RATIO = 10.83  # p < 0.001, one degree of freedom
EXAMPLES = 2  # source lines shown for a segmentation
LARGEST_EXAMPLE = 120  # characters


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

    `words` are separated by spaces, punctuation included, and `fertility` is pieces per such word. A
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


@dataclass(frozen=True)
class Clue:
    """A source word, and its share of the source lines: of this segmentation, of the word's others."""

    word: str
    share: float
    share_elsewhere: float


@dataclass(frozen=True)
class Way:
    """One segmentation of a word, its count, and what its source lines have in common."""

    cut: str
    count: int
    clues: list[Clue]
    examples: list[str]


@dataclass(frozen=True)
class VaryingWord:
    """A word with several segmentations, the most frequent first."""

    word: str
    ways: list[Way]


@dataclass(frozen=True)
class TextProfile:
    """One segmented text: its numbers, and the words that it segments in several ways."""

    name: str
    statistics: Statistics
    varying_words: int
    varying_tokens: int
    varying: list[VaryingWord]


def profile_text(
    path: Path,
    name: str,
    *,
    source: Path | None = None,
    format: SegmentedFormat | None = None,
    vocabulary_size: int | None = None,
) -> TextProfile:
    """Profile a segmented file. `source` has the source line of each line."""
    ways = count_ways(read_cut_tokens(path, format))
    pairs = read_pairs(source, path) if source else ()  # which refuses unequal lengths
    rows = zip(pairs, read_cut_tokens(path, format), strict=False)
    lines = ((words, pair.source or "") for pair, words in rows)
    return TextProfile(
        name=name,
        statistics=collect_statistics(read_pieces(path, format), vocabulary_size=vocabulary_size),
        varying_words=len(ways),
        varying_tokens=sum(cuts.total() for cuts in ways.values()),
        varying=describe_varying_words(most_varying(ways), ways, lines),
    )


def collect_statistics(lines: Iterable[Sequence[str]], *, vocabulary_size: int | None = None) -> Statistics:
    """Count the pieces of each line; see `renyi_efficiency` for `vocabulary_size`."""
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
    reached = accumulate(count for _, count in counts.most_common())
    return Statistics(
        lines=line_lengths.total(),
        words=words,
        pieces=total,
        fertility=total / words if words else 0.0,
        distinct=len(counts),
        used_once=sum(count == 1 for count in counts.values()),
        covering=next((number for number, sum_ in enumerate(reached, start=1) if sum_ >= 0.95 * total), 0),
        renyi_efficiency=renyi_efficiency(counts.values(), vocabulary_size=vocabulary_size),
        characters_per_piece=sum(length * count for length, count in piece_lengths.items()) / max(total, 1),
        pieces_per_line=_summary(line_lengths),
        piece_lengths=dict(sorted(piece_lengths.items())),
        line_lengths=dict(sorted(line_lengths.items())),
    )


def _summary(histogram: Mapping[int, int]) -> LineLengths:
    if not histogram:
        return LineLengths(0.0, 0.0, 0.0, 0)
    values = np.repeat(list(histogram), list(histogram.values()))
    return LineLengths(
        mean=float(values.mean()),
        median=float(np.median(values)),
        percentile_95=float(np.percentile(values, 95)),
        longest=int(values.max()),
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
        raise UserError(f"The vocabulary size is {size}, but {len(occurring)} different pieces occur.")
    if size < 2 or not len(occurring):
        return 1.0  # one piece alone is uniform
    shares: NDArray[np.float64] = occurring / occurring.sum()
    entropy = math.log(float((shares**alpha).sum())) / (1.0 - alpha)
    return entropy / math.log(size)


def count_ways(lines: Iterable[list[CutWord]]) -> dict[str, Counter[Cuts]]:
    """The count of each segmentation of each word, for words with several segmentations."""
    ways: defaultdict[str, Counter[Cuts]] = defaultdict(Counter)
    for line in lines:
        for word, cuts in line:
            ways[word][cuts] += 1
    return {word: cuts for word, cuts in ways.items() if len(cuts) > 1}


def by_frequency(ways: Mapping[Cuts, int]) -> list[Cuts]:
    """The most frequent first; of equals the one with fewer pieces, then the one with the earlier cut."""
    return sorted(ways, key=lambda cuts: (-ways[cuts], len(cuts), sorted(cuts)))


def most_varying(ways: Mapping[str, Counter[Cuts]]) -> list[str]:
    """The words whose less frequent segmentations occur most often."""
    minority = {word: cuts.total() - max(cuts.values()) for word, cuts in ways.items()}
    return sorted(minority, key=lambda word: (-minority[word], word))[:TOP_WORDS]


def describe_varying_words(
    words: Sequence[str],
    all_ways: Mapping[str, Counter[Cuts]],
    lines: Iterable[tuple[list[CutWord], str]] = (),
) -> list[VaryingWord]:
    """The segmentations of these words. `lines` are the words of each line and its source, if known."""
    sources: dict[str, defaultdict[Cuts, list[str]]] = {word: defaultdict(list) for word in words}
    for line, source in lines:
        for word, cuts in dict.fromkeys(line):  # lines are independent, a word's tokens in one are not
            if word in sources:
                sources[word][cuts].append(source)
    return [VaryingWord(word, _ways(word, all_ways[word], sources[word])) for word in words]


def _ways(word: str, counts: Counter[Cuts], sources: Mapping[Cuts, list[str]]) -> list[Way]:
    """`sources` are the source lines of each segmentation."""
    having = {cuts: Counter(chain.from_iterable(map(_source_words, sources[cuts]))) for cuts in sources}
    everywhere: Counter[str] = Counter()
    for one in having.values():
        everywhere.update(one)
    all_lines = sum(map(len, sources.values()))
    found = []
    for cuts in by_frequency(counts):
        lines = sources.get(cuts, [])
        examples = [
            line if len(line) <= LARGEST_EXAMPLE else line[: LARGEST_EXAMPLE - 1] + "…"
            for line in dict.fromkeys(lines)
        ]
        clues = _clues(having.get(cuts, Counter()), len(lines), everywhere, all_lines)
        found.append(Way(str(CutWord(word, cuts)), counts[cuts], clues, examples[:EXAMPLES]))
    return found


def _clues(having: Counter[str], lines: int, everywhere: Counter[str], all_lines: int) -> list[Clue]:
    """The source words that are more common in these lines than in the others, most significant first.

    `having` and `everywhere` count the lines that have each source word: of these lines, and of all.
    """
    others = all_lines - lines
    telling = []
    for word, count in having.items():
        other_count = everywhere[word] - count
        clue = Clue(word, count / lines, other_count / max(others, 1))
        ratio = log_likelihood_ratio(count, lines, other_count, others)
        if clue.share > clue.share_elsewhere and ratio > SMALLEST_RATIO:
            telling.append((-ratio, word, clue))
    return [clue for _, _, clue in sorted(telling)[:CLUES]]


def log_likelihood_ratio(count: int, lines: int, other_count: int, other_lines: int) -> float:
    """Twice the gain in log-likelihood of two shares, count / lines and the other, over one common share."""

    def log_likelihood(hits: int, trials: int) -> float:
        return sum(part * math.log(part / trials) for part in (hits, trials - hits) if part)

    both = log_likelihood(count + other_count, lines + other_lines)
    return 2 * (log_likelihood(count, lines) + log_likelihood(other_count, other_lines) - both)


def _source_words(line: str) -> frozenset[str]:
    """Words between spaces without the punctuation around them."""
    return frozenset(word for part in line.split() if (word := part.strip(".,;:!?\"'()[]„“”«»…-")))


def varying_table(profile: TextProfile) -> Table:
    """The words that a text segments in several ways, with source words and lines if those are known."""
    columns = ["word", "cut", "count", "source words that go with it", "source line"]
    rows = []
    for word in profile.varying:
        for number, way in enumerate(word.ways[:SHOWN_WAYS]):
            clues = ", ".join(
                f"{clue.word} ({percent(clue.share)}, else {percent(clue.share_elsewhere)})"
                for clue in way.clues
            )
            first, *more = way.examples or [""]
            rows.append([word.word if number == 0 else "", way.cut, f"{way.count:,}", clues, first])
            rows += [["", "", "", "", example] for example in more]
    if not any(row[-1] for row in rows):  # no source was given
        columns, rows = columns[:3], [row[:3] for row in rows]
    title = f"Words that {profile.name} cuts in several ways"
    return Table(title, columns, rows, frozenset(columns) - {"count"})
