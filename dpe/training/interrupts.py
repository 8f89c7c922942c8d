"""What Ctrl-C and a termination do while a model is trained."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def put_off() -> Iterator[list[int]]:
    """Let the update under way finish and be saved; the list holds the signals that came."""
    received: list[int] = []
    with _handled(lambda number, _: received.append(number)):
        yield received


@contextmanager
def at_once() -> Iterator[None]:
    """Inside `put_off`, stop at once what can go on where it was."""
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def _handled(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Only the main thread may, and needs to, handle signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
