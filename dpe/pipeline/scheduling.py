"""Running the stages of a plan: what is up to date is skipped, what another process makes is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from dpe.pipeline.artifacts import Artifacts, Stage, State
from dpe.pipeline.shared_run import stage_lock
from dpe.progress import Progress, duration

_SECONDS_BETWEEN_LOOKS = 1.0


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
    pending = list(stages)
    waiting = False
    while pending:
        finished = _make_one(pending, len(stages), artifacts, progress)
        if finished is not None:
            pending.remove(finished)
            waiting = False
            continue
        if not waiting:
            progress.say(f"waiting for another process, which makes {pending[0].name}")
            waiting = True
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _make_one(pending: Sequence[Stage], total: int, artifacts: Artifacts, progress: Progress) -> Stage | None:
    """The first stage that is up to date, or that can be made now; None when others have them all."""
    left = {stage.name for stage in pending}
    number = total - len(pending) + 1
    for stage in pending:
        if any(need.name in left for need in stage.needs):
            continue
        with stage_lock(artifacts.root, stage.name) as is_ours:
            if not is_ours:
                continue
            _make(stage, f"[{number}/{total}]", artifacts, progress)
            return stage
    return None


def _make(stage: Stage, label: str, artifacts: Artifacts, progress: Progress) -> None:
    if artifacts.state(stage) is State.DONE:
        artifacts.settle(stage)
        progress.say(f"{label} {stage.name}: up to date")
        return
    is_changed = artifacts.state(stage) is State.CHANGED
    progress.say(f"{label} {stage.name}" + (f": {_how_far(stage, artifacts)}" if is_changed else ""))
    begin = time.monotonic()
    artifacts.make(stage)
    progress.detail(f"{label} {stage.name}: {duration(time.monotonic() - begin)}")
