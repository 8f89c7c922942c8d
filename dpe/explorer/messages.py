"""The messages between page and server; /openapi.json describes them.

Positions count the characters (code points) of a word, in which the word marker U+2581 is one.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

LONGEST_TEXT = 2_000  # characters a side; beyond that the model would read in windows
LARGEST_N_BEST = 20
LARGEST_DRAW = 1_000_000


class Question(BaseModel):
    """A sentence pair, the segmenter to use, and how the source is segmented."""

    model_config = ConfigDict(extra="forbid")

    target: str = Field(description=f"One line of at most {LONGEST_TEXT:,} characters.")
    source: str | None = Field(
        default=None, description="One line; null for a segmenter that was trained without a source."
    )
    segmenter: str | None = Field(default=None, description="Its name in /api/setup; the first if null.")
    source_dropout: float = Field(
        default=0.0, ge=0.0, le=1.0, description="BPE dropout of the source; 0 is plain BPE."
    )
    source_alpha: float | None = Field(
        default=None,
        ge=0.0,
        description="Sharpness of sampling the source from a unigram vocabulary; null is the best one.",
    )
    draw: int = Field(
        default=0,
        ge=0,
        le=LARGEST_DRAW,
        description="Another number gives another random segmentation of the source.",
    )
    n_best: int = Field(default=5, ge=1, le=LARGEST_N_BEST, description="How many segmentations to list.")


class Edge(BaseModel):
    """One piece over one span of a word."""

    piece: str
    start: int
    end: int
    probability: float = Field(
        description="Posterior probability that a segmentation of the word uses this piece."
    )
    score: float = Field(description="log p(piece | everything before it, source), natural logarithm.")
    on_best_path: bool
    unknown: bool = Field(description="Whether no piece matches the text, so that it has the unknown id.")


class Word(BaseModel):
    """A word's lattice, and the posterior over its segmentations."""

    word: str
    offset: int = Field(description="Where the word begins in the normalised line.")
    best: list[str] = Field(description="Its part of the most probable segmentation.")
    best_probability: float
    own_cut: list[str] = Field(description="Its part of the vocabulary's own segmentation.")
    differs: bool = Field(description="Whether the two segmentations differ.")
    boundaries: list[float] = Field(
        description="Probability of a boundary after each character; the last is 1."
    )
    entropy: float = Field(description="Of the posterior over the word's segmentations, in nats.")
    edges: list[Edge] = Field(description="By start, then end.")
    edges_left_out: int = Field(description="Improbable pieces of a very long text that are not listed.")


class Cut(BaseModel):
    """One segmentation of the whole sentence."""

    words: list[list[str]] = Field(description="The pieces of each word.")
    probability: float = Field(description="Posterior probability; over all segmentations they sum to 1.")
    score: float = Field(description="log p(sentence, segmentation | source), with the end of sentence.")


class Answer(BaseModel):
    """Everything the page shows about a pair."""

    segmenter: str
    normalized: str = Field(
        description="The target as the model reads it; the pieces of a segmentation join to it."
    )
    source_words: list[list[str]] | None = Field(
        description="The segmented source that was used, word by word."
    )
    source_dropout: float
    source_alpha: float | None
    draw: int
    own_cut_method: str = Field(description="The vocabulary's own method: BPE or unigram.")
    words: list[Word]
    n_best: list[Cut] = Field(description="The most probable segmentations, best first.")
    entropy: float = Field(description="Of the posterior over the sentence's segmentations, in nats.")
    log_probability: float = Field(description="log p(target | source), summed over all segmentations.")
    bits_per_character: float
    unknown_characters: int


class SegmenterInfo(BaseModel):
    """A loaded segmenter."""

    name: str
    has_source: bool
    can_drop: bool = Field(
        description="Whether its vocabulary is BPE, so that dropout can be applied to the source."
    )
    can_sample: bool = Field(
        description="Whether its vocabulary is unigram, so that the source can be sampled from it."
    )
    pieces: int = Field(description="Size of its vocabulary.")


class Example(BaseModel):
    """A pair to start with."""

    source: str | None
    target: str


class Setup(BaseModel):
    """What the page needs to know before the first question."""

    version: str
    segmenters: list[SegmenterInfo]
    examples: list[Example]
    longest_text: int
    largest_n_best: int


class Problem(BaseModel):
    """What is wrong with a question, in one sentence."""

    error: str
