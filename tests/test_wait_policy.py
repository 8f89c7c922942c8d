"""Waiting threads soon sleep in a command, unless the user chose otherwise; `import dpe` sets nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POLICY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SHOW = f"import os; print({{name: os.environ[name] for name in {POLICY} if name in os.environ}})"


def run(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python, without the variables that whoever runs the tests has set."""
    environment = {name: value for name, value in os.environ.items() if name not in POLICY}
    environment |= {"PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def spin_counts(place: Path, out: Path, **variables: str) -> list[str]:
    """What GNU OpenMP itself says in a command and its two workers, each time that it is loaded."""
    command = ("segment", "--segmenter", place / "lm", "--target", place / "x.fi", "--workers", "2")
    said = run("-m", "dpe", *command, "--out", out, OMP_DISPLAY_ENV="VERBOSE", **variables).stderr
    found = re.findall(r"GOMP_SPINCOUNT = '(\w+)'", said)
    if not found:
        pytest.skip("torch does not use GNU OpenMP")
    assert len(found) >= 3
    return found


def test_threads_soon_sleep_in_a_command_and_its_workers(segment_place: Path, tmp_path: Path) -> None:
    assert set(spin_counts(segment_place, tmp_path / "out")) == {"1500"}


@pytest.mark.parametrize(
    ("variables", "counts"),
    [
        ({"OMP_WAIT_POLICY": "ACTIVE"}, {"30000000000"}),
        ({"GOMP_SPINCOUNT": "7"}, {"7"}),
        ({"KMP_BLOCKTIME": "0"}, {"300000"}),  # which GNU OpenMP does not read
    ],
)
def test_what_the_user_has_set_stays_and_results_are_the_same(
    segment_place: Path, tmp_path: Path, variables: dict[str, str], counts: set[str]
) -> None:
    assert set(spin_counts(segment_place, tmp_path / "own", **variables)) == counts
    spin_counts(segment_place, tmp_path / "ours")
    assert (tmp_path / "own").read_bytes() == (tmp_path / "ours").read_bytes()


def test_a_user_s_own_variable_is_the_only_one() -> None:
    code = f"import sys, atexit; sys.argv = ['dpe', '--version']; atexit.register(exec, {SHOW!r}, {{}})\n"
    code += "from dpe.__main__ import main; main()"
    for own in ({}, *({name: "1"} for name in POLICY)):
        assert run("-c", code, **own).stdout.splitlines()[-1] == str(own or {"GOMP_SPINCOUNT": "1500"})


def test_a_program_that_imports_dpe_is_not_touched() -> None:
    assert run("-c", f"import dpe, dpe.__main__, dpe.cli; dpe.Segmenter; {SHOW}").stdout == "{}\n"
