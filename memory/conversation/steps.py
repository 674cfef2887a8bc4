"""What a thread does between two short steps of long work. Pure: its owner says what.

A step holds the interpreter lock, and the event loop gets it after each. A request needs it some
twenty times, so it would wait for twenty steps if the thread went on at once every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _ThreadPause(threading.local):
    pause: Callable[[], None] | None = None


_current = _ThreadPause()


def end_step() -> None:
    """Let others run if the owner of this thread wants it; on the event loop do nothing."""
    pause = _current.pause
    if pause is not None:
        pause()


@contextmanager
def pausing_with(pause: Callable[[], None]) -> Iterator[None]:
    """Call `pause` after each step of this thread while the context lasts."""
    before = _current.pause
    _current.pause = pause
    try:
        yield
    finally:
        _current.pause = before
