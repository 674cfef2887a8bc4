"""How long a turn waits for its store: all its waits together, so that a store that is stuck costs
each client the same little, however many rounds its turn has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

TURN_SECONDS = 0.8  # with what a search waits for its index (`indexing`), one second


class StoreDeadline:
    """The seconds that are left to one turn.

    A read that its request cannot do without is not of them.
    """

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self.left = seconds

    @contextlib.contextmanager
    def of(self, most: float) -> Iterator[float]:
        """Gives the seconds that one wait may take, `most` at the most; what it takes is spent."""
        granted, began = min(most, self.left), time.monotonic()
        try:
            yield granted
        finally:
            self.left = max(0.0, self.left - min(granted, time.monotonic() - began))
