"""The invariants of the wire by number, with their priority: P0 holds from the first release, P1
soon after, P2 later.

A test says which it shows: `@row(31)`, `@row(65, 66)`. The mark P0, P1 or P2 (the highest of its
rows) comes with it, so `pytest -m P0` runs those alone; the report at the end of a run counts the
rows that hold.
"""

from __future__ import annotations

from typing import Any

import pytest

P0 = {
    1,
    2,
    3,
    7,
    8,
    9,
    11,
    12,
    15,
    16,
    17,
    21,
    22,
    23,
    24,
    25,
    26,
    28,
    31,
    32,
    33,
    34,
    35,
    36,
    37,
    38,
    39,
    40,
    42,
    43,
    44,
    46,
    47,
    48,
    49,
    51,
    52,
    54,
    55,
    57,
    58,
    65,
    66,
    67,
    68,
    69,
    70,
    77,
    78,
    79,
    81,
    82,
    86,
    88,
    89,
    90,
    91,
    98,
    100,
    102,
    103,
    114,
    115,
    119,
    123,
    124,
    125,
    126,
    127,
    128,
    129,
    130,
    131,
    132,
    133,
    134,
    137,
    139,
    140,
    141,
    147,
    155,
    156,
    161,
    162,
}
P1 = {
    5,
    13,
    18,
    19,
    27,
    30,
    59,
    60,
    61,
    62,
    63,
    71,
    73,
    74,
    75,
    83,
    84,
    85,
    87,
    92,
    93,
    94,
    96,
    99,
    101,
    104,
    106,
    108,
    109,
    111,
    113,
    116,
    117,
    118,
    120,
    136,
    138,
    142,
    143,
    144,
    146,
    148,
    150,
    151,
    152,
    153,
    154,
    158,
    159,
    160,
    163,
    164,
}
P2 = {97, 112, 122, 165}

# Rows about what is not built yet, and what each waits for.
LATER = {
    120: "a response cache (there is none)",
    122: "a response cache (there is none)",
}

# Rows that take minutes: shown by a command of their own.
ELSEWHERE = {70: "make soak"}


def priority(number: int) -> str:
    """P0, P1 or P2. Raises KeyError for a number that is no invariant's."""
    for name, rows in (("P0", P0), ("P1", P1), ("P2", P2)):
        if number in rows:
            return name
    raise KeyError(number)


def row(*numbers: int) -> Any:
    """Marks a test, or a module by `pytestmark`, with the invariants that it shows."""
    mark = pytest.mark.wire(*numbers)
    highest = getattr(pytest.mark, min(priority(n) for n in numbers))

    def marked(test: Any) -> Any:
        return highest(mark(test))

    return marked
