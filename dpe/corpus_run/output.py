"""An output file that is written bit by bit, survives being killed at any point, and knows what made it.

While the work lasts, `OUT.partial` holds the lines so far, and the record, `.OUT.dpe.json`, the configuration
and how many lines and bytes are certain. At the end the partial file becomes `OUT` (compressed first if its
name asks for it); the record stays, so that another configuration does not overwrite it by accident.
Bytes of the partial file that the record does not count are dropped when the work is resumed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from dpe.errors import UserError
from dpe.files import is_compressed, remove_leftovers_of, whole_compressed_files, whole_file
from dpe.settings import differing
from dpe.store import try_lock
from dpe.text.corpus import line_bytes

# Which dpe 0.1 recorded too.
_DEFAULTS = {"mode": "best", "n": 1, "temperature": 1.0, "source_dropout": 0.0, "seed": 1, "epoch": 0}


@dataclass(frozen=True)
class Record:
    """What is certain about an output. It may be a part, which begins at line `first` of a text."""

    configuration: Mapping[str, Any]
    lines: int = 0  # of the text up to here, also those before the first
    bytes: int = 0
    text: str = ""  # fingerprint of the text up to here
    totals: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False
    published: int | None = None  # bytes of the finished file, once it is in its place
    first: int = 0
    before: str = ""  # fingerprint of the text before the first line
    goes_on: bool = False  # whether the text has lines after these

    @classmethod
    def of(cls, path: Path) -> Record | None:
        """The record of an output; None where there is none."""
        sidecar = record_file(path)
        try:
            return cls(**json.loads(sidecar.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{sidecar} is damaged; give --force to start over.") from error

    def is_of(self, path: Path) -> bool:
        """Whether the finished output at `path` is as large as when it was written."""
        expected = self.published if is_compressed(path.resolve()) else self.bytes
        return expected in (None, _size(path))


def partial_file(path: Path) -> Path:
    """Where the lines of an output are until it is whole."""
    place = path.resolve()
    return place.with_name(place.name + ".partial")


def record_file(path: Path) -> Path:
    """Where the record of an output is."""
    place = path.resolve()
    return place.with_name(f".{place.name}.dpe.json")


class ResumableOutput:
    """`record` says where to resume; `append`, then `finish`, then `publish`; `close` in any case."""

    def __init__(self, path: Path, configuration: Mapping[str, Any], *, force: bool) -> None:
        """Resume what the same configuration began. What another configuration or program made is refused,
        or, with `force`, replaced.
        """
        self.path = path
        self._place = path.resolve()  # through a link: its target is replaced, the link stays
        if self._place.is_dir():
            raise UserError(f"{path} is a directory; give the name of a file.")
        self._partial = partial_file(path)
        self._sidecar = record_file(path)
        self._file: BinaryIO | None = None
        with ExitStack() as stack:
            lock = self._sidecar.with_suffix(".lock")
            if not stack.enter_context(try_lock(lock)):
                raise UserError(f"{path}: another process is writing it; wait for that one to end.")
            stack.callback(lock.unlink, missing_ok=True)
            fresh = Record(json.loads(json.dumps(dict(configuration))))
            found = None if force else self._find(fresh)
            self.record = found or fresh
            if not self.record.finished or self._partial.exists():
                try:
                    self._file = stack.enter_context(self._partial.open("ab"))
                    self._file.truncate(self.record.bytes)
                except OSError as error:
                    raise UserError(f"{self._partial}: cannot be written: {error.strerror}.") from error
                remove_leftovers_of(self._place)
                remove_leftovers_of(self._sidecar)
            if found is None:
                self._save()  # from now on an older file at `path` counts as given up
            self._open = stack.pop_all()

    def start_over(self) -> None:
        """Give up the lines so far."""
        assert self._file is not None
        self._file.truncate(0)
        self.record = Record(self.record.configuration)

    def begin(self, first: int, digest: str) -> None:
        """The output is a part, which begins at line `first` of the text; `digest` is of the lines before."""
        self.record = replace(self.record, first=first, lines=first, before=digest, text=digest)

    def append(self, lines: Iterable[str], *, count: int, digest: str, totals: Mapping[str, float]) -> None:
        """Write the next lines and make them certain; `count`, `digest`, `totals` are of all so far."""
        assert self._file is not None
        try:
            self._file.writelines(map(line_bytes, lines))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UserError(f"{self._partial}: cannot be written: {error.strerror}.") from error
        size = self._file.tell()
        self.record = replace(self.record, lines=count, bytes=size, text=digest, totals=dict(totals))
        self._save()

    def finish(self, *, goes_on: bool = False) -> None:
        """All lines are there; the text may go on after them."""
        self.record = replace(self.record, finished=True, goes_on=goes_on)
        self._save()

    def publish(self) -> None:
        """Put the finished output in its place, unless it is there already."""
        if self._file is not None and is_compressed(self._place):
            with self._partial.open("rb") as plain, whole_compressed_files(self._place) as (file,):
                shutil.copyfileobj(plain, file, 1 << 20)
            self.record = replace(self.record, published=self._place.stat().st_size)
            self._save()
            self._partial.unlink()
        elif self._file is not None:
            self._partial.replace(self._place)
        self.close()

    def close(self) -> None:
        """Leave the partial file, if there is one, for the next time."""
        self._file = None
        self._open.close()

    def _find(self, fresh: Record) -> Record | None:
        """The record to resume from, None to start; an error when something else would be lost."""
        record, partial, size = Record.of(self.path), _size(self._partial), _size(self._place)
        if record is None or (partial is None and not record.finished):
            if there := next((p for p, n in ((self._partial, partial), (self.path, size)) if n), None):
                raise UserError(
                    f"{there} already exists, and there is no record of how it was made; "
                    "choose another --out, or --force to overwrite it."
                )
            return None
        if not (record.bytes or size) or (partial is None and size is None):
            return None  # nothing was written, or somebody has removed it
        problem = None
        recorded = record.configuration
        asked = {k: v for k, v in recorded.items() if k in fresh.configuration or v != _DEFAULTS.get(k)}
        if other := next(differing(asked, fresh.configuration), None):
            key, old, new = other
            problem = f"was made with another configuration ({key.replace('_', ' ')} was {old} and is {new})"
        elif partial is None and not record.is_of(self._place):
            problem = "was changed after it was made"
        if problem:
            raise UserError(f"{self.path} {problem}; choose another --out, or --force to start over.")
        return record if partial is None or partial >= record.bytes else None

    def _save(self) -> None:
        with whole_file(self._sidecar) as file:
            file.write(json.dumps(asdict(self.record), indent=1, sort_keys=True).encode() + b"\n")


def _size(path: Path) -> int | None:
    """In bytes; None where there is no file."""
    return path.stat().st_size if path.exists() else None


class StreamOutput:
    """Standard output, a pipe or a device: written as it comes, and not resumable."""

    def __init__(self, file: BinaryIO, configuration: Mapping[str, Any]) -> None:
        self.record = Record(dict(configuration))
        self._file = file

    def append(self, lines: Iterable[str], *, count: int, digest: str, totals: Mapping[str, float]) -> None:
        try:
            self._file.write(b"".join(map(line_bytes, lines)))
            self._file.flush()
        except BrokenPipeError:
            raise  # the reader has gone, which is no error
        except OSError as error:
            raise UserError(f"The output cannot be written: {error.strerror}.") from error
        self.record = replace(self.record, lines=count, text=digest, totals=dict(totals))

    def begin(self, first: int, digest: str) -> None:
        self.record = replace(self.record, first=first, lines=first, before=digest, text=digest)

    def finish(self, *, goes_on: bool = False) -> None:
        self.record = replace(self.record, finished=True, goes_on=goes_on)

    def publish(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._file is not sys.stdout.buffer:
            with suppress(OSError):  # `append` has told what could not be written
                self._file.close()
