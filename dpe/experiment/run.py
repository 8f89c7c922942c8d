"""`run_experiment`: a recipe in, a directory with every artifact, the table and the results out."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpe.errors import UserError
from dpe.evaluation.tables import Table, plain
from dpe.experiment.artifacts import LOCKS, Artifacts, Stage, State, write_json
from dpe.experiment.outputs import EXAMPLES
from dpe.experiment.recipe import Recipe, recipe_json
from dpe.experiment.results import PLAN, RECIPE, RESULTS, write_results
from dpe.experiment.systems import OWN_TITLES, SEGMENTER_TITLES
from dpe.experiment.tables import all_texts_tables, paper_tables
from dpe.files import whole_text_file
from dpe.progress import VERBOSE, Progress, duration
from dpe.settings import nearest
from dpe.store import key_of, lock, try_lock

if TYPE_CHECKING:
    from dpe.experiment.stages import Experiment

TABLE = "table.txt"
_SECONDS_BETWEEN_LOOKS = 1.0
# Fields that say what is run and where, not how: processes that differ in them may work side by side.
_FREE_FIELDS = ("name", "about", "data", "seeds", "systems", "examples", "resources")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of an experiment; empty is all of it."""

    systems: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


def plan(experiment: Experiment, part: Part = Part()) -> list[Stage]:
    """All stages of the part in the order in which they are made: first the segmentations, then seed by seed.

    Records of earlier versions are adopted.
    """
    recipe, artifacts = experiment.recipe, Artifacts(experiment.root)
    names, seeds = [system.name for system in recipe.systems], list(map(str, recipe.seeds))
    for kind, chosen, valid in (("system", part.systems, names), ("seed", map(str, part.seeds), seeds)):
        for one in chosen:
            if one not in valid:
                raise UserError(f"The recipe {recipe.name} has no {kind} {one}; {nearest(one, valid)}")
    systems = [one for one in recipe.systems if not part.systems or one.name in part.systems]
    numbers = [seed for seed in recipe.seeds if not part.seeds or seed in part.seeds]
    segmenters = dict.fromkeys(system.segmenter for system in systems if system.segmenter)
    wanted = [
        *(experiment.segmentation(name) for name in segmenters),
        *(experiment.distillation(name) for name in segmenters if recipe.distill),
        *(experiment.scores(system, seed) for seed in numbers for system in systems),
    ]
    groups = [*((seed,) for seed in numbers), *([recipe.seeds] if len(recipe.seeds) > 1 else [])]
    tests = [
        experiment.significance(system, baseline, group)
        for group, system, baseline in product(groups, systems, experiment.baselines)
        if system not in (baseline, recipe.systems[0])
    ]
    for stage in in_order([*wanted, *tests]):
        artifacts.adopt(stage)
    planned = {stage.name: stage for stage in in_order(wanted)}
    for test in tests:
        # The baseline's translations may be of this plan or made before; a test is no reason to make them.
        if all(need.name in planned or artifacts.state(need) is State.DONE for need in test.needs):
            planned |= {stage.name: stage for stage in (*test.needs, test) if stage.name not in planned}
    return list(planned.values())


def make_here(stages: Sequence[Stage], experiment: Experiment) -> None:
    """Make the stages in this process."""
    run_stages(stages, Artifacts(experiment.root), experiment.session.progress)


def run_experiment(
    experiment: Experiment,
    part: Part = Part(),
    *,
    make: Callable[[Sequence[Stage], Experiment], None] = make_here,
) -> list[Table]:
    """Make what is not up to date, write the results, and give them as tables: scores, tests, examples."""
    recipe, root = experiment.recipe, experiment.root
    stages = plan(experiment, part)
    for name in (RECIPE, RESULTS, TABLE):  # a run writes its plan first
        if (root / name).exists() and not (root / PLAN).exists():
            raise UserError(f"{root / name} already exists and was not created by dpe; choose another --out.")
    with shared_run(root, fixed_settings(experiment)):
        _write_plan(experiment)
        make(stages, experiment)
        _write_plan(experiment)  # again: another process may have other systems and seeds
        results = write_results(root)
    more = all_texts_tables([results])[:1] if len(recipe.evaluated) > 2 else []
    tables = [*paper_tables([results]), *more, *example_tables(recipe, root, stages)]
    with whole_text_file(root / TABLE) as file:
        file.write("\n\n".join(map(plain, tables)) + "\n")
    kinds = dict.fromkeys(stage.name.partition("/")[0] for stage in stages)
    experiment.session.progress.say(f"{root / TABLE}: the table")
    experiment.session.progress.say(f"{root / RESULTS}: all scores with settings, signatures and versions")
    experiment.session.progress.say(f"{root}: {', '.join(f'{kind}/' for kind in kinds)}")
    return tables


def example_tables(recipe: Recipe, root: Path, stages: Sequence[Stage]) -> list[Table]:
    """The most frequent words that a segmenter and the vocabulary itself cut differently."""
    tables, own = [], OWN_TITLES[recipe.vocabulary.type]
    for stage in stages:
        if EXAMPLES in stage.outputs:
            words = json.loads((root / stage.name / EXAMPLES).read_text(encoding="utf-8"))
            rows = [[word["word"], word["a"], word["b"]] for word in words[: recipe.examples]]
            columns = ["word", own, SEGMENTER_TITLES[stage.name.removeprefix("segmentations/")]]
            title = f"Words of {recipe.cut[0]} that are cut differently, the most frequent first"
            tables.append(Table(title, columns, rows, frozenset(columns)))
    return [table for table in tables if table.rows]


def _write_plan(experiment: Experiment) -> None:
    """What the results are collected from."""
    signatures = {stage.name: stage.signature for stage in plan(experiment)}
    write_json(experiment.root / PLAN, signatures)
    write_json(experiment.root / RECIPE, recipe_json(experiment.recipe))


def fixed_settings(experiment: Experiment) -> dict[str, Any]:
    """What processes in one directory must agree on, with the text and the systems of the recipe itself."""
    recipe = experiment.recipe
    fixed = {key: value for key, value in asdict(recipe).items() if key not in _FREE_FIELDS}
    own = {system.name: asdict(system) for system in recipe.systems if system.is_own}
    text = experiment.vocabulary(recipe.vocabulary.type).signature
    return fixed | {"text": text, "own_systems": own}


def in_order(wanted: Iterable[Stage]) -> list[Stage]:
    """The stages and all that they need, each after its needs."""
    found: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.name not in found:
            for need in stage.needs:
                visit(need)
            found[stage.name] = stage

    for stage in wanted:
        visit(stage)
    return list(found.values())


def describe(stages: Sequence[Stage], artifacts: Artifacts) -> list[str]:
    """The plan as lines: stage, signature, and how far it is."""
    width = max((len(stage.name) for stage in stages), default=0)
    return [f"{stage.name:{width}}  {stage.signature}  {_how_far(stage, artifacts)}" for stage in stages]


def _how_far(stage: Stage, artifacts: Artifacts) -> str:
    state = artifacts.state(stage)
    return f"{state.value}: {artifacts.what_changed(stage)}" if state is State.CHANGED else state.value


def run_stages(stages: Sequence[Stage], artifacts: Artifacts, progress: Progress) -> None:
    """Make every stage that is not up to date. Another process may do the same at the same time."""
    pending, is_waiting = list(stages), False
    while pending:
        left = {stage.name for stage in pending}
        label = f"[{len(stages) - len(pending) + 1}/{len(stages)}]"
        for stage in pending:
            if any(need.name in left for need in stage.needs):
                continue
            with try_lock(artifacts.lock_file(stage.name)) as is_ours:
                if is_ours:
                    _make(stage, label, artifacts, progress)
                    pending.remove(stage)
                    is_waiting = False
                    break
        else:
            if not is_waiting:
                progress.say(f"waiting for another process, which makes {pending[0].name}")
            is_waiting = True
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _make(stage: Stage, label: str, artifacts: Artifacts, progress: Progress) -> None:
    state = artifacts.state(stage)
    if state is State.DONE:
        artifacts.settle(stage)
        progress.say(f"{label} {stage.name}: up to date")
        return
    is_changed = state is State.CHANGED
    progress.say(f"{label} {stage.name}" + (f": {_how_far(stage, artifacts)}" if is_changed else ""))
    begin = time.monotonic()
    artifacts.make(stage)
    progress.say(f"{label} {stage.name}: {duration(time.monotonic() - begin)}", level=VERBOSE)


@contextmanager
def shared_run(root: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Several processes may work on a run if they agree on its settings; one that does not is refused.

    Each holds a lock of its own, whose name has the key of its settings.
    """
    same = f"run-{key_of(settings)}"
    own = root / LOCKS / f"{same}-{secrets.token_hex(6)}.lock"
    with ExitStack() as stack:
        with lock(root / LOCKS / "start.lock"):  # two that start together look one after the other
            for other in own.parent.glob("run-*.lock"):
                with try_lock(other) as is_free:
                    if is_free:
                        other.unlink(missing_ok=True)  # of a process that was killed
                    elif not other.name.startswith(same):
                        raise UserError(
                            f"{root}: another process is working there with other settings; "
                            "wait for it to end, or choose another --out."
                        )
            stack.enter_context(try_lock(own))
            stack.callback(own.unlink, missing_ok=True)
        yield
