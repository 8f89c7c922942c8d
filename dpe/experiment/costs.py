"""What a run costs: each model, and the whole workflow of each system, by the seconds that were logged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from dpe.evaluation.tables import Table
from dpe.experiment.results import Results
from dpe.experiment.systems import SEGMENTER_TITLES
from dpe.experiment.tables import labels, mean_of
from dpe.model.settings import model_settings
from dpe.segmenter.settings import SegmenterSettings
from dpe.translator.settings import TranslatorSettings

# `translators/dpe/seed-1` is one of `translators/dpe`, `segmenters/mixed-seed-2` of `segmenters/mixed`
_SEED = re.compile(r"[/-]seed-[0-9]+$")


def training_table(runs: Sequence[Results]) -> Table:
    """A row for every segmenter and for the translators of every system, which differ in their seeds only."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        titles = {f"translators/{system.name}": f"translator, {system.title}" for system in run.systems}
        titles |= {f"segmenters/{name}": f"segmenter, {title}" for name, title in SEGMENTER_TITLES.items()}
        stages = [(_SEED.sub("", name), stage) for name, stage in run.stages.items()]
        trained = (pair for pair in stages if pair[0] in titles)
        for name, group in groupby(trained, key=lambda pair: pair[0]):
            rows.append([label, titles[name], *_training_cells([stage for _, stage in group])])
    columns = ["", "model", "network", "trained", "updates", "epochs", "on dev", "hours each"]
    return Table("Training", columns, rows, frozenset(columns[:3]), _training_note(runs))


def _training_cells(stages: Sequence[Mapping[str, Any]]) -> list[str]:
    facts = [stage["facts"] for stage in stages]
    is_segmenter = "dev_bits_per_character" in facts[0]
    kind = SegmenterSettings if is_segmenter else TranslatorSettings
    network = model_settings(stages[0]["settings"], kind, "results.json")
    return [
        f"d {network.width}, {network.encoder_layers}+{network.decoder_layers} layers",
        str(len(stages)),
        f"{mean_of(facts, 'steps'):,.0f}",
        f"{mean_of(facts, 'epochs'):.0f}" if mean_of(facts, "epochs") >= 1 else "under 1",
        f"{mean_of(facts, 'dev_bits_per_character'):.3f} bits"
        if is_segmenter
        else f"{mean_of(facts, 'dev_bleu_greedy'):.2f} BLEU",
        f"{mean_of(facts, 'training_seconds') / 3600:.2f}",
    ]


def _training_note(runs: Sequence[Results]) -> str:
    on_the_fly = any(
        {system.name for system in run.recipe.systems if system.target == "dpe"}
        & {system.name for system in run.systems}
        for run in runs
    )
    cutting = "Hours include cutting on the fly, which the first seed does for all. " if on_the_fly else ""
    return (
        "On dev: bits a character, or BLEU of greedy translations; of the best epoch. "
        f"{cutting}{_machines(runs)}."
    )


def _machines(runs: Sequence[Results]) -> str:
    """Where the models were trained."""
    models = ("segmenters/", "translators/")
    trained = [(run, one) for run in runs for name, one in run.stages.items() if name.startswith(models)]
    used = [stage.get("machine") or run.machine for run, stage in trained]
    return "; ".join(dict.fromkeys(f"{one['cpu']}, {one['cores']} cores" for one in used))


def cost_tables(runs: Sequence[Results]) -> list[Table]:
    """Minutes of everything that one translator of a system needs; nothing if an earlier dpe trained them."""
    rows = []
    for label, run in zip(labels(runs), runs, strict=True):
        costs = {system.name: _minutes(run, system.name) for system in run.recipe.systems}
        known = {name: cost for name, cost in costs.items() if cost is not None}
        first = sum(next(iter(known.values()), ()))
        for name, cost in known.items():
            minutes = [f"{part:.1f}" if part else "" for part in (*cost, sum(cost))]
            rows.append([label, run.titles[name], *minutes, f"{sum(cost) / first:.2f}" if first else ""])
    columns = ["", "system", "segmenter", "segmenting", "translator", "all", "times the first"]
    note = (
        "Means of seeds. Segmenting: of the training text, once if targets are fixed, else for every epoch; "
        "like the segmenter it serves all seeds. Translator: without waiting for targets. Trainings include "
        f"their evaluations. {_machines(runs)}."
    )
    return [Table("Minutes of computing", columns, rows, frozenset(columns[:2]), note)] if rows else []


def _minutes(run: Results, system: str) -> tuple[float, float, float] | None:
    """Of its segmenter, of segmenting the training text, of its translator."""
    (name,) = (one.segmenter for one in run.recipe.systems if one.name == system)
    trained = [
        stage["facts"] for key, stage in run.stages.items() if _SEED.sub("", key) == f"translators/{system}"
    ]
    if not trained or any(facts.get("targets_took_seconds") is None for facts in trained):
        return None
    segmenters = [
        stage["facts"]
        for key, stage in run.stages.items()
        if name and _SEED.sub("", key) == f"segmenters/{name}"
    ]
    segmenter = mean_of(segmenters, "training_seconds") if segmenters else 0.0
    translator = mean_of(trained, "training_seconds") - mean_of(trained, "waited_for_targets_seconds")
    return segmenter / 60, mean_of(trained, "targets_took_seconds") / 60, translator / 60
