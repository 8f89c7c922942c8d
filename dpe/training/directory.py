"""The directory of a model while it is trained: one training's own, and one process's at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dpe.errors import UserError
from dpe.files import remove_leftovers
from dpe.model.checkpoint import write_settings
from dpe.store import try_lock
from dpe.text.vocabulary import Vocabulary
from dpe.training.processes import Processes

_LOCK = Path("cache", "training.lock")


@contextmanager
def model_directory(
    directory: Path, kind: str, settings: Mapping[str, Any], vocabulary: Vocabulary, processes: Processes
) -> Iterator[None]:
    """Begin a directory, or check that what is there was begun in the same way; others keep out of it."""
    with ExitStack() as stack:
        if processes.first:
            stack.enter_context(_alone(directory))
            write_settings(directory, kind, settings, vocabulary)
            remove_leftovers(directory)
        processes.wait()
        yield


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    with try_lock(directory / _LOCK) as is_alone:
        if not is_alone:
            raise UserError(f"{directory}: another process is training there; wait for that one to end.")
        yield
