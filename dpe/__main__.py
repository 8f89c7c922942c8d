"""`dpe`, `python -m dpe` and `torchrun -m dpe` all start here."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, Ctrl-C is 130."""
    try:
        from dpe.cli import run  # noqa: PLC0415  (an interrupt while modules load is caught here)

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        os._exit(130)
    sys.exit(code)


if __name__ == "__main__":
    main()
