"""Text by line number: a file, lines in memory, a parallel text; compressed files are cached expanded."""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import shutil
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpe.errors import UserError
from dpe.files import (
    Stamp,
    cached_file,
    file_hash,
    is_compressed,
    reading,
    temporary_cache,
    whole_file,
    whole_text_file,
)
from dpe.store import make_once
from dpe.text.corpus import Pair, Strings, decode_line, line_bytes, one_line, read_lines

_CHUNK = 1 << 20
_OFFSET = np.dtype("<i8")

Text = str | Path | Strings  # the path of a file, or lines


class TextFile:
    """A text by line number without reading it into memory: 8 bytes per line say where each line ends.

    With `cache`, a directory, that index is kept there and memory-mapped, and built again when size or
    time of the text change; without it, it is in memory. A compressed text is expanded into `cache`, or
    into a temporary directory that is removed when the program ends. What is in `cache` is made once,
    whichever process needs it first. Safe in forked, spawned and threaded workers: a copy opens the text for
    itself, and reads share no position.
    """

    def __init__(self, path: Path, plain: Path, index: Path | None, digest: Path | None) -> None:
        """Use `open`. `path` is the user's file, `plain` has its text, `index` is where the line ends are."""
        self.path, self._kept_digest = path, digest
        self._plain = plain.absolute()
        self._stamp = Stamp.of(plain)  # before the index is built, so that a later change is noticed
        self._index = index and index.absolute()
        self._line_ends: NDArray[np.int64] | None = _line_ends(path, plain, index)
        self._count = len(self._line_ends)
        self._first_start = _mark_length(plain)
        self._descriptor: int | None = None

    @classmethod
    def open(cls, path: Path, *, cache: Path | None = None) -> TextFile:
        """Index `path`, or find its index; the whole text is checked to be UTF-8 when it is indexed."""
        stamp = Stamp.of(path)
        plain = path
        if is_compressed(path):
            cache = cache or temporary_cache()
            plain = make_once(cached_file(path, stamp, cache, "text"), partial(_expand, path))
        kept = [cached_file(path, stamp, cache, kind) if cache else None for kind in ("lines", "sha256")]
        return cls(path, plain, *kept)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> str:
        number = range(self._count)[number]  # counts from the end when negative; IndexError outside
        descriptor, ends = self._opened()
        start = int(ends[number - 1]) if number else self._first_start
        length = int(ends[number]) - start
        raw = os.pread(descriptor, length, start)
        if len(raw) != length or not (raw.endswith(b"\n") or number == self._count - 1):
            raise self._changed()
        return decode_line(raw, self.path, number + 1)

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(self._count))

    def digest(self) -> str:
        """Identifies the text by its content, wherever the file is and however it is compressed."""
        if self._kept_digest is None:
            return file_hash(self._plain)
        return make_once(self._kept_digest, self._write_digest).read_text(encoding="utf-8")

    def _write_digest(self, out: Path) -> None:
        with whole_text_file(out) as file:
            file.write(file_hash(self._plain))

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs: an index on disk is mapped there again, one in memory is sent along."""
        ends = self._line_ends if self._index is None else None
        return self.__dict__ | {"_descriptor": None, "_line_ends": ends}

    def _opened(self) -> tuple[int, NDArray[np.int64]]:
        if self._line_ends is None:
            self._line_ends = _line_ends(self.path, self._plain, self._index)
        if self._descriptor is None:
            # The name of an expanded text includes the state of its file; other processes may write it too.
            if not is_compressed(self.path) and Stamp.of(self._plain) != self._stamp:
                raise self._changed()
            self._descriptor = os.open(self._plain, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor).atexit = False
        return self._descriptor, self._line_ends

    def _changed(self) -> UserError:
        return UserError(f"{self.path}: changed while it was in use; start again.")


class MemoryText:
    """Lines in memory, with the interface of a `TextFile`: they read as if they came from a file."""

    def __init__(self, lines: Strings) -> None:
        content = b"".join(line_bytes(one_line(line)) for line in lines)
        self._digest = hashlib.sha256(content).hexdigest()
        raw_lines = io.BytesIO(content.removeprefix(codecs.BOM_UTF8))
        self._lines = [decode_line(raw, None, number) for number, raw in enumerate(raw_lines, start=1)]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> str:
        return self._lines[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def digest(self) -> str:
        """That of a file with these lines."""
        return self._digest


@dataclass(frozen=True)
class ParallelText:
    """Pairs by number; `source` is None for a target-only model."""

    source: TextFile | MemoryText | None
    target: TextFile | MemoryText

    @classmethod
    def open(cls, source: Text | None, target: Text, *, cache: Path | None = None) -> ParallelText:
        """Two texts, line by line, each a file or lines in memory; see `TextFile` for `cache`."""
        left, right = None if source is None else _open(source, cache), _open(target, cache)
        if left is not None and len(left) != len(right):
            left_name = left.path if isinstance(left, TextFile) else "the source"
            right_name = right.path if isinstance(right, TextFile) else "the target"
            raise UserError(
                f"{left_name} has {len(left)} lines but {right_name} has {len(right)}; "
                "a parallel text needs equally many lines."
            )
        return cls(left, right)

    def __len__(self) -> int:
        return len(self.target)

    def count(self) -> int:
        return len(self)

    def describe(self) -> dict[str, str | int | None]:
        """Enough to notice that another text is given."""
        source = None if self.source is None else self.source.digest()
        return {"lines": len(self), "source": source, "target": self.target.digest()}

    def __getitem__(self, number: int) -> Pair:
        return Pair(None if self.source is None else self.source[number], self.target[number])

    def __iter__(self) -> Iterator[Pair]:
        return (self[number] for number in range(len(self)))


def _open(text: Text, cache: Path | None) -> TextFile | MemoryText:
    return TextFile.open(Path(text), cache=cache) if isinstance(text, str | Path) else MemoryText(text)


def _mark_length(plain: Path) -> int:
    with plain.open("rb") as file:
        return len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0


def _line_ends(path: Path, plain: Path, index: Path | None) -> NDArray[np.int64]:
    """The offset after each line of `plain`: in memory, or mapped from `index`, made if absent."""
    if index is None:
        memory = io.BytesIO()
        _write_line_ends(path, plain, memory)
        return np.frombuffer(memory.getbuffer(), _OFFSET)
    make_once(index, partial(_index, path, plain))
    if index.stat().st_size == 0:  # which cannot be mapped
        return np.zeros(0, _OFFSET)
    return np.asarray(np.memmap(index, _OFFSET, mode="r"))  # indexing the base class is faster


def _expand(compressed: Path, plain: Path) -> None:
    with reading(compressed) as text, whole_file(plain) as file:
        shutil.copyfileobj(text, file, _CHUNK)


def _index(path: Path, plain: Path, index: Path) -> None:
    with whole_file(index) as file:
        _write_line_ends(path, plain, file)


def _write_line_ends(path: Path, plain: Path, index: BinaryIO) -> None:
    """Write the offset after each line of `plain`; text that is not UTF-8 is an error that names `path`."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position, last_end = 0, _mark_length(plain)
    with reading(plain) as file:
        while chunk := file.read(_CHUNK):
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                _raise_at_line(path)
            ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + (position + 1)
            index.write(ends.astype(_OFFSET).tobytes())
            position += len(chunk)
            last_end = int(ends[-1]) if len(ends) else last_end
    if decoder.getstate()[0]:  # the text ends inside a character
        _raise_at_line(path)
    if position > last_end:
        index.write(np.array([position], _OFFSET).tobytes())


def _raise_at_line(path: Path) -> None:
    """Read again line by line, to say where the text stops being UTF-8."""
    for _ in read_lines(path):
        pass
    raise UserError(f"{path}: changed while it was read; start again.")
