"""Dynamic Programming Encoding: exact latent subword segmentation for machine translation."""

from __future__ import annotations

from dpe.errors import UserError
from dpe.version import __version__

__all__ = ["UserError", "__version__"]
