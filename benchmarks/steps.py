"""One training step (forward, backward, clip, Adam) of each contender, ready to be timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.subjects import Collation, trained_mixed, translation_model, untrained_mixed
from benchmarks.textbook import Table, table, textbook_log_likelihood
from dpe.model.batching import MixedBatch, TranslationBatch
from dpe.model.edge_scores import DEFAULT_THRESHOLD
from dpe.model.mixed import MixedTransformer
from dpe.model.translation import TranslationTransformer
from dpe.training.objectives import batch_edge_scores, label_smoothed_cross_entropy, marginal_log_likelihood

CONTENDERS = ("mixed", "translation", "textbook")


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
    if contender == "translation":
        return translation_step(translation_model(size))
    if contender == "untrained":
        return mixed_step(untrained_mixed(size))
    model = trained_mixed(size)
    return mixed_step(model) if contender == "mixed" else textbook_step(model)


def mixed_step(model: MixedTransformer, *, threshold: float = DEFAULT_THRESHOLD) -> Step:
    def loss(batch: MixedBatch) -> tuple[Tensor, int]:
        scores = batch_edge_scores(model, batch, threshold=threshold)
        return -marginal_log_likelihood(scores, batch).sum(), batch.character_count

    return Step(model, loss)


def textbook_step(model: MixedTransformer) -> Step:
    def loss(item: tuple[MixedBatch, Table]) -> tuple[Tensor, int]:
        return -textbook_log_likelihood(model, *item).sum(), item[0].character_count

    return Step(model, loss)


def translation_step(model: TranslationTransformer) -> Step:
    def loss(batch: TranslationBatch) -> tuple[Tensor, int]:
        return label_smoothed_cross_entropy(model, batch, smoothing=0.1)[0], batch.token_count

    return Step(model, loss)


def make_batches(contender: str, size: int, lines: Sequence[list[int]]) -> list[Any]:
    """The batches of these lines as a contender reads them."""
    collation = Collation(size)
    if contender == "translation":
        return [collation.translation(batch) for batch in lines]
    mixed = [collation.mixed(batch) for batch in lines]
    return [(batch, table(batch)) for batch in mixed] if contender == "textbook" else mixed


def interleaved(
    steps: Mapping[str, Step], batches: Mapping[str, Sequence[Any]], *, repetitions: int
) -> dict[str, list[float]]:
    """Seconds of each contender for all its batches, one after the other, `repetitions` times in turn."""
    for name, step in steps.items():  # warm up: the first step allocates
        step.run(batches[name][0])
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repetitions):
        for name, step in steps.items():
            begin = time.perf_counter()
            for batch in batches[name]:
                step.run(batch)
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def medians(seconds: Mapping[str, Sequence[float]], batch_count: int) -> dict[str, float]:
    """Median seconds of one step."""
    return {name: median(values) / batch_count for name, values in seconds.items()}
