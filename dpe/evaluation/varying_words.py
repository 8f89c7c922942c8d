"""Words that one segmenter cuts in several ways, and the source words that go with each way.

A word is here what stands between blanks, its punctuation included: that a count-based segmenter cuts
`outfit` and `(outfit` differently says nothing about context. Only cuts inside runs of letters count.

A source word goes with a cut when it is in a larger share of the source lines of that cut than of the word's
other cuts, and the log-likelihood ratio of the two shares (Dunning, 1993) is above 10.83, which chance alone
passes once in a thousand; the largest are shown. Nothing is said about causes: so many source words are tried
that some pass by chance, and one may go with another that matters.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from dpe.evaluation.segmented_text import Cuts, CutWord

TOP_WORDS = 20
CLUES = 3  # source words shown for a cut
SMALLEST_RATIO = 10.83  # p < 0.001, one degree of freedom
EXAMPLES = 2  # source lines shown for a cut
LARGEST_EXAMPLE = 120  # characters


@dataclass(frozen=True)
class Clue:
    """A source word, and in which share of the source lines it is: of this cut, of the other cuts."""

    word: str
    share: float
    share_elsewhere: float


@dataclass(frozen=True)
class Way:
    """One of the cuts of a word, how often it is made, and what its source lines have in common."""

    cut: str
    count: int
    clues: list[Clue]
    examples: list[str]


@dataclass(frozen=True)
class VaryingWord:
    """A word that is cut in several ways, the most frequent first."""

    word: str
    ways: list[Way]


def count_ways(lines: Iterable[list[CutWord]]) -> dict[str, Counter[Cuts]]:
    """How often each word is cut how, for the words that are cut in several ways."""
    ways: defaultdict[str, Counter[Cuts]] = defaultdict(Counter)
    for line in lines:
        for word, cuts in line:
            ways[word][cuts] += 1
    return {word: cuts for word, cuts in ways.items() if len(cuts) > 1}


def most_varying(ways: Mapping[str, Counter[Cuts]]) -> list[str]:
    """The words whose less frequent cuts are made most often."""
    minority = {word: cuts.total() - max(cuts.values()) for word, cuts in ways.items()}
    return sorted(minority, key=lambda word: (-minority[word], word))[:TOP_WORDS]


def describe_varying_words(
    words: Iterable[str],
    all_ways: Mapping[str, Counter[Cuts]],
    lines: Iterable[tuple[list[CutWord], str | None]] = (),
) -> list[VaryingWord]:
    """The ways of these words. `lines` are the cut words of a line and its source, None if there is none."""
    wanted = list(words)
    sources = _source_lines(set(wanted), lines)
    return [VaryingWord(word, _ways(word, all_ways[word], sources[word])) for word in wanted]


def _source_lines(
    wanted: set[str], lines: Iterable[tuple[list[CutWord], str | None]]
) -> defaultdict[str, defaultdict[Cuts, list[str]]]:
    """Of each word and each of its cuts: the source lines with which it was made, each once."""
    found: defaultdict[str, defaultdict[Cuts, list[str]]] = defaultdict(lambda: defaultdict(list))
    for words, source in lines:
        if source is not None:
            for word, cuts in dict.fromkeys(words):  # lines are independent, a word's tokens in one are not
                if word in wanted:
                    found[word][cuts].append(source)
    return found


class _WordCounts(NamedTuple):
    """In how many of so many source lines each source word is."""

    lines: int
    having: Counter[str]

    @classmethod
    def of(cls, lines: Sequence[str]) -> _WordCounts:
        return cls(len(lines), Counter(chain.from_iterable(map(_source_words, lines))))

    @classmethod
    def total(cls, parts: Iterable[_WordCounts]) -> _WordCounts:
        lines, having = 0, Counter[str]()
        for part in parts:
            lines += part.lines
            having.update(part.having)
        return cls(lines, having)


def _ways(word: str, cuts: Counter[Cuts], sources: Mapping[Cuts, list[str]]) -> list[Way]:
    counts = {cut: _WordCounts.of(lines) for cut, lines in sources.items()}
    everywhere = _WordCounts.total(counts.values())
    order = sorted(cuts, key=lambda cut: (-cuts[cut], len(cut), sorted(cut)))
    return [
        Way(
            cut=str(CutWord(word, cut)),
            count=cuts[cut],
            clues=_clues(counts[cut], everywhere) if cut in counts else [],
            examples=[_shortened(line) for line in dict.fromkeys(sources.get(cut, []))][:EXAMPLES],
        )
        for cut in order
    ]


def _clues(here: _WordCounts, everywhere: _WordCounts) -> list[Clue]:
    """The source words that are more common here than elsewhere, the most telling first."""
    other_lines = everywhere.lines - here.lines
    telling = []
    for word, count in here.having.items():
        other_count = everywhere.having[word] - count
        clue = Clue(word, count / here.lines, other_count / max(other_lines, 1))
        ratio = log_likelihood_ratio(count, here.lines, other_count, other_lines)
        if clue.share > clue.share_elsewhere and ratio > SMALLEST_RATIO:
            telling.append((-ratio, word, clue))
    return [clue for _, _, clue in sorted(telling)[:CLUES]]


def log_likelihood_ratio(count: int, lines: int, other_count: int, other_lines: int) -> float:
    """Twice the gain in log-likelihood of two shares, count / lines and the other, over one common share."""
    both = _log_likelihood(count + other_count, lines + other_lines)
    return 2 * (_log_likelihood(count, lines) + _log_likelihood(other_count, other_lines) - both)


def _log_likelihood(count: int, lines: int) -> float:
    """Of so many hits in so many trials, under their own share."""
    return sum(part * math.log(part / lines) for part in (count, lines - count) if part)


def _source_words(line: str) -> frozenset[str]:
    """Words between blanks without the punctuation around them."""
    return frozenset(word for part in line.split() if (word := part.strip(".,;:!?\"'()[]„“”«»…-")))


def _shortened(line: str) -> str:
    return line if len(line) <= LARGEST_EXAMPLE else line[: LARGEST_EXAMPLE - 1] + "…"
