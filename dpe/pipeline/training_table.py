"""What the models of one or more runs took: networks, updates, hours, and how good they were on dev."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from dpe.evaluation.tables import Table
from dpe.pipeline.results import Results
from dpe.pipeline.run_labels import labels
from dpe.recipe.systems import SEGMENTER_TITLES


def training_table(runs: Sequence[Results]) -> Table:
    """A row for every segmenter and for the translators of every system, which differ in their seeds only."""
    rows = [[label, *row] for label, run in zip(labels(runs), runs, strict=True) for row in _rows(run)]
    columns = ["", "model", "network", "trained", "updates", "epochs", "on dev", "hours each"]
    return Table("Training", columns, rows, frozenset(columns[:3]), _note(runs))


def _rows(run: Results) -> list[list[str]]:
    titles = {f"translators/{system.name}": f"translator, {system.title}" for system in run.systems}
    titles |= {f"segmenters/{name}": f"segmenter, {title}" for name, title in SEGMENTER_TITLES.items()}
    trained = [(_model(name), stage) for name, stage in run.stages.items() if _model(name) in titles]
    return [
        [titles[name], *_cells([stage for _, stage in stages])]
        for name, stages in groupby(trained, key=lambda pair: pair[0])
    ]


def _model(stage: str) -> str:
    """`translators/dpe/seed-1` is one of `translators/dpe`."""
    return stage.partition("/seed-")[0]


def _cells(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    network, facts = stages[0]["settings"]["network"], [stage["facts"] for stage in stages]
    return [
        f"d {network['width']}, {network['encoder_layers']}+{network['decoder_layers']} layers",
        str(len(stages)),
        f"{_mean(facts, 'steps'):,.0f}",
        f"{_mean(facts, 'epochs'):.0f}" if _mean(facts, "epochs") >= 1 else "under 1",
        _on_dev(facts),
        f"{_mean(facts, 'training_seconds') / 3600:.2f}",
    ]


def _on_dev(facts: Sequence[Mapping[str, Any]]) -> str:
    if "dev_bits_per_character" in facts[0]:
        return f"{_mean(facts, 'dev_bits_per_character'):.3f} bits"
    return f"{_mean(facts, 'dev_bleu_greedy'):.2f} BLEU"


def _mean(facts: Sequence[Mapping[str, Any]], key: str) -> float:
    return fmean(float(one[key]) for one in facts)


def _is_cut_on_the_fly(run: Results) -> bool:
    """Whether a translator was trained on cuts that are made anew every epoch."""
    names = {system.name for system in run.recipe.systems if system.target == "dpe"}
    return any(system.name in names for system in run.systems)


def _note(runs: Sequence[Results]) -> str:
    trained = [(run, one) for run in runs for one in run.stages.values() if "network" in one["settings"]]
    used = [stage.get("machine") or run.machine for run, stage in trained]
    machines = dict.fromkeys(f"{one['cpu']}, {one['cores']} cores" for one in used)
    on_the_fly = any(_is_cut_on_the_fly(run) for run in runs)
    cutting = "Hours include cutting on the fly, which the first seed does for all. " if on_the_fly else ""
    return (
        "On dev: bits a character, or BLEU of greedy translations; of the best epoch. "
        f"{cutting}{'; '.join(machines)}."
    )
