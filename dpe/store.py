"""Things that are made once and kept: a key from settings and inputs, a lock, whole or absent.

A lock belongs to one block of one process. It is held on a small file and ends with the process, however
that ends; forked and spawned processes do not inherit it. Only the block that holds it may remove the file.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dpe.errors import UserError

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def key_of(about: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits that stand for settings and inputs; the order of the keys is ignored."""
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock on a file until the block ends; False if another process or block holds it."""
    try:
        held = _acquire(path, blocking=False)
    except Timeout:
        held = None
    with held or nullcontext():
        yield held is not None


@contextmanager
def lock(path: Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """As `try_lock`, but wait for the lock; `waiting` is called before that, where it is not free."""
    with try_lock(path) as is_free:
        if is_free:
            yield
            return
    if waiting is not None:
        waiting()
    with _acquire(path, blocking=True):
        yield


def make_once(
    path: Path, make: Callable[[Path], object], *, waiting: Callable[[], None] | None = None
) -> Path:
    """`path`, made by `make` unless it exists; where another process is making it, wait.

    Its name holds its key, so one that exists is right. `make` must leave it whole or absent.
    """
    if not path.exists():
        file = path.with_name(f".{path.name}.lock")
        with lock(file, waiting=waiting):
            if not path.exists():  # the one who held the lock before may have made it
                make(path)
            file.unlink(missing_ok=True)
    return path


def _acquire(path: Path, *, blocking: bool) -> AbstractContextManager[object]:
    """The lock, which a `with` block releases."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path, thread_local=False, fallback_to_soft=False).acquire(blocking=blocking)
    except Timeout:
        raise
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise UserError(
                f"{path}: its file system does not support file locks ({error.strerror}); "
                "choose a directory on another one."
            ) from error
        reason = f"{path.parent} is a file" if isinstance(error, FileExistsError) else error.strerror
        raise UserError(f"{path}: cannot be written: {reason}.") from error
