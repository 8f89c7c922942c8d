"""`Segmenter`: a trained mixed model that answers questions about the cuts of sentences, exactly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import torch

from dpe.errors import UserError
from dpe.files import file_hash
from dpe.model.batch_order import batches_by_length
from dpe.model.batching import MixedCollator, MixedExample, mixed_example
from dpe.model.checkpoint import MODEL, VOCABULARY, load_vocabulary, load_weights, read_settings
from dpe.model.device import choose_device
from dpe.model.mixed import MixedTransformer
from dpe.model.transformer import TransformerSettings
from dpe.segmenter.answers import Posterior, Score, Segmentation
from dpe.segmenter.long_lines import is_long
from dpe.segmenter.scored_batch import Cut, Drawing, ScoredBatch
from dpe.text.corpus import Strings, lines_of
from dpe.text.vocabulary import Vocabulary

Answer = TypeVar("Answer")

BATCH_CHARACTERS = 4_000  # a GPU may like more


class Segmenter:
    """Cuts target sentences given their sources.

    Every method takes one pair of strings, or two lists of equal length and any order of lengths, and answers
    in the order given. A segmenter that was trained without a source takes `None` in its place.

        segmenter = Segmenter.load("segmenter/")
        segmenter.best("the cars were electric", "autot olivat sähköisiä")
    """

    def __init__(
        self, model: MixedTransformer, vocabulary: Vocabulary, *, source: bool, batch_characters: int
    ) -> None:
        """Use `load`."""
        self.vocabulary = vocabulary
        self.has_source = source
        self._model = model.eval().requires_grad_(False)
        self._collator = MixedCollator(vocabulary)
        self._batch_characters = batch_characters

    @classmethod
    def load(
        cls, directory: Path | str, *, device: str = "cpu", batch_characters: int = BATCH_CHARACTERS
    ) -> Segmenter:
        """Read what `dpe train-segmenter` wrote; `batch_characters` bounds what is computed at once."""
        directory = Path(directory)
        settings = read_settings(directory, "segmenter")
        vocabulary = load_vocabulary(directory, settings)
        network = TransformerSettings(**settings["network"])
        model = MixedTransformer.of(network, vocabulary, source=settings["source"])
        load_weights(directory, model)
        model.to(choose_device(device))
        return cls(model, vocabulary, source=settings["source"], batch_characters=batch_characters)

    @overload
    def best(self, source: str | None, target: str) -> Segmentation: ...
    @overload
    def best(self, source: Strings | None, target: Strings) -> list[Segmentation]: ...
    def best(self, source: str | Strings | None, target: str | Strings) -> Any:
        """The most probable cut (Alg. 2)."""

        def answer(batch: ScoredBatch) -> list[Segmentation]:
            partitions = batch.log_partitions().tolist()
            return [self._segmentation(*pair) for pair in zip(batch.best(), partitions, strict=True)]

        return self._ask(source, target, answer)

    @overload
    def n_best(self, source: str | None, target: str, *, n: int = 5) -> list[Segmentation]: ...
    @overload
    def n_best(self, source: Strings | None, target: Strings, *, n: int = 5) -> list[list[Segmentation]]: ...
    def n_best(self, source: str | Strings | None, target: str | Strings, *, n: int = 5) -> Any:
        """The n most probable cuts, best first; fewer if the sentence has fewer."""
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
        """Independent draws from the posterior; the same cut may come more than once.

        A draw is a function of seed, epoch, the line's number and the number of the draw, whatever else is
        asked for at the same time. The lines given are numbered from `first_line`; `dpe segment` numbers a
        file from 0. Temperature divides the edge scores before the forward pass: below 1 the draws keep
        closer to the best cut. Scores and probabilities are those of temperature 1.
        """
        _refuse_below_one(n)
        drawing = Drawing(n=n, seed=seed, epoch=epoch, temperature=temperature)

        def answer(batch: ScoredBatch) -> list[list[Segmentation]]:
            return self._lists(batch, batch.sample(drawing))

        return self._ask(source, target, answer, first_line=first_line)

    @overload
    def posterior(self, source: str | None, target: str) -> Posterior: ...
    @overload
    def posterior(self, source: Strings | None, target: Strings) -> list[Posterior]: ...
    def posterior(self, source: str | Strings | None, target: str | Strings) -> Any:
        """The probability of a boundary after each character, and the entropy of every word's cuts."""
        return self._ask(source, target, ScoredBatch.posterior)

    @overload
    def score(self, source: str | None, target: str) -> Score: ...
    @overload
    def score(self, source: Strings | None, target: Strings) -> list[Score]: ...
    def score(self, source: str | Strings | None, target: str | Strings) -> Any:
        """Exact log p(y | x), the sum over all cuts, and bits per character."""
        return self._ask(source, target, self.batch_scores)

    def batch_scores(self, batch: ScoredBatch) -> list[Score]:
        """The answer of `score` about one batch."""
        characters = self._collator.characters
        unknown = ((characters.encode(e.marked) == characters.unknown).sum() for e in batch.examples)
        rows = zip(batch.log_partitions().tolist(), batch.examples, unknown, strict=True)
        return [Score(total, len(example.marked) + 1, int(count)) for total, example, count in rows]

    def example(self, line: int, source_pieces: list[str] | None, target: str) -> MixedExample:
        """A line for `answers`, from its source as cut and its target as text."""
        return mixed_example(self.vocabulary, line, source_pieces, target)

    @torch.inference_mode()
    def answers(
        self, examples: Iterable[MixedExample], answer: Callable[[ScoredBatch], Sequence[Answer]]
    ) -> list[Answer]:
        """One answer per example, in their order; batches hold examples of similar length."""
        found: dict[int, Answer] = {}
        budget = (self._batch_characters, self._batch_characters)
        for batch in batches_by_length(enumerate(examples), lambda item: self._size(item[1]), budget=budget):
            places, members = zip(*batch, strict=True)
            scored = ScoredBatch.of(self._model, self._collator, self.vocabulary, members)
            found.update(zip(places, answer(scored), strict=True))
        return [found[place] for place in range(len(found))]

    def _size(self, example: MixedExample) -> tuple[int, int]:
        """What an example takes of a batch's budget; a long line takes all of it."""
        source, target = example.size
        return (source, max(target, self._batch_characters)) if is_long(example) else (source, target)

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
        sources = self._checked_sources(source, count=len(targets), single=single)
        examples = (
            self.example(line, self.vocabulary.encode(left) if self.has_source else None, right)
            for line, (left, right) in enumerate(zip(sources, targets, strict=True), start=first_line)
        )
        found = self.answers(examples, answer)
        return found[0] if single else found

    def _checked_sources(self, source: str | Strings | None, *, count: int, single: bool) -> list[str]:
        """A source for each of `count` targets, which were one string if `single`."""
        self.refuse_wrong_source(given=source is not None)
        if source is None:
            return [""] * count  # which nobody reads
        sources = lines_of(source, "source")
        if isinstance(source, str) != single:
            target_is, source_is = ("one string", "a list") if single else ("a list", "one string")
            raise UserError(f"The target is {target_is} but the source is {source_is}; give two of a kind.")
        if len(sources) != count:
            raise UserError(f"There are {len(sources)} sources but {count} targets; give pairs.")
        return sources

    def refuse_wrong_source(self, *, given: bool) -> None:
        """A source must be given if, and only if, the segmenter was trained with one."""
        if given and not self.has_source:
            raise UserError("This segmenter was trained without a source; give no source (in Python None).")
        if self.has_source and not given:
            raise UserError("This segmenter was trained with a source; give the source of every target.")

    def _segmentation(self, cut: Cut, log_partition: float) -> Segmentation:
        ids = tuple(self.vocabulary.piece_ids(cut.pieces))
        return Segmentation(cut.pieces, ids, cut.score, log_partition)

    def _lists(self, batch: ScoredBatch, cuts: list[list[Cut]]) -> list[list[Segmentation]]:
        partitions = batch.log_partitions().tolist()
        rows = zip(cuts, partitions, strict=True)
        return [[self._segmentation(cut, partition) for cut in found] for found, partition in rows]


def fingerprint(directory: Path) -> str:
    """Tells two segmenters apart, wherever their directories lie: a hash of weights and vocabulary."""
    digest = hashlib.sha256()
    for name in (MODEL, VOCABULARY):
        digest.update(bytes.fromhex(file_hash(directory / name)))
    return digest.hexdigest()


def _refuse_below_one(n: int) -> None:
    if n < 1:
        raise UserError(f"n is {n}; ask for at least one cut.")
