"""How processes that work in one run directory keep out of each other's way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dpe.errors import UserError
from dpe.locks import lock_file, try_lock, wait_for_lock
from dpe.text.files import whole_text_file

_DIRECTORY = ".locks"


@contextmanager
def stage_lock(root: Path, name: str) -> Iterator[bool]:
    """Whether this process has the stage to itself until the block ends; it does not wait."""
    with _lock_file(root, name.replace("/", ".")) as file:
        yield try_lock(file)


@contextmanager
def shared_run(root: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Several processes may work on a run as long as they agree on its settings; else this one is refused."""
    path = root / _DIRECTORY / "settings.json"
    wanted = json.dumps(settings, indent=1, sort_keys=True, ensure_ascii=False)
    with _lock_file(root, "run") as file:
        with _lock_file(root, "start") as turn:
            wait_for_lock(turn)  # one looks at a time: two could not both have it alone
            wait_for_lock(file, shared=True)
            if not path.exists() or path.read_text(encoding="utf-8") != wanted:
                if not try_lock(file):
                    raise UserError(
                        f"{root}: another process works there with other settings; "
                        "wait for that one to end, or give another --out."
                    )
                with whole_text_file(path) as text:
                    text.write(wanted)
                wait_for_lock(file, shared=True)
        yield


def _lock_file(root: Path, name: str) -> AbstractContextManager[BinaryIO]:
    return lock_file(root / _DIRECTORY / f"{name}.lock", place=root)
