"""What is written about each line of a corpus: its segmentations, its probability, or counts of pieces.

A line of JSON (`jsonl`) about the best segmentation of a sentence:

    {"pieces": [...], "offsets": [[0, 4], ...], "score": ..., "probability": ..., "log_partition": ...,
     "best_score": ..., "gap": ..., "bits_per_character": ..., "bits_per_byte": ...,
     "entropy": ..., "boundary_probabilities": [...],
     "words": [{"offset": 0, "word": "...", "log_partition": ..., "entropy": ...,
                "boundary_probabilities": [...], "pieces": [...], "score": ..., "probability": ...}, ...]}

There is one boundary probability after each character; offsets count the characters of the normalised line.
Scores are natural logarithms, entropies are in nats; the score and the log partition of a sentence include
its end. The best score is that of the best segmentation in every mode, and the gap is the log partition less
the best score. In the modes `n-best` and `sample` the pieces, offsets, score and probability of each
segmentation are in a list under "cuts", and a word has no pieces, score and probability.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from dpe.choices import CountsOf, CutFormat
from dpe.corpus_run.run import Answers, NumberedPairs
from dpe.errors import UserError
from dpe.segmenter.answers import Posterior, Score, WordPosterior, posterior_probability
from dpe.segmenter.scored_batch import Cut, ScoredBatch
from dpe.segmenter.segmenter import Segmenter
from dpe.segmenter.settings import SegmentSettings
from dpe.text.formats import format_pieces
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import piece_offsets, pieces_by_word

Answer = TypeVar("Answer")


class _LineReader:
    """A segmenter that computes with one thread, whatever the machine, so that sums are always the same."""

    def __init__(
        self, directory: Path, settings: SegmentSettings, *, device: str, batch_characters: int
    ) -> None:
        torch.set_num_threads(1)
        self.segmenter = Segmenter.load(
            directory, device=device, batch_characters=batch_characters, bf16=settings.bf16
        )
        self._settings = settings

    def answers(
        self, lines: NumberedPairs, answer: Callable[[ScoredBatch], Sequence[Answer]]
    ) -> list[Answer]:
        rows = ((n, source, target) for n, (source, target) in zip(lines.numbers, lines.pairs, strict=True))
        return [found for _, found in self.segmenter.answer_pairs(rows, answer, self._settings)]


class LineCutter(_LineReader):
    """Segments lines. Several segmentations of a line are separated by tabs; they are a list in `jsonl`."""

    def __init__(
        self,
        directory: Path,
        settings: SegmentSettings,
        format: CutFormat = "pieces",
        *,
        device: str,
        batch_characters: int,
    ) -> None:
        super().__init__(directory, settings, device=device, batch_characters=batch_characters)
        self._format = format

    def __call__(self, lines: NumberedPairs) -> Answers:
        return Answers(self.answers(lines, self._json if self._format == "jsonl" else self._plain), {})

    def _plain(self, batch: ScoredBatch) -> list[str]:
        if self._settings.mode != "best":
            _refuse_tabs(batch)
        vocabulary = self.segmenter.vocabulary
        return [
            "\t".join(format_pieces(cut.pieces, self._format, vocabulary) for cut in cuts)
            for cuts in batch.cuts(self._settings)
        ]

    def _json(self, batch: ScoredBatch) -> list[str]:
        lines, vocabulary = [], self.segmenter.vocabulary
        # The posterior first, because it needs the scores of all edges, which the best alone would not.
        rows = zip(
            batch.posterior(), self.segmenter.batch_scores(batch), batch.cuts(self._settings), strict=True
        )
        for posterior, score, cuts in rows:
            if self._settings.mode == "best":
                about = _describe_best(cuts[0], posterior, vocabulary)
            else:
                about = {
                    "cuts": [_describe_cut(cut, posterior, vocabulary) for cut in cuts]
                } | _describe_posterior(posterior)
            lines.append(json.dumps(about | _describe_score(score), ensure_ascii=False))
        return lines


def _refuse_tabs(batch: ScoredBatch) -> None:
    """Only a vocabulary with identity normalisation leaves a tab in a line."""
    for example in batch.examples:
        if "\t" in example.marked:
            raise UserError(
                f"Line {example.line + 1} of the target contains a tab, which separates segmentations; "
                "choose --format jsonl."
            )


class LineScorer(_LineReader):
    """Writes the columns that `dpe score --help` lists; the totals are sums of the fields of `Score`."""

    def __call__(self, lines: NumberedPairs) -> Answers:
        scores = self.answers(lines, self.segmenter.batch_scores)
        totals = {field.name: sum(getattr(one, field.name) for one in scores) for field in fields(Score)}
        return Answers([_columns(one) for one in scores], totals)


def _columns(score: Score) -> str:
    known_before = f"{score.log_probability:.6f}\t{score.characters}\t{score.unknown}"
    since = f"{score.best_log_probability:.6f}\t{score.gap:.6f}\t{score.entropy:.6f}\t{score.bytes}"
    return f"{known_before}\t{score.bits_per_character:.6f}\t{since}\t{score.bits_per_byte:.6f}"


class PieceCounter(_LineReader):
    """Writes the best segmentation; the totals are counts of pieces by id, for `dpe distill`.

    They are counted apart for the words given, as `3`, and for all others, as `other 3`.
    """

    def __init__(
        self,
        directory: Path,
        settings: SegmentSettings,
        counts: CountsOf,
        words: Collection[str],
        *,
        device: str,
        batch_characters: int,
    ) -> None:
        super().__init__(directory, settings, device=device, batch_characters=batch_characters)
        self._counts, self._words = counts, words
        self._totals: dict[str, float] = {}

    def __call__(self, lines: NumberedPairs) -> Answers:
        self._totals = {}
        return Answers(self.answers(lines, self._count), self._totals)

    def _count(self, batch: ScoredBatch) -> list[str]:
        ids, words = self.segmenter.vocabulary.ids, [w for one in batch.examples for w in one.words]
        fitted = np.array([word in self._words for word in words], dtype=np.bool_)  # [word]
        if self._counts == "posterior":
            of_words, pieces, weights = batch.expected_pieces()
        cuts = batch.best()
        if self._counts == "best":
            by_word = [
                parts
                for one, cut in zip(batch.examples, cuts, strict=True)
                for parts in pieces_by_word(one.words, cut.pieces, self.segmenter.vocabulary.byte_ids)
            ]
            known = [(n, ids[p]) for n, parts in enumerate(by_word) for p in parts if p in ids]
            of_words, pieces = np.array(known, dtype=np.int64).reshape(-1, 2).T
            weights = np.ones(len(known))
        for kind, own in (("", fitted[of_words]), ("other ", ~fitted[of_words])):
            sums = np.bincount(pieces[own], weights=weights[own])
            for piece in np.flatnonzero(sums).tolist():
                key = f"{kind}{piece}"
                self._totals[key] = self._totals.get(key, 0.0) + float(sums[piece])
        return [" ".join(cut.pieces) for cut in cuts]


def _describe_best(cut: Cut, posterior: Posterior, vocabulary: Vocabulary) -> dict[str, Any]:
    """A sentence with its best segmentation, whole and word by word."""
    described = _describe_cut(cut, posterior, vocabulary) | _describe_posterior(posterior)
    pieces = pieces_by_word([word.word for word in posterior.words], cut.pieces, vocabulary.byte_ids)
    rows = zip(posterior.words, described["words"], pieces, cut.word_scores, strict=True)
    for word, about, about["pieces"], score in rows:
        probability = posterior_probability(score, word.log_partition)
        about.update(_shortened({"score": score, "probability": probability}))
    return described


def _describe_cut(cut: Cut, posterior: Posterior, vocabulary: Vocabulary) -> dict[str, Any]:
    probability = posterior_probability(cut.score, posterior.log_partition)
    about = _shortened({"score": cut.score, "probability": probability})
    return {"pieces": cut.pieces, "offsets": piece_offsets(vocabulary.surfaces(cut.pieces))} | about


def _describe_posterior(posterior: Posterior | WordPosterior) -> dict[str, Any]:
    """What does not depend on a segmentation, about a sentence or a word."""
    about = {
        "log_partition": posterior.log_partition,
        "entropy": posterior.entropy,
        "boundary_probabilities": posterior.boundaries,
    }
    if isinstance(posterior, WordPosterior):
        return {"word": posterior.word} | _shortened(about)
    offsets = accumulate((len(word.word) for word in posterior.words), initial=0)
    words = [
        {"offset": offset} | _describe_posterior(word)
        for offset, word in zip(offsets, posterior.words, strict=False)
    ]
    return _shortened(about) | {"words": words}


def _describe_score(score: Score) -> dict[str, Any]:
    """Of a sentence, whatever the mode."""
    return _shortened(
        {
            "best_score": score.best_log_probability,
            "gap": score.gap,
            "bits_per_character": score.bits_per_character,
            "bits_per_byte": score.bits_per_byte,
        }
    )


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers to seven digits, which is what single precision knows."""
    return {key: _short(value) for key, value in values.items()}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return [_short(item) for item in value] if isinstance(value, tuple) else value
