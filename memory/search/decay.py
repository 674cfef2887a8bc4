"""The strength of a passage: it fades with time, depending on type, importance and use. Pure.

strength = e^-(rate x hours since it was made or last found x (1 - importance) / (1 + times found)).

At importance 0.5 and never found, a passage is faint (0.05): trivial after 20 hours, context after
2.5 days, a fact after 5 days, a preference after 25; identity, and anything of importance 1, never.
"""

from __future__ import annotations

import math

# An hour.
RATES = {
    "identity": 0.0,
    "preference": 0.01,
    "fact": 0.05,
    "context": 0.1,
    "trivial": 0.3,
}
FAINT = 0.05
LIMIT = -math.log(FAINT)


def strength(kind: str, importance: float, uses: int, hours: float) -> float:
    """Return the strength, from 1 (fresh) to 0."""
    return math.exp(
        -RATES.get(kind, RATES["fact"]) * max(0.0, hours) * (1 - importance) / (1 + uses)
    )


def lasting_hours(kind: str, importance: float, uses: int) -> float | None:
    """Return after how many hours without use a passage is faint; None for never."""
    rate = RATES.get(kind, RATES["fact"]) * (1 - importance)
    if rate > 0:
        return LIMIT * (1 + uses) / rate
    return None


TYPES = ("identity", "preference", "fact", "context", "trivial")
