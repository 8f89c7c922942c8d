"""What the threshold of `edge_scores` costs: the error of the gradient, and what it leaves to compute.

    python -m benchmarks.threshold [8000]

The error is the relative L2 error of the gradient of all parameters, without dropout, against threshold 0.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from benchmarks.record import record
from benchmarks.subjects import Collation, line_batches, text, trained_mixed
from benchmarks.training_step import active_share, start_probabilities
from dpe.model.batching import MixedBatch
from dpe.model.edge_scores import DEFAULT_THRESHOLD
from dpe.model.mixed import MixedTransformer
from dpe.segmenter.likelihood import batch_edge_scores, marginal_log_likelihood

THRESHOLDS = (1e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)
BATCHES, CHARACTERS = 2, 2_000
LARGEST_ERROR = 1e-4


def main(arguments: list[str]) -> None:
    for size in map(int, arguments or ["8000", "32000"]):
        record(f"threshold-{size}", threshold_errors(size))


def threshold_errors(size: int) -> dict[str, object]:
    """The worst error over a few batches, and the share of active positions, of every threshold."""
    model, collation = trained_mixed(size).eval(), Collation(size)
    batches = [collation.mixed(lines) for lines in line_batches(size, count=BATCHES, characters=CHARACTERS)]
    probabilities = [start_probabilities(model, batch) for batch in batches]
    exact = [gradient(model, batch, threshold=0.0) for batch in batches]
    rows = {}
    for threshold in THRESHOLDS:
        errors = [
            float((gradient(model, batch, threshold=threshold) - wanted).norm() / wanted.norm())
            for batch, wanted in zip(batches, exact, strict=True)
        ]
        active = active_share(probabilities, threshold=threshold)
        rows[f"{threshold:g}"] = {"largest_error": max(errors), "active_positions": active}
    good = [t for t in THRESHOLDS if rows[f"{t:g}"]["largest_error"] < LARGEST_ERROR]
    return {
        "text": text().name,
        "vocabulary": size,
        "thresholds": rows,
        "largest_with_error_below_1e-4": max(good, default=0.0),
        "default": DEFAULT_THRESHOLD,
    }


def gradient(model: MixedTransformer, batch: MixedBatch, *, threshold: float) -> Tensor:
    """The gradient of all parameters as one vector, in double precision. # [parameter]"""
    model.zero_grad()
    (-marginal_log_likelihood(batch_edge_scores(model, batch, threshold=threshold), batch).sum()).backward()  # type: ignore[no-untyped-call]
    return torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])


if __name__ == "__main__":
    main(sys.argv[1:])
