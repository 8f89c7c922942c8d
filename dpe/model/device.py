"""What computes: the device, CPU threads, and how a CPU keeps its memory."""

from __future__ import annotations

import ctypes
import re
import sys

import torch

from dpe.errors import UserError

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


def choose_device(name: str, *, local_rank: int = 0, bf16: bool = False) -> torch.device:
    """`auto` is a GPU where there is one; with many processes each takes its own, or the one that it sees.

    With `bf16` it must be a GPU: some CPUs that claim to know bfloat16 kill the process instead.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        seen = torch.cuda.device_count()
        if 1 < seen <= local_rank:
            raise UserError(f"There are more processes than GPUs; start at most {seen} on this machine.")
        name = f"cuda:{0 if seen == 1 else local_rank}"
    if not re.fullmatch(r"cpu|cuda:\d+", name):
        raise UserError(f"There is no device called {name!r}; use auto, cpu or cuda.")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("The device cuda was asked for, but torch sees no GPU; use --device cpu.")
    if bf16 and device.type != "cuda":
        raise UserError("bf16 is for GPUs, but the device is the CPU; leave bf16 out.")
    return device
