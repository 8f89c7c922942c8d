"""Where two segmentations of one text disagree: by word, by frequency band (the paper's table and figure).

Words and cuts are those of `segmented_text`. An occurrence of a word (a *token*) is cut differently when
the two sides' cuts are not the same positions. A word *type* is cut differently when its most frequent
cut on one side is not that of the other; among equally frequent cuts the one with fewer pieces counts,
then the one that cuts earlier, on both sides alike, so that a tie is no disagreement.

A word's frequency is its count in the training text where that is given, else in the compared text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpe.evaluation.segmented_text import Cuts, CutWord, LinePair

BANDS: tuple[tuple[int, int | None], ...] = (  # smallest and largest frequency
    (0, 0), (1, 1), (2, 2), (3, 5), (6, 10), (11, 20), (21, 100), (101, None)
)  # fmt: skip
TOP_WORDS = 50


@dataclass(frozen=True)
class Disagreement:
    """A word whose most frequent cuts differ: `carts: car+ts / cart+s`."""

    word: str
    frequency: int
    tokens: int
    different_tokens: int
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.word}: {self.a} / {self.b}"


@dataclass(frozen=True)
class Band:
    """Words of similar frequency, and how many of them are cut differently."""

    label: str
    types: int
    different_types: int
    tokens: int
    different_tokens: int

    @property
    def type_share(self) -> float:
        return self.different_types / self.types

    @property
    def token_share(self) -> float:
        return self.different_tokens / self.tokens


@dataclass(frozen=True)
class Comparison:
    """Two segmentations of one text side by side; `bands` has those that contain a word."""

    types: int
    different_types: int
    tokens: int
    different_tokens: int
    pieces_per_word_a: float
    pieces_per_word_b: float
    bands: list[Band]
    top: list[Disagreement]


class PairCounts:
    """How often each word was cut how on either side; all that a comparison needs of a text."""

    def __init__(self) -> None:
        self.a: defaultdict[str, Counter[Cuts]] = defaultdict(Counter)
        self.b: defaultdict[str, Counter[Cuts]] = defaultdict(Counter)
        self.different: Counter[str] = Counter()

    @classmethod
    def of(cls, lines: Iterable[LinePair]) -> PairCounts:
        counts = cls()
        for line in lines:
            for left, right in zip(line.a, line.b, strict=True):
                counts.a[left.word][left.cuts] += 1
                counts.b[right.word][right.cuts] += 1
                if left.cuts != right.cuts:
                    counts.different[left.word] += 1
        return counts

    def frequencies(self) -> Counter[str]:
        """How often each word occurs in the compared text."""
        return Counter({word: cuts.total() for word, cuts in self.a.items()})


def compare(
    counts: PairCounts, *, train_counts: Mapping[str, int] | None = None, top: int = TOP_WORDS
) -> Comparison:
    """Shares of types and tokens cut differently, overall and by band, and the most frequent such words."""
    tokens = counts.frequencies()
    frequency = tokens if train_counts is None else train_counts
    best_a = {word: most_frequent_cut(cuts) for word, cuts in counts.a.items()}
    best_b = {word: most_frequent_cut(cuts) for word, cuts in counts.b.items()}
    different = {word for word in tokens if best_a[word] != best_b[word]}
    order = sorted(different, key=lambda word: (-frequency.get(word, 0), -tokens[word], word))
    return Comparison(
        types=len(tokens),
        different_types=len(different),
        tokens=tokens.total(),
        different_tokens=counts.different.total(),
        pieces_per_word_a=_pieces_per_word(counts.a),
        pieces_per_word_b=_pieces_per_word(counts.b),
        bands=_bands(tokens, frequency, different, counts.different),
        top=[
            Disagreement(
                word=word,
                frequency=frequency.get(word, 0),
                tokens=tokens[word],
                different_tokens=counts.different[word],
                a=str(CutWord(word, best_a[word])),
                b=str(CutWord(word, best_b[word])),
            )
            for word in order[:top]
        ],
    )


def most_frequent_cut(cuts: Mapping[Cuts, int]) -> Cuts:
    """The cut that occurs most; of equals the one with fewer pieces, then the one that cuts earlier."""
    return min(cuts, key=lambda cut: (-cuts[cut], len(cut), sorted(cut)))


def band_label(frequency: int) -> str:
    """The band of a frequency, one of `BAND_LABELS`."""
    return next(
        _label(smallest, largest)
        for smallest, largest in BANDS
        if smallest <= frequency and (largest is None or frequency <= largest)
    )


def _label(smallest: int, largest: int | None) -> str:
    """`1`, `3-5`, `over 100`."""
    if largest is None:
        return f"over {smallest - 1}"
    return str(smallest) if smallest == largest else f"{smallest}-{largest}"


BAND_LABELS = [_label(smallest, largest) for smallest, largest in BANDS]


def _bands(
    tokens: Mapping[str, int],
    frequency: Mapping[str, int],
    different_types: set[str],
    different_tokens: Mapping[str, int],
) -> list[Band]:
    words_of: defaultdict[str, list[str]] = defaultdict(list)
    for word in tokens:
        words_of[band_label(frequency.get(word, 0))].append(word)
    return [
        Band(
            label=label,
            types=len(words),
            different_types=sum(word in different_types for word in words),
            tokens=sum(tokens[word] for word in words),
            different_tokens=sum(different_tokens.get(word, 0) for word in words),
        )
        for label in BAND_LABELS
        if (words := words_of[label])
    ]


def _pieces_per_word(cuts_of: Mapping[str, Counter[Cuts]]) -> float:
    """Pieces per evaluated word, over tokens: cuts + 1."""
    tokens = sum(cuts.total() for cuts in cuts_of.values())
    pieces = sum((len(cut) + 1) * count for cuts in cuts_of.values() for cut, count in cuts.items())
    return pieces / max(tokens, 1)
