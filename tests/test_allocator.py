"""Freed memory stays with the process: no page of a later step is asked of the system again."""

from __future__ import annotations

import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from dpe.model.device import keep_freed_memory

def step():
    tensors = [torch.ones(10_000_000) for _ in range(4)]  # 40 MB each

if sys.argv[1] == "keep" and not keep_freed_memory():
    print("not glibc")
    sys.exit()
for _ in range(4):  # the first ones grow the process
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(mode: str) -> int:
    finished = subprocess.run(
        [sys.executable, "-c", STEPS, mode], capture_output=True, text=True, check=True, timeout=240
    )
    if "not glibc" in finished.stdout:
        pytest.skip("the C library is not glibc")
    return int(finished.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_used_again() -> None:
    assert 10 * page_faults("keep") < page_faults("default")
