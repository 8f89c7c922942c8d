"""Files: outputs that are absent or whole, inputs that may be compressed, and their cache."""

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache as once
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

from dpe.errors import UserError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the same module for older versions of Python

_BUFFER = 1 << 16
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}")
_DAMAGED = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError, EOFError)
ZSTD_CHECKSUM: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}  # which gzip and xz write anyway


class _Format(NamedTuple):
    """How compressed bytes are read from a file, and written to one."""

    reader: Callable[[BinaryIO], Any]
    writer: Callable[[BinaryIO], Any]


def _zstd_writer(file: BinaryIO) -> zstd.ZstdFile:
    """A frame also if nothing follows, since a file without any bytes would read as an incomplete one."""
    writer = zstd.ZstdFile(file, "wb", options=ZSTD_CHECKSUM)
    writer.write(b"")
    return writer


_FORMATS = {
    ".gz": _Format(
        lambda file: gzip.GzipFile(fileobj=file),
        # Without name and time, so that the bytes depend on the content only.
        lambda file: gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=6),
    ),
    ".xz": _Format(lzma.LZMAFile, partial(lzma.LZMAFile, mode="wb")),
    ".zst": _Format(zstd.ZstdFile, _zstd_writer),
}


@contextmanager
def os_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an error of the operating system into a sentence: `PATH: cannot be ACTION: reason.`"""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: cannot be {action}: {error.strerror}.") from error


# Outputs


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for writing bytes; it appears when the block ends without an error, and only then.

    The bytes are written to a temporary file in the same directory, reach the disk, and are renamed; the old
    content of `path` stays until then. A device or a pipe (/dev/null, /dev/stdout) is written directly.
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
            outputs.append(_open_output(path))
        refuse_same_file([output.path for output in outputs if output.aside is not None])
        yield tuple(output.file for output in outputs)
        for output in outputs:
            output.file.flush()
            if output.aside is not None:
                os.fsync(output.file.fileno())
            output.file.close()
        for output in outputs:
            if output.aside is not None:
                output.aside.replace(output.path)
    except BaseException as error:
        for output in outputs:
            with suppress(OSError):  # a full disk fails once more when the buffer is emptied
                output.file.close()
            if output.aside is not None:
                output.aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            names = " and ".join(map(str, paths))
            raise UserError(f"{names}: cannot be written: {error.strerror}.") from error
        raise


@contextmanager
def whole_compressed_files(*paths: Path) -> Iterator[tuple[BinaryIO, ...]]:
    """As `whole_files`, compressed according to the names' endings; equal content gives equal bytes."""
    with whole_files(*paths) as files, ExitStack() as stack:
        yield tuple(
            stack.enter_context(_compressor(file, path)) if is_compressed(path) else file
            for file, path in zip(files, paths, strict=True)
        )


@contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """A directory to fill, renamed to `path` when the block ends without an error, and removed otherwise.

    If another process was faster, its directory stays.
    """
    aside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with os_errors(path, "written"):
            aside.mkdir(parents=True)
            yield aside
            try:
                aside.replace(path)  # a directory replaces an empty one only
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def refuse_same_file(places: Sequence[Path]) -> None:
    """Refuse outputs whose resolved paths are equal."""
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UserError(f"{place}: is named for two outputs; give each its own file.")


def remove_leftovers(directory: Path, pattern: str = ".*") -> None:
    """Remove the temporary files of killed processes from a directory where no process writes now."""
    for path in directory.glob(pattern):
        if _LEFTOVER.fullmatch(path.name) and path.is_file():
            path.unlink(missing_ok=True)


def remove_leftovers_of(path: Path) -> None:
    """Remove the temporary files that killed processes left of one `whole_file`, which none writes now."""
    remove_leftovers(path.parent, f"{escape(_aside_prefix(path))}{'[0-9a-f]' * 12}")


class _Output(NamedTuple):
    """A file being written: to `aside`, which is renamed to `path`; a device has no `aside`."""

    file: BinaryIO
    path: Path
    aside: Path | None


def _open_output(path: Path) -> _Output:
    with os_errors(path, "written"):
        if path.exists() and not path.is_file() and not path.is_dir():
            return _Output(path.open("wb"), path, None)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        place = path.resolve()  # through a link: its target is replaced, the link stays
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.with_name(_aside_prefix(place) + secrets.token_hex(6))
        return _Output(aside.open("xb"), place, aside)


def _aside_prefix(path: Path) -> str:
    """The name between dots; a long one is its beginning and a hash, so that no two files share it."""
    name = path.name
    if len(name) > 40:
        name = f"{name[:27]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"
    return f".{name}."  # see _LEFTOVER


def _compressor(file: BinaryIO, path: Path) -> io.BufferedWriter:
    """A writer that compresses into `file`; closing it ends the compressed stream, not the file."""
    return io.BufferedWriter(_FORMATS[path.suffix].writer(file), _BUFFER)  # a call per line would be slow


# Inputs


@contextmanager
def reading(path: Path | None) -> Iterator[BinaryIO]:
    """The bytes of a file, expanded where the name ends in .gz, .xz or .zst; `None` or `-` is standard input.

    Damage in a compressed file is found while reading, so read inside the block: there it becomes a sentence.
    """
    if path is None or is_standard_stream(path):
        yield sys.stdin.buffer
        return
    with os_errors(path, "read"):
        file = path.open("rb")
    with file:
        try:
            yield _expanded(file, path)
        except _DAMAGED as error:
            raise UserError(f"{path}: is damaged or incomplete; make or download it again.") from error
        except OSError as error:
            if error.filename is not None:  # of another file
                raise
            raise UserError(f"{path}: cannot be read: {error.strerror}.") from error


def _expanded(file: BinaryIO, path: Path) -> BinaryIO:
    """The expanded content of `file`. The buffer makes iteration over lines run in C."""
    if not is_compressed(path):
        return file
    if path.suffix == ".gz" and os.fstat(file.fileno()).st_size == 0 and path.is_file():
        raise EOFError  # gzip itself reads an empty file as an empty text
    return cast(BinaryIO, io.BufferedReader(_FORMATS[path.suffix].reader(file), _BUFFER))


def is_compressed(path: Path) -> bool:
    """Whether the file is compressed, according to its name."""
    return path.suffix in _FORMATS


def is_standard_stream(path: Path | None) -> bool:
    """Whether `path` stands for standard input or output: `None`, or `-`."""
    return path is None or str(path) == "-"


def file_hash(path: Path) -> str:
    """Identifies a file by its content: SHA-256 in hexadecimal."""
    with os_errors(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Files made from an input


class Stamp(NamedTuple):
    """Tells two states of a file apart."""

    size: int
    time: int  # of the last change, in nanoseconds

    @classmethod
    def of(cls, path: Path) -> Stamp:
        with os_errors(path, "read"):
            status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: is not a file that can be read out of order; save it as a file.")
        return cls(status.st_size, status.st_mtime_ns)


def cached_file(path: Path, stamp: Stamp, cache: Path, kind: str) -> Path:
    """Where the `kind` of file made from this state of `path` is kept; those of older states are removed.

    The name includes the state, so a file that exists is valid: there is nothing to compare.
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
    directory, owner = Path(tempfile.mkdtemp(prefix="dpe-")), os.getpid()
    # A forked child inherits the exit handler, and must not act on it.
    atexit.register(lambda: shutil.rmtree(directory, ignore_errors=True) if os.getpid() == owner else None)
    return directory
