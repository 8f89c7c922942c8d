"""Text files for tests: any characters, plain or compressed, and what their lines are by definition."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import strategies as st

from dpe.files import ZSTD_CHECKSUM, zstd

SUFFIXES = ("", ".gz", ".xz", ".zst")
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": partial(zstd.compress, options=ZSTD_CHECKSUM),
}
BOM = b"\xef\xbb\xbf"

# What UTF-8 cannot encode is left out.
characters = st.one_of(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"),
    st.sampled_from("\r\t\f\v\x00\x1c\x85\u2028\u2029\ufeff\u2581é😀 "),
)


def lines_by_definition(data: bytes) -> list[str]:
    """What a line is, said once more: cut at newlines, drop one return before each, decode."""
    *ended, last = data.removeprefix(BOM).split(b"\n")
    return [raw.removesuffix(b"\r").decode() for raw in ended] + ([last.decode()] if last else [])


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    return path
