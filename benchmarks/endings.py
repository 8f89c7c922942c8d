"""How much a translator depends on the last updates of its training: greedy length and BLEU after each.

    python -m benchmarks.endings recipes/protocol/multi30k-en-de-gate.toml --out runs/gate --system bpe

makes one translator of a recipe as `dpe run` does, and `dpe run` takes over from there. It keeps the
weights of each of the last updates, and translates dev with all of them: alone, and averaged with the
epochs before the last one, as `average` does at the end. Killed within these updates, it knows fewer. The
same without decay is `--set translator.schedule=inverse-sqrt` in another `--out`. It measures BLEU and
lengths, not seconds, so the machine may be busy.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import correlation, fmean, stdev
from typing import Any

from torch import Tensor

import dpe.translator.training
from benchmarks.record import record
from dpe.evaluation.tables import Table, print_tables
from dpe.experiment.artifacts import Artifacts
from dpe.experiment.recipe import read_recipe
from dpe.experiment.run import in_order, run_stages
from dpe.experiment.stages import Experiment
from dpe.model.checkpoint import average_weights, put_weights, save_tensors
from dpe.training.processes import Session
from dpe.training.state import Position
from dpe.training.trainer import Trainer

Weights = Mapping[str, Tensor]
KINDS = ("bleu", "length", "averaged_bleu", "averaged_length")


class RecordingTrainer(Trainer):
    """Keeps the weights after each of the last updates, and scores them all at the end."""

    count = 20  # updates
    found: list[dict[str, float]]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._last: deque[dict[str, Any]] = deque(maxlen=self.count)

    def _update(self, batches: list[Any]) -> None:
        super()._update(batches)
        weights = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        words = [int(one.token_count) / len(one.lines) for one in batches if one is not None]
        self._last.append({"step": self.position.step, "tokens": fmean(words), "weights": weights})

    def train(self) -> Position:
        position = super().train()
        trained = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        type(self).found = [self._scored(**one) for one in self._last]
        put_weights(self.model, trained, name="the model")
        return position

    def _scored(self, *, step: int, tokens: float, weights: Weights) -> dict[str, float]:
        """Of the weights after an update, and of their mean with the epochs before the last one."""
        path = self.directory / "cache" / "ending.safetensors"
        save_tensors(path, weights, {})
        scores: dict[str, float] = {"step": step, "tokens_a_line": tokens}
        earlier = self.kept.to_average(self.settings.average)[1:]
        for prefix, used in (("", [path]), ("averaged_", [path, *earlier])):
            put_weights(self.model, average_weights(used), name="an ending")
            found = self.task.evaluate(self.processes)
            scores |= {f"{prefix}{key}": found[f"dev_{key}"] for key in ("bleu", "length")}
        path.unlink()
        return scores


def summary(endings: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Of each number over the updates; `r` is its correlation with the pieces a line of the last batches."""
    tokens = [one["tokens_a_line"] for one in endings]
    found = {}
    for kind in KINDS:
        values = [one[kind] for one in endings]
        found[kind] = {"mean": fmean(values), "deviation": stdev(values), "range": max(values) - min(values)}
        found[kind]["r"] = correlation(tokens, values) if stdev(tokens) and stdev(values) else 0.0
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="the directory of the run")
    parser.add_argument("--system", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--name", default="endings", help="of the file below benchmarks/results")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.recipe, arguments.changes)
    experiment = Experiment(recipe, arguments.out, Session(device="cpu", threads=1))
    (system,) = (one for one in recipe.systems if one.name == arguments.system)
    RecordingTrainer.count, RecordingTrainer.found = arguments.updates, []
    dpe.translator.training.Trainer = RecordingTrainer  # type: ignore[misc]
    stage = experiment.translator(system, arguments.seed)
    run_stages(in_order([stage]), Artifacts(experiment.root), experiment.session.progress)
    endings = RecordingTrainer.found
    if len(endings) < 2:
        raise SystemExit(
            f"{stage.name} was trained before, so its last updates are gone; choose another --out."
        )
    numbers = summary(endings)
    rows = [[kind, *(f"{value:.4f}" for value in found.values())] for kind, found in numbers.items()]
    print_tables([Table(f"The last {len(endings)} updates", ["", *numbers["bleu"]], rows, frozenset({""}))])
    settings = {"system": system.name, "seed": arguments.seed, "translator": stage.settings}
    print(record(arguments.name, {**settings, "summary": numbers, "updates": endings}))


if __name__ == "__main__":
    main()
