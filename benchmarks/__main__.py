"""Run every benchmark in turn, each in a process of its own; results go to benchmarks/results."""

from __future__ import annotations

import subprocess
import sys

COMMANDS = (
    "training_step",
    "decoders",
    "decoders --vocabulary 32000",
    "time_shares",
    "time_shares --decoder words",
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
    for command in COMMANDS:
        print(f"benchmarks.{command}", file=sys.stderr, flush=True)
        if subprocess.run([sys.executable, "-m", *f"benchmarks.{command}".split()], check=False).returncode:
            failed.append(command)
    if failed:
        sys.exit(f"These benchmarks failed: {', '.join(failed)}.")
