"""`dpe`, `python -m dpe` and `torchrun -m dpe` all start here."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, Ctrl-C is 130."""
    _open_closed_streams()
    _write_utf8()
    try:
        from dpe.cli import run  # noqa: PLC0415  (an interrupt while modules load is caught here)

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        os._exit(130)
    exec("")  # else Python ends by signal, whatever the code, if the last exec of a string was interrupted
    sys.exit(code)


def _open_closed_streams() -> None:
    """Where the shell has closed a stream (`>&-`) Python has None, which nobody can write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _write_utf8() -> None:
    """Results are UTF-8 in any locale; bytes of a file's name that are not are shown as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    main()
