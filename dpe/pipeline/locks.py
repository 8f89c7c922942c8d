"""Locks between processes that work in one run directory. The lock of a process that died is free.

They are POSIX record locks: the system drops them with the process, however it ends, and worker processes do
not inherit them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dpe.errors import UserError
from dpe.text.files import whole_text_file

_DIRECTORY = ".locks"


@contextmanager
def stage_lock(root: Path, name: str) -> Iterator[bool]:
    """Whether this process has the stage to itself until the block ends; it does not wait."""
    with _open(root, name.replace("/", ".")) as file:
        yield _try(file, fcntl.LOCK_EX)


@contextmanager
def shared_run(root: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Several processes may work on a run as long as they agree on its settings; else this one is refused."""
    path = root / _DIRECTORY / "settings.json"
    wanted = json.dumps(settings, indent=1, sort_keys=True, ensure_ascii=False)
    with _open(root, "run") as file:
        with _open(root, "start") as turn:
            fcntl.lockf(turn, fcntl.LOCK_EX)  # one looks at a time: two could not both have it alone
            fcntl.lockf(file, fcntl.LOCK_SH)
            if not path.exists() or path.read_text(encoding="utf-8") != wanted:
                if not _try(file, fcntl.LOCK_EX):
                    raise UserError(
                        f"{root}: another process works there with other settings; "
                        "wait for that one to end, or give another --out."
                    )
                with whole_text_file(path) as text:
                    text.write(wanted)
                fcntl.lockf(file, fcntl.LOCK_SH)
        yield


@contextmanager
def _open(root: Path, name: str) -> Iterator[BinaryIO]:
    directory = root / _DIRECTORY
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / f"{name}.lock").open("a+b")
    except OSError as error:
        raise UserError(f"{root}: cannot be written: {error.strerror}.") from error
    with file:
        yield file


def _try(file: BinaryIO, kind: int) -> bool:
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    file.truncate(0)
    file.write(f"{os.getpid()}\n".encode())  # for who looks; nothing reads it
    file.flush()
    return True
