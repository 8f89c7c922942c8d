"""One training in several processes of this machine, started as torchrun does"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import parent_process
from pathlib import Path
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from dpe.errors import UserError
from dpe.machine import cores
from dpe.training.processes import Session
from dpe.training.state import Position


def in_processes(train: Callable[..., Position], session: Session, count: int) -> Position:
    """What `train(session=...)` gives, by so many processes together, which share the threads.

    `train` is pickled. The processes end with this one, however that ends.
    """
    if count == 1:
        return train(session=session)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id="training",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="spawn",
    )
    shared = replace(session, threads=max(1, (session.threads or cores()) // count))
    with TemporaryDirectory() as place:
        said = Path(place) / "error"
        try:
            positions: dict[int, Position] = elastic_launch(config, _train)(train, shared, said)
        except ChildFailedError as error:
            lost = "A process of the training was lost, possibly out of memory; start again to resume."
            raise UserError(said.read_text(encoding="utf-8") if said.exists() else lost) from error
        except SignalException as error:
            raise KeyboardInterrupt from error
    return positions[0]


def _train(train: Callable[..., Position], session: Session, said: Path) -> Position:
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:  # at once, so that whoever resumes the training finds it unlocked
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        return train(session=session)
    except UserError as error:
        said.write_text(str(error), encoding="utf-8")  # the same in all processes, or of the only one
        raise SystemExit(1) from error
