"""Public ids and row keys."""

from __future__ import annotations

import re
import time

from memory.ids import key_at, new_id, new_key, time_of


def test_public_ids_are_128_random_bits():
    made = {new_id("req") for _ in range(500)}
    assert len(made) == 500
    assert all(re.fullmatch(r"req_[0-9a-f]{32}", one) for one in made)


def test_row_keys_tell_when_they_were_made():
    before = time.time()
    key = new_key()
    assert before - 0.001 <= time_of(key) <= time.time() + 0.001
    assert key < 2**63
    assert key_at(before - 1) < key < key_at(time.time() + 1)
    assert key_at(-5) == 0
