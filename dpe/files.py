"""Files: outputs that are either absent or whole, inputs that may be packed (.gz, .xz), and their cache."""

from __future__ import annotations

import atexit
import errno
import gzip
import hashlib
import io
import lzma
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache as once
from glob import escape
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO, cast

from dpe.errors import UserError

PACKED_SUFFIXES = (".gz", ".xz")
_BUFFER = 1 << 16
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}")
_DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing bytes; it appears when the block ends well, and not at all otherwise.

    The bytes go to a file beside it first, reach the disk, and are renamed into place; what was at
    `path` before stays until then. A device or a pipe (/dev/null, /dev/stdout) is written directly.
    """
    with whole_files(path) as (file,):
        yield file


@contextmanager
def whole_text_file(path: Path) -> Iterator[TextIO]:
    """As `whole_file`, for UTF-8 text whose lines end at `\\n` only."""
    with whole_file(path) as binary:
        text = io.TextIOWrapper(binary, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()


@contextmanager
def whole_files(*paths: Path) -> Iterator[tuple[BinaryIO, ...]]:
    """As `whole_file`, for files that belong together: all are complete before the first is renamed."""
    outputs: list[_Output] = []
    try:
        for path in paths:
            outputs.append(_Output.open(path))
        refuse_same_file([output.path for output in outputs if output.aside is not None])
        yield tuple(output.file for output in outputs)
        for output in outputs:
            output.finish()
        for output in outputs:
            output.rename()
    except BaseException as error:
        for output in outputs:
            output.discard()
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            raise UserError(f"{_joined(paths)}: cannot be written: {error.strerror}.") from error
        raise


@contextmanager
def whole_packed_files(*paths: Path) -> Iterator[tuple[BinaryIO, ...]]:
    """As `whole_files`, packed where the name ends in .gz or .xz; equal content gives equal bytes."""
    with whole_files(*paths) as files, ExitStack() as stack:
        yield tuple(
            stack.enter_context(_packing(file, path)) for file, path in zip(files, paths, strict=True)
        )


@contextmanager
def reading(path: Path | None) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where the name ends in .gz or .xz; `None` or `-` is standard input.

    Damage in a packed file is found while reading, so read inside the block: that is where it becomes
    a sentence.
    """
    if path is None or is_standard_stream(path):
        yield sys.stdin.buffer
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from error
    with file:
        try:
            yield _unpacking(file, path)
        except _DAMAGED as error:
            raise UserError(f"{path}: is damaged or cut short; make or fetch it again.") from error
        except OSError as error:
            if error.filename is not None:  # of another file
                raise
            raise UserError(f"{path}: cannot be read: {error.strerror}.") from error


def is_packed(path: Path) -> bool:
    """Whether the name says that the file is compressed."""
    return path.suffix in PACKED_SUFFIXES


def is_standard_stream(path: Path | None) -> bool:
    """Whether `path` stands for standard input or output: absent, or `-`."""
    return path is None or str(path) == "-"


class Stamp(NamedTuple):
    """What tells two states of a file apart."""

    size: int
    time: int  # of the last change, in nanoseconds

    @classmethod
    def of(cls, path: Path) -> Stamp:
        try:
            status = path.stat()
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}.") from error
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: is not a file that can be read out of order; save it as a file.")
        return cls.of_status(status)

    @classmethod
    def of_status(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_size, status.st_mtime_ns)


def file_hash(path: Path) -> str:
    """Tells two files apart by their bytes, as hexadecimal SHA-256."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from error


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """A directory to fill, renamed to `path` when the block ends well, and gone otherwise.

    If another process was faster, its directory stays.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        aside.mkdir(parents=True)
        yield aside
        _rename_unless_filled(aside, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _rename_unless_filled(aside: Path, path: Path) -> None:
    try:
        aside.replace(path)  # a directory replaces an empty one only
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def remove_leftovers(directory: Path) -> None:
    """Remove what a kill left of `whole_file`s in a directory where nobody writes now."""
    _remove_leftovers(directory.iterdir())


def remove_leftovers_of(path: Path) -> None:
    """Remove what a kill left of one `whole_file` that nobody writes now."""
    _remove_leftovers(path.parent.glob(f"{escape(_aside_prefix(path))}{'[0-9a-f]' * 12}"))


def _remove_leftovers(paths: Iterable[Path]) -> None:
    for path in paths:
        if _LEFTOVER.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def _aside_prefix(path: Path) -> str:
    """The name, or of a long one its beginning and a hash, so that no two files have the same."""
    name = path.name
    if len(name) > 40:
        name = f"{name[:27]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"
    return f".{name}."  # see _LEFTOVER


def cached_file(path: Path, stamp: Stamp, cache: Path, kind: str) -> Path:
    """Where the `kind` of file made from this state of `path` is kept; those of older states are removed.

    The name holds the state, so a file that exists is valid: there is nothing to compare.
    """
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:12]
    wanted = cache / f"{path.name}.{place}.{stamp.size}-{stamp.time}.{kind}"
    for other in cache.glob(f"{escape(path.name)}.{place}.*.{kind}"):
        if other != wanted:
            other.unlink(missing_ok=True)
    return wanted


@once
def temporary_cache() -> Path:
    """A directory for this process and its children, removed when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="dpe-"))
    atexit.register(_remove_if_owner, directory, os.getpid())
    return directory


def _remove_if_owner(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child inherits the exit handler, and must not act on it
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class _Output:
    """One file in the making: `file` writes to `aside`, which becomes `path`; no `aside` for a device."""

    file: BinaryIO
    path: Path
    aside: Path | None

    @classmethod
    def open(cls, path: Path) -> _Output:
        try:
            if path.exists() and not path.is_file() and not path.is_dir():
                return cls(path.open("wb"), path, None)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            path = path.resolve()  # through a link: its target is replaced, the link stays
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(_aside_prefix(path) + secrets.token_hex(6))
            return cls(aside.open("xb"), path, aside)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}.") from error

    def finish(self) -> None:
        self.file.flush()
        if self.aside is not None:
            os.fsync(self.file.fileno())
        self.file.close()

    def rename(self) -> None:
        if self.aside is not None:
            self.aside.replace(self.path)

    def discard(self) -> None:
        with suppress(OSError):  # a full disk fails once more when the buffer is emptied
            self.file.close()
        if self.aside is not None:
            self.aside.unlink(missing_ok=True)


def refuse_same_file(places: Sequence[Path]) -> None:
    """Of resolved paths, each of which is to be written."""
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UserError(f"{place}: is named for two outputs; give each its own file.")


@contextmanager
def _packing(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """A writer that packs into `file`; the end of the block ends the packed stream, not the file."""
    if not is_packed(path):
        yield file
        return
    packer = cast(io.RawIOBase, _packer(file, path))
    with io.BufferedWriter(packer, _BUFFER) as buffer:  # a call of the packer per line would be slow
        yield cast(BinaryIO, buffer)


def _packer(file: BinaryIO, path: Path) -> gzip.GzipFile | lzma.LZMAFile:
    if path.suffix == ".xz":
        return lzma.LZMAFile(file, "wb")
    # No name and no time inside: the bytes depend on the content only.
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6)


def _unpacking(file: BinaryIO, path: Path) -> BinaryIO:
    """`file` unpacked. The buffer above makes iteration over lines run in C."""
    if path.suffix == ".gz":
        if os.fstat(file.fileno()).st_size == 0 and path.is_file():
            raise EOFError  # gzip itself takes no bytes at all for an empty text
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER))
    if path.suffix == ".xz":
        return cast(BinaryIO, io.BufferedReader(lzma.LZMAFile(file), _BUFFER))
    return file


def _joined(paths: tuple[Path, ...]) -> str:
    return " and ".join(str(path) for path in paths)
