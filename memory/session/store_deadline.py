"""Limits the total time that a turn waits for its store.

A stuck store thus costs each client the same, however many rounds its turn has.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

TURN_SECONDS = 0.8  # plus the wait of a search for its index: one second


class StoreDeadline:
    """The seconds that are left to one turn.

    A read that its request cannot continue without is not counted.
    """

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self.left = seconds

    @contextlib.contextmanager
    def of(self, most: float) -> Iterator[float]:
        """Yield the seconds that one wait may take, at most `most`; then deduct the time taken."""
        granted, began = min(most, self.left), time.monotonic()
        try:
            yield granted
        finally:
            self.left = max(0.0, self.left - min(granted, time.monotonic() - began))
