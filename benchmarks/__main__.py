"""Run every benchmark in turn, each in a process of its own; results go to benchmarks/results."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "training_step",
    "decoders",
    "time_shares",
    "threshold",
    "scaling",
    "dropout",
    "loading",
    "segmenting",
    "distillation",
    "translating",
    "ray",
    "contention",
)

if __name__ == "__main__":
    failed = []
    for module in MODULES:
        print(f"benchmarks.{module}", file=sys.stderr, flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{module}"], check=False).returncode:
            failed.append(module)
    if failed:
        sys.exit(f"These benchmarks failed: {', '.join(failed)}.")
