"""Benchmark results as files: the numbers, and what made them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dpe.files import whole_text_file
from dpe.machine import machine, versions

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("dpe", "ctranslate2", "numpy", "ray", "sentencepiece", "subword-nmt", "torch")


def record(name: str, numbers: dict[str, Any]) -> Path:
    """Write `results/NAME.json`: command, versions, machine, numbers. No date: runs compare."""
    path = RESULTS / f"{name}.json"
    content = {"command": command(), "versions": versions(PACKAGES), "machine": machine(), "numbers": numbers}
    with whole_text_file(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")
    return path


def command() -> str:
    """What was typed, without this machine's paths."""
    main = sys.modules["__main__"].__spec__
    program = f"python -m {main.name}" if main else f"python {Path(sys.argv[0]).name}"
    return " ".join([program, *sys.argv[1:]])
