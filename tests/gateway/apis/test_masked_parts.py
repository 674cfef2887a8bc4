"""Parts of a round are long together, however they came."""

from __future__ import annotations

import pytest

from gateway.apis.masked_parts import MaskedParts
from gateway.wire.answer_parts import PartKey


def grown(*pieces, parts=2):
    """Parts that grew by these pieces in turn."""
    out = MaskedParts()
    begun = [out.begin(PartKey(index=number)) for number in range(parts)]
    for number, piece in enumerate(pieces):
        begun[number % parts].grow("input" if number % 3 else "text", piece)
    return out


@pytest.mark.parametrize(
    ("pieces", "long"),
    [
        ((), False),
        (["word "] * 4000, False),
        (["word "] * 5000, True),
        (["x" * 1000] * 200, False),
        (["x" * 1000] * 300, True),
        (["x" * 300_000], True),
    ],
)
def test_parts_are_long_by_their_pieces_and_their_characters(pieces, long):
    parts = grown(*pieces)
    assert parts.is_long == long
    # An answer is written with all of its rounds.
    following = parts.next_round()
    assert (following.is_long, following.parts) == (long, [])
