"""`dpe`, `python -m dpe` and `torchrun -m dpe` all start here."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; a user's mistake is one sentence and exit code 2, Ctrl-C is 130."""
    from dpe.cli import run  # noqa: PLC0415  (an interrupt while modules load is caught below)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        os._exit(130)
