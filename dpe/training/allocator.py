"""Where the memory of a training step comes from."""

from __future__ import annotations

import ctypes
import sys

# glibc's mallopt: its keys, from malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed for the next step; False where the C library is another one.

    By default it gives a large tensor back to the system when it is freed, and the system clears the pages
    of the next one, which takes up to a quarter of a translator's step (`benchmarks.training_step`). The
    price: the process keeps the memory of its largest step.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, -1))
