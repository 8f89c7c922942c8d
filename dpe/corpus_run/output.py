"""An output file that is written bit by bit, survives being killed at any point, and knows what made it.

Beside `OUT` stand, while the work lasts, `OUT.partial`, the lines so far, and `.OUT.dpe.json`, the record:
the configuration, and how many lines and bytes are certain. The partial file becomes `OUT` at the end (packed
first if the name ends in .gz or .xz); the record stays, so that another configuration does not overwrite it
by accident. Bytes of the partial file that the record does not know of are cut off when the work goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from dpe.errors import UserError
from dpe.files import is_compressed, remove_leftovers_of, whole_compressed_files, whole_file
from dpe.settings import differing
from dpe.text.corpus import line_bytes


@dataclass(frozen=True)
class Record:
    """What is certain about an output."""

    configuration: Mapping[str, Any]
    lines: int = 0
    bytes: int = 0
    text: str = ""  # fingerprint of the input lines that these were made from
    totals: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False
    published: int | None = None  # bytes of the finished file, once it is in its place


def partial_file(path: Path) -> Path:
    """Where the lines of an output are until it is whole."""
    place = path.resolve()
    return place.with_name(place.name + ".partial")


class ResumableOutput:
    """`record` says where to go on; `append`, then `finish`, then `publish`; `close` in any case."""

    def __init__(self, path: Path, configuration: Mapping[str, Any], *, force: bool) -> None:
        """Find out what is there. What another configuration or program made is refused unless `force`,
        which starts over.
        """
        self.path = path
        place = path.resolve()  # through a link: its target is replaced, the link stays
        self._place = place
        if place.is_dir():
            raise UserError(f"{path} is a directory; give the name of a file.")
        self._partial = partial_file(path)
        self._sidecar = place.with_name(f".{place.name}.dpe.json")
        fresh = Record(json.loads(json.dumps(dict(configuration))))
        there = None if force else self._find(fresh)
        self.record = there or fresh
        self._file = None if there and there.finished and not self._partial.exists() else self._open()
        if there is None:
            self._save()  # from now on what is at `path` counts as given up

    def append(self, lines: Iterable[str], *, count: int, digest: str, totals: Mapping[str, float]) -> None:
        """Write the next lines and make them certain; `count`, `digest`, `totals` are of all so far."""
        assert self._file is not None
        content = b"".join(map(line_bytes, lines))
        try:
            self._file.write(content)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise UserError(f"{self._partial}: cannot be written: {error.strerror}.") from error
        size = self.record.bytes + len(content)
        self.record = replace(self.record, lines=count, bytes=size, text=digest, totals=dict(totals))
        self._save()

    def finish(self) -> None:
        """All lines are there."""
        self.record = replace(self.record, finished=True)
        self._save()

    def publish(self) -> None:
        """Put the finished output in its place, unless it is there already."""
        if self._file is None:
            return
        if is_compressed(self._place):
            with self._partial.open("rb") as plain, whole_compressed_files(self._place) as (file,):
                shutil.copyfileobj(plain, file, 1 << 20)
            self.record = replace(self.record, published=self._place.stat().st_size)
            self._save()
            self._partial.unlink()
        else:
            self._partial.replace(self._place)
        self.close()

    def close(self) -> None:
        """Leave the partial file as it is, for the next time."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _find(self, fresh: Record) -> Record | None:
        """The record to go on from, None to begin; an error when something else would be lost."""
        is_old = self._place.exists() and self._place.stat().st_size > 0
        record = self._read_record()
        has_partial = self._partial.exists()
        if record is not None and (record.lines or is_old) and (has_partial or record.finished):
            if not (has_partial or self._place.exists()):
                return None  # somebody has removed the output
            self._refuse_other(record, fresh)
            self._refuse_changed(record, has_partial=has_partial)
            return record if not has_partial or self._partial.stat().st_size >= record.bytes else None
        if record is None and has_partial and self._partial.stat().st_size > 0:
            raise UserError(
                f"{self._partial} exists, and nothing is known about how it was made; "
                "give another --out, or move it."
            )
        if is_old:
            raise UserError(
                f"{self.path} exists, and nothing is known about how it was made; "
                "give another --out, or --force to overwrite it."
            )
        return record if record == fresh and has_partial else None

    def _refuse_other(self, there: Record, fresh: Record) -> None:
        for key, old, new in differing(there.configuration, fresh.configuration):
            raise UserError(
                f"{self.path} was {'made' if there.finished else 'begun'} with another configuration "
                f"({key.replace('_', ' ')} was {old} and is {new}); "
                "give another --out, or --force to start over."
            )

    def _refuse_changed(self, record: Record, *, has_partial: bool) -> None:
        size = record.published if is_compressed(self._place) else record.bytes
        if not has_partial and size is not None and self._place.stat().st_size != size:
            raise UserError(
                f"{self.path} was changed after it was made; give another --out, or --force to start over."
            )

    def _read_record(self) -> Record | None:
        try:
            return Record(**json.loads(self._sidecar.read_text(encoding="utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise UserError(f"{self._sidecar} is damaged; give --force to start over.") from error

    def _save(self) -> None:
        content = json.dumps(asdict(self.record), indent=1, sort_keys=True)
        with whole_file(self._sidecar) as file:
            file.write(content.encode() + b"\n")

    def _open(self) -> BinaryIO:
        """The partial file, cut to what is certain, for this process alone."""
        try:
            self._place.parent.mkdir(parents=True, exist_ok=True)
            file = self._partial.open("ab")
        except FileExistsError as error:
            raise UserError(f"{self.path}: cannot be written: {self.path.parent} is a file.") from error
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {error.strerror}.") from error
        try:  # flock, unlike the locks of dpe.store, keeps two outputs of this very process apart too
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise UserError(
                f"{self.path}: another process is writing it; wait for that one to end."
            ) from error
        if not self._is_partial(file):
            file.close()
            raise UserError(f"{self.path}: another process has just ended writing it; start again.")
        file.truncate(self.record.bytes)
        remove_leftovers_of(self._place)
        remove_leftovers_of(self._sidecar)
        return file

    def _is_partial(self, file: BinaryIO) -> bool:
        """Whether the file that is now ours is still the partial one, as long as the record says."""
        ours = os.fstat(file.fileno())
        with suppress(FileNotFoundError):
            if os.path.samestat(ours, self._partial.stat()):
                if ours.st_size >= self.record.bytes:
                    return True
                if ours.st_size == 0:
                    self._partial.unlink()  # it has just been made, by us
        return False


class StreamOutput:
    """Standard output, a pipe or a device: written as it comes, begun anew every time."""

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

    def finish(self) -> None:
        self.record = replace(self.record, finished=True)

    def publish(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._file is not sys.stdout.buffer:
            with suppress(OSError):  # `append` has told what could not be written
                self._file.close()
