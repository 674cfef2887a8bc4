"""Identifiers, and the time in them.

Public ids are 128 random bits; row keys grow with time so that they sort and index well. Workers of
one database may run on hosts whose clocks differ: each measures how far its own is from the
database's, and stores the database's time.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections import deque

MAX_KEY = 2**63 - 1
# Between keys of one process: a microsecond.
STEP = 1 << 12
# Processes that may make keys of one database.
SLOTS = STEP
# A smaller difference may be the way to the server.
SURE_SECONDS = 1.0
# Of the measures that are compared.
SAMPLES = 8
# Fetched in batches, since each call to the system is expensive.
_random: list[str] = []
os.register_at_fork(after_in_child=_random.clear)


class Clock:
    """This machine's clock, corrected. ahead: seconds that are added to it."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def now(self) -> float:
        """Return the Unix time."""
        return time.time() + self.ahead

    def compare(self, began: float, told: float) -> None:
        """Learn from the database's time `told`, which was asked for at this machine's `began`."""
        took = max(0.0, time.time() - began)
        off = told - began - took / 2
        for sample in list(self._samples):
            if abs(sample[1] - off) > SURE_SECONDS + sample[0] + took:
                # Of before somebody set this clock.
                self._samples.remove(sample)
        self._samples.append((took, off))
        # The quickest answer is the surest.
        took, ahead = min(self._samples)
        self.ahead = ahead if abs(ahead) > SURE_SECONDS + took else 0.0


clock = Clock()


class RowKeys:
    """Makes the row keys of this process: microseconds since 1970, then 12 bits.

    These bits are the slot that the process has leased among the workers of its database (see
    `postgres_lease`), so that two workers never make one key. Without a slot they are random.
    Messages have keys of their own: behind those that their conversation has from a worker whose
    clock was ahead.
    """

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._last = {"row": 0, "message": 0}
        self._making = threading.Lock()

    def lease(self, slot: int) -> None:
        """Make keys of a slot from now on."""
        self._slots.append(slot)

    def release(self, slot: int) -> None:
        """Make no more keys of a slot."""
        if slot in self._slots:
            self._slots.remove(slot)

    def make(self, count: int, kind: str = "row", behind: int = 0) -> int:
        """Return the first of so many keys, all behind one; the others follow by `STEP`."""
        now = time.time_ns() // 1000 + int(clock.ahead * 1e6)
        with self._making:
            at = max(now, self._last[kind] + 1, (behind >> 12) + 1)
            self._last[kind] = at + count - 1
        slots = self._slots
        return at << 12 | (slots[-1] if slots else random.getrandbits(12))


row_keys = RowKeys()


def new_id(prefix: str) -> str:
    """Return a public id: the prefix, an underscore, 128 random bits in hex."""
    while True:
        try:
            return f"{prefix}_{_random.pop()}"
        except IndexError:
            drawn = secrets.token_hex(16 * 64)
            _random.extend(drawn[i : i + 32] for i in range(0, 32 * 64, 32))


def new_key(count: int = 1) -> int:
    """Return a row key of 63 bits, greater than those before.

    count: keys that are taken together; the others follow by `STEP`.
    """
    return row_keys.make(count)


def new_message_key(count: int = 1, behind: int = 0) -> int:
    """Return a row key of a message, greater than those before and than `behind`.

    count: keys that are taken together; the others follow by `STEP`.
    """
    return row_keys.make(count, "message", behind)


def time_of(key: int) -> float:
    """Return when a row key was made, as Unix time."""
    return (key >> 12) / 1e6


def key_at(at: float) -> int:
    """Return the smallest row key made at a Unix time, or the nearest key there is."""
    return min(max(int(at * 1e6), 0) << 12, MAX_KEY)
