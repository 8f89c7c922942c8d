"""`dpe`, `python -m dpe` and `torchrun -m dpe` all start here."""

from __future__ import annotations

import io
import os
import sys

_WAIT_POLICY = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SPIN_COUNT = "1500"


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, Ctrl-C is 130."""
    if not any(name in os.environ for name in _WAIT_POLICY):
        # OpenMP's threads spin 300,000 times where they wait for each other, which starves them if anything
        # else runs on the machine; without any spinning a small network trains a third slower on a quiet one.
        # They read this once, when torch is loaded; workers inherit it.
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the shell has closed it (`>&-`)
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in any locale; other bytes in file names are escaped
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        from dpe.cli import run  # noqa: PLC0415  (an interrupt while modules load is caught here)

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        os._exit(130)
    exec("")  # else Python ends by signal, whatever the code, if the last exec of a string was interrupted
    sys.exit(code)


if __name__ == "__main__":
    main()
