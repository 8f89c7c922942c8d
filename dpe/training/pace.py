"""Loss and speed over a part of an epoch, for the line that is shown and for the curve."""

from __future__ import annotations

import math
import time

from dpe.training.position import Position


class Pace:
    """Loss and speed since a point of the epoch."""

    def __init__(self, position: Position) -> None:
        self.restart(position)

    def restart(self, position: Position) -> None:
        self._nats, self._units, self._time = position.nats, position.units, time.monotonic()

    def bits(self, position: Position) -> float:
        return bits_of(position.nats - self._nats, position.units - self._units)

    def speed(self, position: Position) -> float:
        return (position.units - self._units) / max(time.monotonic() - self._time, 1e-9)


def bits_of(nats: float, units: float) -> float:
    return nats / max(units, 1.0) / math.log(2)
