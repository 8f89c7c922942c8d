"""The stages of a run on a Ray cluster, each as a task with its own resources, when what it needs is made"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpe.corpus_run.cluster import NotMade, Step, connected
from dpe.errors import UserError
from dpe.experiment.artifacts import Artifacts, Stage, State
from dpe.experiment.recipe import Recipe
from dpe.experiment.results import PLAN
from dpe.experiment.run import plan, run_stages
from dpe.experiment.stages import Experiment
from dpe.progress import duration
from dpe.training.processes import Session

_NETWORKS = ("segmenters/", "segmentations/", "translators/")  # translations are CTranslate2's, on CPUs
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_TO_SEE = 120.0  # what another machine has written; network file systems remember what was not there


def make_on_cluster(stages: Sequence[Stage], experiment: Experiment) -> None:
    """Make the stages as `run_stages` does. A stage whose machine is lost is resumed on another one.

    Where one fails, those that do not need it are made nevertheless; then the first error is raised.
    """
    session, recipe = experiment.session, experiment.recipe
    with connected(session.ray, cpus=session.threads, progress=session.progress) as cluster:
        assert cluster is not None
        on_gpu = cluster.device(session.device) == "cuda"
        steps, errors = [], []
        for stage in stages:
            own = recipe.resources.of(stage.name)
            usual = own.processes if stage.name.startswith(_NETWORKS) else 0
            gpus = (usual if own.gpus is None else own.gpus) if on_gpu else 0
            needs = tuple(need.name for need in stage.needs)
            steps.append(Step(stage.name, needs, cpus=own.cpus, gpus=gpus))
        here = replace(recipe, data=str(Path(recipe.data).expanduser().absolute()))
        signatures = {stage.name: stage.signature for stage in stages}
        maker = _Maker(here, experiment.root.absolute(), signatures)
        for count, (name, found) in enumerate(cluster.steps(maker, steps), start=1):
            if isinstance(found, UserError) and not isinstance(found, NotMade):
                errors.append(found)
            session.progress.say(f"[{count}/{len(steps)}] {name}: {found}")
    if errors:
        raise errors[0]


@dataclass(frozen=True)
class _Maker:
    """Makes a stage on a machine of the cluster, which must see the same files."""

    recipe: Recipe
    root: Path
    signatures: Mapping[str, str]

    def __call__(self, step: Step) -> str:
        """Gives how long it took."""
        machine = f"The machine {socket.gethostname()} of the cluster"
        if not (self.root / PLAN).exists():
            raise UserError(f"{machine} does not see {self.root}; choose an --out on a shared file system.")
        session = Session(device="auto" if step.gpus else "cpu", threads=step.cpus, workers=step.cpus)
        experiment, artifacts = Experiment(self.recipe, self.root, session), Artifacts(self.root)
        (stage,) = [one for one in plan(experiment) if one.name == step.name]
        if stage.signature != self.signatures[step.name]:
            raise UserError(f"{machine} has other texts, or another dpe, than where the run was started.")
        self._wait_for_needs(stage, artifacts, machine)
        begin = time.monotonic()
        run_stages([stage], artifacts, session.progress)
        return duration(time.monotonic() - begin)

    def _wait_for_needs(self, stage: Stage, artifacts: Artifacts, machine: str) -> None:
        begin = time.monotonic()
        while missing := [need.name for need in stage.needs if artifacts.state(need) is not State.DONE]:
            if time.monotonic() - begin > _SECONDS_TO_SEE:
                raise UserError(
                    f"{machine} does not see {missing[0]}, which another machine has made in {self.root}."
                )
            time.sleep(_SECONDS_BETWEEN_LOOKS)
