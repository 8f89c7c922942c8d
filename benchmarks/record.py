"""Benchmark results as files: the numbers, and what made them."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dpe.text.files import whole_text_file

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("dpe", "ctranslate2", "numpy", "sentencepiece", "subword-nmt", "torch")


def record(name: str, numbers: dict[str, Any]) -> Path:
    """Write `results/NAME.json`: command, versions, machine, numbers. No date: runs compare."""
    path = RESULTS / f"{name}.json"
    content = {"command": command(), "versions": versions(), "machine": machine(), "numbers": numbers}
    with whole_text_file(path) as file:
        json.dump(content, file, indent=2, ensure_ascii=False)
        file.write("\n")
    return path


def command() -> str:
    """What was typed, without this machine's paths."""
    main = sys.modules["__main__"].__spec__
    program = f"python -m {main.name}" if main else f"python {Path(sys.argv[0]).name}"
    return " ".join([program, *sys.argv[1:]])


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # not every benchmark needs every package
    return found


def machine() -> dict[str, str | int]:
    return {"cpu": _cpu_model(), "cores": os.cpu_count() or 1, "system": platform.system()}


def _cpu_model() -> str:
    """The processor's name; only Linux tells it in a file."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
