"""Identifiers.

Public ids are 128 random bits; row keys grow with time so that they sort and index well.
"""

from __future__ import annotations

import os
import random
import secrets
import time

MAX_KEY = 2**63 - 1
_random: list[str] = []  # fetched in batches, since each call to the system is expensive
os.register_at_fork(after_in_child=_random.clear)


def new_id(prefix: str) -> str:
    """Return a public id: the prefix, an underscore, 128 random bits in hex."""
    while True:
        try:
            return f"{prefix}_{_random.pop()}"
        except IndexError:
            drawn = secrets.token_hex(16 * 64)
            _random.extend(drawn[i : i + 32] for i in range(0, 32 * 64, 32))


def new_key() -> int:
    """Return a row key: microseconds since 1970, then 12 random bits; 63 bits in total.

    Unique enough for a primary key.
    """
    return (time.time_ns() // 1000) << 12 | random.getrandbits(12)


def time_of(key: int) -> float:
    """Return when a row key was made, as Unix time."""
    return (key >> 12) / 1e6


def key_at(at: float) -> int:
    """Return the smallest row key made at a Unix time, or the nearest key there is."""
    return min(max(int(at * 1e6), 0) << 12, MAX_KEY)
