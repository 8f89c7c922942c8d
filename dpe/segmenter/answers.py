"""What a segmenter answers: a segmentation, the posterior over all of them, the probability of a sentence.

Every position counts the characters of the *normalised line*, in which each word begins with U+2581.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dpe.text.words import MARKER, piece_offsets


@dataclass(frozen=True)
class Segmentation:
    """One segmentation of a sentence.

    `texts` joined are the normalised line. They are the pieces, but for the bytes of a vocabulary with byte
    fallback: the last byte of a character has its text, the others none. Else neighbouring unknown characters
    are one piece as written, and have the one unknown id in `ids`, which is therefore lossy there.
    `score` is log p(y, z | x) with the end of sentence, `log_partition` is log p(y | x), the
    sum over all cuts z.
    """

    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    score: float
    log_partition: float
    texts: tuple[str, ...]

    @property
    def probability(self) -> float:
        """Posterior probability of this segmentation; over all of the sentence they sum to 1."""
        return posterior_probability(self.score, self.log_partition)

    @property
    def surfaces(self) -> tuple[str, ...]:
        """The texts without the marker; a marker that is a piece by itself is the empty string."""
        return tuple(text.replace(MARKER, "") for text in self.texts)

    @property
    def offsets(self) -> tuple[tuple[int, int], ...]:
        """Where each piece begins and ends in the normalised line."""
        return piece_offsets(self.texts)

    def __str__(self) -> str:
        return (
            f"{' '.join(self.pieces)}  (probability {self.probability:.4g}, score {self.score:.2f})".lstrip()
        )


def posterior_probability(score: float, log_partition: float) -> float:
    """Of a segmentation of a sentence or a word, from its score and the sum over all segmentations."""
    return math.exp(min(score - log_partition, 0.0))  # rounding must not lead above 1


@dataclass(frozen=True)
class WordPosterior:
    """The posterior over the segmentations of one word, given the sentence before it and the source."""

    word: str
    boundaries: tuple[float, ...]  # probability of a boundary after each character; the last is 1
    entropy: float  # in nats
    log_partition: float


@dataclass(frozen=True)
class Posterior:
    """The posterior over the segmentations of a sentence; those of its words are independent."""

    text: str  # the normalised line
    words: tuple[WordPosterior, ...]
    log_partition: float  # log p(y | x), with the end of sentence

    @property
    def boundaries(self) -> tuple[float, ...]:
        """Probability of a boundary after each character of the normalised line."""
        return tuple(probability for word in self.words for probability in word.boundaries)

    @property
    def entropy(self) -> float:
        """In nats."""
        return math.fsum(word.entropy for word in self.words)

    def __str__(self) -> str:
        """A word a line: `See  S|97 e e  entropy 0.135`; `|97` is a boundary of 97 percent."""
        rows = []
        for word in self.words:
            shares = [round(100 * probability) for probability in word.boundaries[:-1]]
            marked = [f"{c}|{n}" if n else c for c, n in zip(word.word, [*shares, 0], strict=True)]
            rows.append(f"{word.word}  {' '.join(marked)}  entropy {word.entropy:.3f}")
        return "\n".join(rows)


@dataclass(frozen=True)
class PrefixScore:
    """The exact probability that a target begins with a text, and what comes next if it does."""

    text: str  # the normalised prefix
    log_probability: float  # log p(the target begins with it | x), natural logarithm
    next_characters: Mapping[str, float]  # probability of each next character; U+2581 for a space
    unknown: float  # probability that a character comes next that is in no piece
    end: float  # probability that the target ends here; with all others 1


@dataclass(frozen=True)
class Score:
    """The exact probability of a sentence, summed over all its segmentations. Logarithms are natural."""

    log_probability: float  # log p(y | x)
    characters: int  # of the normalised line, and one for the end of sentence
    unknown: int  # characters in no piece, which the model takes for one class
    best_log_probability: float  # log p(y, z | x) of the best segmentation z
    entropy: float  # of the posterior over the segmentations, in nats
    bytes: (
        int  # of the normalised line as a file has it, in UTF-8 with spaces for markers, and one for its end
    )

    @property
    def gap(self) -> float:
        """What the sum over all segmentations adds to the best one: -log of its posterior probability."""
        return max(self.log_probability - self.best_log_probability, 0.0)  # rounding must not lead below 0

    @property
    def bits_per_character(self) -> float:
        return -self.log_probability / math.log(2) / self.characters

    @property
    def bits_per_byte(self) -> float:
        """Comparable between vocabularies and scripts."""
        return -self.log_probability / math.log(2) / self.bytes
