"""Limits the total time that a turn waits for its store.

A stuck store thus costs each client the same, however many rounds its turn has. What a work waits
for a connection does not count; see `memory.stores.sql.engine.waiting`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from memory.stores.sql.engine.waiting import told_of_connection

# Plus the wait of a search for its index: one second.
TURN_SECONDS = 0.8


class StoreDeadline:
    """The seconds that are left to one turn.

    A read that its request cannot continue without is not counted.
    """

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self.seconds_left = seconds

    @contextlib.contextmanager
    def of(self, max_seconds: float) -> Iterator[float]:
        """Yield the seconds that one wait may take, at most so many; then deduct the time taken."""
        granted_seconds = min(max_seconds, self.seconds_left)
        began = time.monotonic()
        waits = True

        def begin() -> None:
            nonlocal began, waits
            # A second connection is a second try of the same work.
            if waits:
                began = time.monotonic()
                waits = False

        try:
            with told_of_connection(begin):
                yield granted_seconds
        finally:
            self.seconds_left = max(
                0.0, self.seconds_left - min(granted_seconds, time.monotonic() - began)
            )
