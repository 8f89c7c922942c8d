"""The temperature of drawn cuts: above 1 they vary more than the posterior, below 1 less."""

from __future__ import annotations

from dpe.errors import UserError

_LEAST, _MOST = 1e-100, 1e100  # beyond these a divided score would be infinite, or all would be alike


def check_temperature(temperature: float) -> None:
    """Refuse one that no score can be divided by."""
    if not _LEAST <= temperature <= _MOST:
        raise UserError(f"The temperature is {temperature}; give a number from {_LEAST:g} to {_MOST:g}.")
