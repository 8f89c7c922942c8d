"""One training step (forward, backward, clip, Adam) of each contender, ready to be timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import median, quantiles
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from benchmarks.subjects import NETWORK, Collation, trained_mixed, translation_model, untrained_mixed
from benchmarks.textbook import Table, full_cross_entropy, table, textbook_log_likelihood, torch_layers
from dpe.model.batching import MixedBatch, TranslationBatch
from dpe.model.device import keep_freed_memory
from dpe.model.edge_scores import DEFAULT_THRESHOLD
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer
from dpe.segmenter.likelihood import batch_edge_scores, marginal_log_likelihood
from dpe.translator.training import label_smoothed_cross_entropy

CONTENDERS = ("mixed", "translation", "textbook")
WORDS = "words"  # the mixed model with a decoder over words
OWN_LAYERS = "textbook with our layers"
OWN_LOSS = "translation with our loss"
KEEPING = " keeping freed memory"  # behind a contender's name: as our trainer runs it


class Step:
    """A model, its optimiser, and its loss of a batch.

    The learning rate is 0: the optimiser does its whole work, and the weights stay those of 300 steps.
    """

    def __init__(self, model: nn.Module, loss: Callable[[Any], tuple[Tensor, int]]) -> None:
        self.model, self.loss = model.train(), loss
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def run(self, batch: Any) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss, units = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.update(units)

    def update(self, units: int) -> None:
        """What the trainer does with the gradients: divide, clip, step."""
        parameters = list(self.model.parameters())
        torch._foreach_div_([p.grad for p in parameters if p.grad is not None], units)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        self.optimizer.step()


def make_step(contender: str, size: int) -> Step:
    """A contender, or the mixed model untrained, with a vocabulary of that size."""
    if contender.endswith(KEEPING):
        keep_freed_memory()
        contender = contender.removesuffix(KEEPING)
    if contender in ("translation", OWN_LOSS):
        return translation_step(translation_model(size), own_loss=contender == OWN_LOSS)
    if contender == "untrained":
        return mixed_step(untrained_mixed(size))
    model = trained_mixed(size, replace(NETWORK, decoder="words") if contender == WORDS else NETWORK)
    if contender in ("mixed", WORDS):
        return mixed_step(model)
    return textbook_step(model, own_layers=contender == OWN_LAYERS)


def mixed_step(model: MixedTransformer, *, threshold: float = DEFAULT_THRESHOLD) -> Step:
    def loss(batch: MixedBatch) -> tuple[Tensor, int]:
        scores = batch_edge_scores(model, batch, threshold=threshold)
        return -marginal_log_likelihood(scores, batch).sum(), batch.character_count

    return Step(model, loss)


def textbook_step(model: MixedTransformer, *, own_layers: bool) -> Step:
    def loss(item: tuple[MixedBatch, Table]) -> tuple[Tensor, int]:
        with nullcontext() if own_layers else torch_layers():
            return -textbook_log_likelihood(model, *item).sum(), item[0].character_count

    return Step(model, loss)


def translation_step(model: TranslationTransformer, *, own_loss: bool = False) -> Step:
    """With the loss as it is usually written, or with ours, which does not hold all logits."""

    def loss(batch: TranslationBatch) -> tuple[Tensor, int]:
        ours, usual = label_smoothed_cross_entropy, full_cross_entropy
        value = ours(model, batch, smoothing=0.1)[0] if own_loss else usual(model, batch, smoothing=0.1)
        return value, batch.token_count

    return Step(model, loss)


def make_batches(contender: str, size: int, lines: Sequence[list[int]]) -> list[Any]:
    """The batches of these lines as a contender reads them."""
    collation = Collation(size)
    if contender.startswith("translation"):
        return [collation.translation(batch) for batch in lines]
    mixed = [collation.mixed(batch) for batch in lines]
    return [(batch, table(batch)) for batch in mixed] if "textbook" in contender else mixed


class Runs(Protocol):
    """What is timed."""

    def run(self, batch: Any) -> None: ...


def interleaved(
    steps: Mapping[str, Runs], batches: Mapping[str, Sequence[Any]], *, repetitions: int
) -> dict[str, list[float]]:
    """Seconds of each contender for all its batches, `repetitions` times; they take turns at every batch."""
    for name, step in steps.items():  # warm up: the first steps allocate
        for batch in batches[name]:
            step.run(batch)
    seconds: dict[str, list[float]] = {name: [0.0] * repetitions for name in steps}
    turns = list(zip(*(batches[name] for name in steps), strict=True))
    for repetition in range(repetitions):
        for turn in turns:
            for (name, step), batch in zip(steps.items(), turn, strict=True):
                begin = time.perf_counter()
                step.run(batch)
                seconds[name][repetition] += time.perf_counter() - begin
    return seconds


def seconds_of_rounds(
    works: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    warm_up: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Each work in turn, `rounds` times over after some that are not counted; and what they returned."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    results = {}
    for turn in range(-warm_up, rounds):
        for name, work in works.items():
            begin = clock()
            results[name] = work()
            if turn >= 0:
                seconds[name].append(clock() - begin)
    return seconds, results


def medians(seconds: Mapping[str, Sequence[float]], batch_count: int = 1) -> dict[str, float]:
    """Median seconds of one step."""
    return {name: median(values) / batch_count for name, values in seconds.items()}


def ratio(seconds: Mapping[str, Sequence[float]], one: str, other: str) -> dict[str, float]:
    """How many times as long one takes as the other: median and quartiles over the repetitions.

    Within a repetition, because the speed of a shared machine changes from one to the next.
    """
    ratios = [a / b for a, b in zip(seconds[one], seconds[other], strict=True)]
    low, middle, high = quantiles(ratios, n=4)
    return {"median": middle, "lower_quartile": low, "upper_quartile": high}
