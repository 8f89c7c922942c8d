"""`dpe segment` in tests: the usual command, with other options, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEGMENT = ["segment", "--segmenter", "segmenter", "--device", "cpu", "--workers", "1"]
TEXT = ["--source", "x.en", "--target", "x.fi"]
Dpe = Callable[..., tuple[str, str]]  # the fixture `dpe`: standard output and standard error


def changed(command: list[str], *change: str) -> list[str]:
    """A command with other values for some of its options, or with more options."""
    pairs = zip([*command[1::2], *change[::2]], [*command[2::2], *change[1::2]], strict=True)
    return [command[0], *(word for pair in dict(pairs).items() for word in pair)]


def start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dpe", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
