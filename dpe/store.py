"""Locks between processes, each on a small file. The lock of a process that died is free.

They are POSIX record locks: the system drops them with the process, however it ends, and worker processes do
not inherit them. The process that holds a lock can take it again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from dpe.errors import UserError


@contextmanager
def lock_file(path: Path, *, place: Path) -> Iterator[BinaryIO]:
    """A file to lock until the block ends; `place` is the directory that a complaint is about."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise UserError(f"{place}: cannot be written: {error.strerror}.") from error
    with file:
        yield file


def wait_for_lock(file: BinaryIO, *, shared: bool = False) -> None:
    """Lock the file when those who hold it have let go."""
    fcntl.lockf(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(file: BinaryIO) -> bool:
    """Lock the file for this process alone, unless another one holds it."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    file.truncate(0)
    file.write(f"{os.getpid()}\n".encode())  # for who looks; nothing reads it
    file.flush()
    return True
