"""What is written about each line of a corpus: its cuts, or its probability.

A line of JSON (`jsonl`) about the best cut of a sentence:

    {"pieces": [...], "offsets": [[0, 4], ...], "score": ..., "probability": ..., "log_partition": ...,
     "entropy": ..., "boundary_probabilities": [...],
     "words": [{"offset": 0, "word": "...", "log_partition": ..., "entropy": ...,
                "boundary_probabilities": [...], "pieces": [...], "score": ..., "probability": ...}, ...]}

There is one boundary probability after each character; offsets count the characters of the normalised line.
Scores are natural logarithms, entropies are in nats; the score and the log partition of a sentence include
its end. In the modes `n-best` and `sample` the pieces, offsets, score and probability of each cut stand in a
list under "cuts", and a word has no pieces, score and probability.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from dpe.choices import CutFormat, CutMode
from dpe.corpus_run.run import Answers, NumberedPairs
from dpe.errors import UserError
from dpe.model.batching import MixedExample
from dpe.segmenter.answers import (
    Posterior,
    Score,
    WordPosterior,
    posterior_probability,
)
from dpe.segmenter.scored_batch import Cut, Drawing, ScoredBatch
from dpe.segmenter.segmenter import Segmenter
from dpe.text.draws import Draw
from dpe.text.formats import format_pieces
from dpe.text.segmenters import source_segmenter
from dpe.text.words import piece_offsets, pieces_by_word


@dataclass(frozen=True, kw_only=True)
class EpochDraws:
    """Dropout of the source, 0 for the vocabulary's own cut; seed and epoch of every draw."""

    dropout: float = 0.0
    seed: int = 1
    epoch: int = 0

    def configuration(self) -> dict[str, Any]:
        """What a record says of it."""
        return {"source_dropout": self.dropout, "seed": self.seed, "epoch": self.epoch}


@dataclass(frozen=True, kw_only=True)
class CutSettings:
    """Which cuts of a line are written, and how."""

    mode: CutMode = "best"
    n: int = 1
    temperature: float = 1.0
    format: CutFormat = "pieces"
    draws: EpochDraws = field(default_factory=EpochDraws)

    def configuration(self) -> dict[str, Any]:
        """What a record says of it."""
        own = {"mode": self.mode, "n": self.n, "temperature": self.temperature, "format": self.format}
        return own | self.draws.configuration()


class _LineReader:
    """A segmenter that computes with one thread, whatever the machine, so that sums are always the same."""

    def __init__(self, directory: Path, draws: EpochDraws, *, device: str, batch_characters: int) -> None:
        torch.set_num_threads(1)
        self.segmenter = Segmenter.load(directory, device=device, batch_characters=batch_characters)
        self._draws = draws
        self._cut_source = source_segmenter(self.segmenter.vocabulary, draws.dropout)

    def examples(self, lines: NumberedPairs) -> Iterator[MixedExample]:
        for number, (source, target) in zip(lines.numbers, lines.pairs, strict=True):
            pieces = None
            if source is not None:
                pieces = self._cut_source.cut(source, Draw(self._draws.seed, self._draws.epoch, number))
            yield self.segmenter.example(number, pieces, target)


class LineCutter(_LineReader):
    """Cuts lines. Several cuts of a line are separated by tabs; a list in `jsonl`."""

    def __init__(self, directory: Path, settings: CutSettings, *, device: str, batch_characters: int) -> None:
        super().__init__(directory, settings.draws, device=device, batch_characters=batch_characters)
        self._settings = settings
        self._drawing = Drawing(
            n=settings.n,
            seed=settings.draws.seed,
            epoch=settings.draws.epoch,
            temperature=settings.temperature,
        )

    def __call__(self, lines: NumberedPairs) -> Answers:
        answer = self._json_lines if self._settings.format == "jsonl" else self._plain_lines
        return Answers(self.segmenter.answers(self.examples(lines), answer), {})

    def _cuts(self, batch: ScoredBatch) -> list[list[Cut]]:
        if self._settings.mode == "best":
            return [[cut] for cut in batch.best()]
        if self._settings.mode == "n-best":
            return batch.n_best(self._settings.n)
        return batch.sample(self._drawing)

    def _plain_lines(self, batch: ScoredBatch) -> list[str]:
        if self._settings.mode != "best":
            _refuse_tabs(batch)
        return ["\t".join(map(self._written, cuts)) for cuts in self._cuts(batch)]

    def _written(self, cut: Cut) -> str:
        form = self._settings.format
        assert form != "jsonl"
        return format_pieces(list(cut.pieces), form, self.segmenter.vocabulary)

    def _json_lines(self, batch: ScoredBatch) -> list[str]:
        describe = _describe_best if self._settings.mode == "best" else _describe_several
        rows = zip(self._cuts(batch), batch.posterior(), strict=True)
        return [json.dumps(describe(*row), ensure_ascii=False) for row in rows]


def _refuse_tabs(batch: ScoredBatch) -> None:
    """Only a vocabulary that keeps the text as it is leaves a tab in a line."""
    for example in batch.examples:
        if "\t" in example.marked:
            raise UserError(
                f"Line {example.line + 1} of the target has a tab, which separates the cuts of a line; "
                "choose --format jsonl."
            )


class LineScorer(_LineReader):
    """Writes log p(y | x), characters with the end of sentence, unknown ones, bits per character."""

    def __call__(self, lines: NumberedPairs) -> Answers:
        scores = self.segmenter.answers(self.examples(lines), self.segmenter.batch_scores)
        totals = {
            "log_probability": sum(score.log_probability for score in scores),
            "characters": sum(score.characters for score in scores),
            "unknown": sum(score.unknown for score in scores),
        }
        return Answers([_score_line(score) for score in scores], totals)


def _score_line(score: Score) -> str:
    return f"{score.log_probability:.6f}\t{score.characters}\t{score.unknown}\t{score.bits_per_character:.6f}"


def _describe_best(cuts: list[Cut], posterior: Posterior) -> dict[str, Any]:
    """A sentence with its best cut, whole and word by word."""
    (cut,) = cuts
    described = _describe_cut(cut, posterior) | _describe_posterior(posterior)
    pieces = pieces_by_word([word.word for word in posterior.words], cut.pieces)
    rows = zip(posterior.words, described["words"], pieces, cut.word_scores, strict=True)
    for word, about, about["pieces"], score in rows:
        probability = posterior_probability(score, word.log_partition)
        about.update(_shortened({"score": score, "probability": probability}))
    return described


def _describe_several(cuts: list[Cut], posterior: Posterior) -> dict[str, Any]:
    """A sentence with several cuts."""
    return {"cuts": [_describe_cut(cut, posterior) for cut in cuts]} | _describe_posterior(posterior)


def _describe_cut(cut: Cut, posterior: Posterior) -> dict[str, Any]:
    probability = posterior_probability(cut.score, posterior.log_partition)
    about = _shortened({"score": cut.score, "probability": probability})
    return {"pieces": cut.pieces, "offsets": piece_offsets(cut.pieces)} | about


def _describe_posterior(posterior: Posterior | WordPosterior) -> dict[str, Any]:
    """What does not depend on a cut, about a sentence or a word."""
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


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers to seven digits, which is what single precision knows."""
    return {key: _short(value) for key, value in values.items()}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return [_short(item) for item in value] if isinstance(value, tuple) else value
