"""Progress of long work on standard error: one live line on a terminal, occasional plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

Item = TypeVar("Item")

QUIET, NORMAL, VERBOSE = 0, 1, 2
_SECONDS_BETWEEN_PLAIN_LINES = 10.0


class Progress:
    """Messages while something runs. The command line makes one and passes it down."""

    def __init__(self, level: int = NORMAL) -> None:
        self.level = level
        self._status: Status | None = None
        self._last_plain_line = time.monotonic()

    def __reduce__(self) -> tuple[type[Progress], tuple[int]]:
        """In another process it has a line of its own."""
        return Progress, (self.level,)

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console  # noqa: PLC0415  (a help text should not wait for it)

        return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def say(self, text: str, *, level: int = NORMAL) -> None:
        """One line that stays; with level VERBOSE only --verbose shows it."""
        if self.level >= level:
            self._console.print(text)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Within this block, `update` rewrites one line on a terminal."""
        if self.level < NORMAL or self._status is not None or not self._console.is_terminal:
            yield  # inside another block the line is that block's
            return
        try:
            with self._console.status("") as self._status:
                yield
        finally:
            self._status = None

    def update(self, text: str) -> None:
        """The state of the work; replaces the last one on a terminal, and is mostly skipped elsewhere."""
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() - self._last_plain_line >= _SECONDS_BETWEEN_PLAIN_LINES:
            self._last_plain_line = time.monotonic()
            self.say(text)

    def track(self, items: Iterable[Item], name: str) -> Iterator[Item]:
        """Yield the items and show how many have passed, and how fast."""
        clock = Clock(None)
        with self.live():
            for count, item in enumerate(items, start=1):
                yield item
                if count % 64 == 0:
                    self.update(f"{name}: {clock.state(count)}")


class Clock:
    """Speed and, if the total is known, time left."""

    def __init__(self, total: int | None, *, done: int = 0) -> None:
        self._begin = time.monotonic()
        self._total = total
        self._done_before = done

    def state(self, done: int) -> str:
        """`1,200 of 5,000 lines, 310 a second, 0:12 left`."""
        speed = (done - self._done_before) / max(time.monotonic() - self._begin, 1e-9)
        if self._total is None:
            return f"{done:,} lines, {speed:,.0f} a second"
        left = (self._total - done) / speed if speed > 0 else 0.0
        return f"{done:,} of {self._total:,} lines, {speed:,.0f} a second, {duration(left)} left"


def duration(seconds: float) -> str:
    """`0:12`, `3:05`, `2:10:00`."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"
