"""`Segmenter`: a trained mixed model that answers questions about segmentations, exactly.

`OnTheFly` makes the paper's training pairs with it, segmented anew every epoch, for any training loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import torch

from dpe.errors import UserError, refuse
from dpe.files import file_hash
from dpe.model.batch_order import batches_by_length
from dpe.model.batching import MixedCollator, MixedExample, mixed_example
from dpe.model.checkpoint import (
    MODEL,
    SOURCE_VOCABULARY,
    VOCABULARY,
    load_vocabulary,
    load_weights,
    read_settings,
)
from dpe.model.device import choose_device
from dpe.model.mixed import MixedTransformer
from dpe.model.settings import model_settings
from dpe.segmenter.answers import Posterior, PrefixScore, Score, Segmentation
from dpe.segmenter.long_lines import is_long
from dpe.segmenter.prefix import PrefixReader
from dpe.segmenter.scored_batch import Cut, ScoredBatch
from dpe.segmenter.settings import SegmenterSettings, SegmentSettings
from dpe.text.corpus import Strings, lines_of, one_line
from dpe.text.draws import Draw
from dpe.text.segmenters import CountSegmenter, source_noise, source_segmenter
from dpe.text.vocabulary import Vocabulary
from dpe.text.words import MARKER

Answer = TypeVar("Answer")

BATCH_CHARACTERS = 4_000  # a GPU may like more


class Segmenter:
    """Segments target sentences given their sources.

    Every method takes one pair of strings, or two lists of equal length and any order of lengths, and answers
    in the order given. A segmenter that was trained without a source takes `None` in its place.

        segmenter = Segmenter.load("segmenter/")
        segmenter.best("the cars were electric", "autot olivat sähköisiä")
    """

    def __init__(
        self,
        model: MixedTransformer,
        vocabulary: Vocabulary,
        *,
        source: bool,
        batch_characters: int,
        bf16: bool,
    ) -> None:
        """Use `load`."""
        self.vocabulary = vocabulary
        self.has_source = source
        self._model = model.eval().requires_grad_(False)
        self._collator = MixedCollator(vocabulary)
        self._batch_characters, self._bf16 = batch_characters, bf16
        self._source_segmenters: dict[tuple[float, float | None], CountSegmenter] = {}
        self._reload: Callable[[], Segmenter] | None = None

    def __reduce__(self) -> tuple[Callable[[], Segmenter], tuple[()]]:
        """A copy in another process is loaded from the directory again."""
        assert self._reload is not None
        return self._reload, ()

    @classmethod
    def load(
        cls,
        directory: Path | str,
        *,
        device: str = "cpu",
        batch_characters: int = BATCH_CHARACTERS,
        bf16: bool = False,
    ) -> Segmenter:
        """Read what `dpe train-segmenter` wrote; `batch_characters` bounds what is computed at once.

        With `bf16` a GPU computes the network in bfloat16, and all sums over segmentations in float64 still.
        """
        directory, place = Path(directory), choose_device(device, bf16=bf16)
        record = read_settings(directory, "segmenter")
        settings = model_settings(record, SegmenterSettings, str(directory))
        vocabulary = load_vocabulary(directory, record)
        model = MixedTransformer.of(settings, vocabulary, source=settings.source)
        load_weights(directory, model)
        model.to(place)
        options: dict[str, Any] = {"batch_characters": batch_characters, "bf16": bf16}
        segmenter = cls(model, vocabulary, source=settings.source, **options)
        segmenter._reload = partial(cls.load, directory.absolute(), device=device, **options)
        return segmenter

    @overload
    def best(self, source: str | None, target: str) -> Segmentation: ...
    @overload
    def best(self, source: Strings | None, target: Strings) -> list[Segmentation]: ...
    def best(self, source: str | Strings | None, target: str | Strings) -> Any:
        """The most probable segmentation (Alg. 2)."""

        def answer(batch: ScoredBatch) -> list[Segmentation]:
            partitions = batch.log_partitions().tolist()
            return [self._segmentation(*pair) for pair in zip(batch.best(), partitions, strict=True)]

        return self._ask(source, target, answer)

    @overload
    def n_best(self, source: str | None, target: str, *, n: int = 5) -> list[Segmentation]: ...
    @overload
    def n_best(self, source: Strings | None, target: Strings, *, n: int = 5) -> list[list[Segmentation]]: ...
    def n_best(self, source: str | Strings | None, target: str | Strings, *, n: int = 5) -> Any:
        """The n most probable segmentations, best first; fewer if the sentence has fewer."""
        _refuse_below_one(n)
        return self._ask(source, target, lambda batch: self._lists(batch, batch.n_best(n)))

    @overload
    def sample(
        self,
        source: str | None,
        target: str,
        *,
        n: int = 1,
        seed: int = 1,
        temperature: float = 1.0,
        epoch: int = 0,
        first_line: int = 0,
    ) -> list[Segmentation]: ...
    @overload
    def sample(
        self,
        source: Strings | None,
        target: Strings,
        *,
        n: int = 1,
        seed: int = 1,
        temperature: float = 1.0,
        epoch: int = 0,
        first_line: int = 0,
    ) -> list[list[Segmentation]]: ...
    def sample(
        self,
        source: str | Strings | None,
        target: str | Strings,
        *,
        n: int = 1,
        seed: int = 1,
        temperature: float = 1.0,
        epoch: int = 0,
        first_line: int = 0,
    ) -> Any:
        """Independent draws from the posterior; the same segmentation may come more than once.

        A draw is a function of seed, epoch, the line's number and the number of the draw, whatever else is
        asked for at the same time. The lines given are numbered from `first_line`; `dpe segment` numbers a
        file from 0. Temperature divides the edge scores before the forward pass: below 1 the draws keep
        closer to the best one. Scores and probabilities are those of temperature 1.
        """
        _refuse_below_one(n)
        settings = SegmentSettings(mode="sample", n=n, seed=seed, epoch=epoch, temperature=temperature)

        def answer(batch: ScoredBatch) -> list[list[Segmentation]]:
            return self._lists(batch, batch.sample(settings))

        return self._ask(source, target, answer, first_line=first_line)

    @overload
    def posterior(self, source: str | None, target: str) -> Posterior: ...
    @overload
    def posterior(self, source: Strings | None, target: Strings) -> list[Posterior]: ...
    def posterior(self, source: str | Strings | None, target: str | Strings) -> Any:
        """The probability of a boundary after each character, and the entropy of every word."""
        return self._ask(source, target, ScoredBatch.posterior)

    @overload
    def score(self, source: str | None, target: str) -> Score: ...
    @overload
    def score(self, source: Strings | None, target: Strings) -> list[Score]: ...
    def score(self, source: str | Strings | None, target: str | Strings) -> Any:
        """Exact log p(y | x), the sum over all segmentations; log p(y, z | x) of the best one z; entropy."""
        return self._ask(source, target, self.batch_scores)

    def prefix_score(self, source: str | None, prefix: str) -> PrefixScore:
        """Exact probability that the target begins with a prefix, and of each character that may come next.

        It sums over all segmentations of all texts that begin so. After a space at its end a word begins.
        """
        self.refuse_wrong_source(given=source is not None)
        refuse((self.vocabulary.marks_ends, "Prefixes need a vocabulary that marks where words begin."))
        pieces = None if source is None else self._source_segmenter(SegmentSettings()).cut(one_line(source))
        example = self.example(0, pieces, one_line(prefix))
        marked = example.marked
        if marked and self.vocabulary.normalize(f"{prefix}x").startswith(marked + MARKER):
            example = example._replace(marked=marked + MARKER, words=[*example.words, MARKER])
        return self._prefixes.score(example)

    @cached_property
    def _prefixes(self) -> PrefixReader:
        return PrefixReader(self._model, self._collator, self.vocabulary)

    def batch_scores(self, batch: ScoredBatch) -> list[Score]:
        """The answer of `score` about one batch."""
        characters = self._collator.characters
        rows = zip(batch.log_partitions(), batch.examples, batch.best(), batch.entropies(), strict=True)
        return [
            Score(
                float(total),
                characters=len(one.marked) + 1,
                unknown=int((characters.encode(one.marked) == characters.unknown).sum()),
                best_log_probability=cut.score,
                entropy=float(entropy),
                bytes=len(self.vocabulary.plain(one.marked).encode()) + 1,
            )
            for total, one, cut, entropy in rows
        ]

    def example(self, line: int, source_pieces: list[str] | None, target: str) -> MixedExample:
        """A line for `answers`, from its source as pieces and its target as text."""
        return mixed_example(self.vocabulary, line, source_pieces, target)

    @torch.inference_mode()
    def answers(
        self, examples: Iterable[MixedExample], answer: Callable[[ScoredBatch], Sequence[Answer]]
    ) -> list[Answer]:
        """One answer per example, in their order; batches hold examples of similar length."""
        found: dict[int, Answer] = {}
        budget = (self._batch_characters, self._batch_characters)
        device = self._model.output_weight.device.type
        for batch in batches_by_length(enumerate(examples), lambda item: self._size(item[1]), budget=budget):
            places, members = zip(*batch, strict=True)
            with torch.autocast(device, dtype=torch.bfloat16, enabled=self._bf16):
                scored = ScoredBatch.of(self._model, self._collator, self.vocabulary, members)
                found.update(zip(places, answer(scored), strict=True))
        return [found[place] for place in range(len(found))]

    def _size(self, example: MixedExample) -> tuple[int, int]:
        """What an example takes of a batch's budget; a long line takes all of it."""
        source, target = example.size
        return (source, max(target, self._batch_characters)) if is_long(example) else (source, target)

    def answer_pairs(
        self,
        pairs: Iterable[tuple[int, str | None, str]],
        answer: Callable[[ScoredBatch], Sequence[Answer]],
        settings: SegmentSettings = SegmentSettings(),
    ) -> list[tuple[list[str] | None, Answer]]:
        """Segment sources, each by its own draw, and answer about each target given that very source.

        A pair is (line, source, target). The paper's on-the-fly DPE, and with plain sources its fixed DPE.
        Gives the pieces of each source beside the answer.
        """
        draw = Draw(settings.seed, settings.epoch)
        sources: list[list[str] | None] = []

        def examples() -> Iterator[MixedExample]:
            cut_source = self._source_segmenter(settings)
            for line, source, target in pairs:
                sources.append(None if source is None else cut_source.cut(source, draw.at(line)))
                yield self.example(line, sources[-1] if self.has_source else None, target)

        found = self.answers(examples(), answer)
        return list(zip(sources, found, strict=True))

    def _source_segmenter(self, settings: SegmentSettings) -> CountSegmenter:
        """Kept from call to call, because it remembers words."""
        noise = settings.source_dropout, settings.source_alpha
        if noise not in self._source_segmenters:
            self._source_segmenters[noise] = source_segmenter(self.vocabulary.source, *noise)
        return self._source_segmenters[noise]

    def _ask(
        self,
        source: str | Strings | None,
        target: str | Strings,
        answer: Callable[[ScoredBatch], Sequence[Answer]],
        *,
        first_line: int = 0,
    ) -> Any:
        """The answer about a pair, or the answers about two lists."""
        single, targets = isinstance(target, str), lines_of(target, "target")
        self.refuse_wrong_source(given=source is not None)
        no_sources: list[str | None] = [None] * len(targets)
        sources = no_sources if source is None else lines_of(source, "source")
        if len(sources) != len(targets) or (source is not None and isinstance(source, str) != single):
            raise UserError(
                f"Got {len(sources)} sources and {len(targets)} targets; "
                "give two strings, or two lists of equal length."
            )
        rows = zip(range(first_line, first_line + len(targets)), sources, targets, strict=True)
        found = [one for _, one in self.answer_pairs(rows, answer)]
        return found[0] if single else found

    def refuse_wrong_source(self, *, given: bool) -> None:
        """A source must be given if, and only if, the segmenter was trained with one."""
        with_source, without = (
            "with a source; give the source of every target.",
            "without a source; give none.",
        )
        needs = with_source if self.has_source else without
        refuse((given != self.has_source, f"This segmenter was trained {needs}"))

    def _segmentation(self, cut: Cut, log_partition: float) -> Segmentation:
        ids = tuple(self.vocabulary.piece_ids(cut.pieces))
        texts = tuple(self.vocabulary.surfaces(cut.pieces))
        return Segmentation(cut.pieces, ids, cut.score, log_partition, texts)

    def _lists(self, batch: ScoredBatch, cuts: list[list[Cut]]) -> list[list[Segmentation]]:
        partitions = batch.log_partitions().tolist()
        rows = zip(cuts, partitions, strict=True)
        return [[self._segmentation(cut, partition) for cut in found] for found, partition in rows]


def fingerprint(directory: Path) -> str:
    """Identifies a segmenter wherever its directory is: a hash of weights and vocabulary."""
    digest = hashlib.sha256()
    for name in (MODEL, VOCABULARY, SOURCE_VOCABULARY):
        if name != SOURCE_VOCABULARY or (directory / name).exists():
            digest.update(bytes.fromhex(file_hash(directory / name)))
    return digest.hexdigest()


def refuse_another(directory: Path, expected: str) -> None:
    """Refuse a segmenter that does not have this fingerprint."""
    if fingerprint(directory) != expected:
        raise UserError(f"{directory} has another segmenter than when the work began; start again.")


def _refuse_below_one(n: int) -> None:
    if n < 1:
        raise UserError(f"n is {n}; it must be at least 1.")


class TrainingPair(NamedTuple):
    """A sentence pair as a translator reads it in one epoch."""

    source: tuple[str, ...]  # pieces, by BPE dropout or sampled from a unigram vocabulary
    target: tuple[str, ...]  # pieces, segmented given that very source


class OnTheFly:
    """Segments pairs as `dpe encode --method bpe-dropout` and `dpe segment --source-dropout` do whole files,
    over a unigram vocabulary as `--method unigram --alpha` and `--source-alpha` do.

        cutter = OnTheFly(Segmenter.load("segmenter/"), dropout=0.05)
        cutter.pairs(["the cars"], ["autot"], epoch=3, lines=[17])

    A pair depends on the seed, the epoch and the line's number alone, not on the order of the lines or how
    many are asked for at once. With a temperature targets are sampled from the posterior, else the best.
    Over a unigram vocabulary sources are sampled with `alpha`, or 0.2; with dropout 0 alone they are plain.
    """

    def __init__(
        self,
        segmenter: Segmenter,
        *,
        dropout: float = 0.05,
        alpha: float | None = None,
        seed: int = 1,
        temperature: float | None = None,
    ) -> None:
        self._segmenter = segmenter
        dropout, alpha = source_noise(segmenter.vocabulary.source.type, dropout, alpha)
        self._settings = SegmentSettings(
            mode="best" if temperature is None else "sample",
            temperature=1.0 if temperature is None else temperature,
            source_dropout=dropout,
            source_alpha=alpha,
            seed=seed,
        )
        segmenter._source_segmenter(self._settings)  # which refuses what the vocabulary cannot do

    @property
    def vocabulary(self) -> Vocabulary:
        return self._segmenter.vocabulary

    def pairs(
        self, sources: Strings, targets: Strings, *, epoch: int, lines: Iterable[int] | None = None
    ) -> list[TrainingPair]:
        """The pairs of an epoch, in the order given; `lines` are their numbers, by default 0, 1, 2...

        The first line of a file is 0, as for `dpe encode` and `dpe segment`.
        """
        if isinstance(sources, str) or isinstance(targets, str):
            raise UserError("Sources and targets are lists of sentences; give a list for one sentence too.")
        sources, targets = lines_of(sources, "source"), lines_of(targets, "target")
        numbers = list(range(len(targets)) if lines is None else lines)
        if not len(sources) == len(targets) == len(numbers):
            raise UserError(
                f"Got {len(sources)} sources, {len(targets)} targets and {len(numbers)} line numbers; "
                "give as many of each."
            )
        settings = replace(self._settings, epoch=epoch)
        rows = zip(numbers, sources, targets, strict=True)
        found = self._segmenter.answer_pairs(rows, lambda batch: batch.cuts(settings), settings)
        return [TrainingPair(tuple(source or ()), cuts[0].pieces) for source, cuts in found]
