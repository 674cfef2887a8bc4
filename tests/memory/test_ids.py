"""Public ids and row keys."""

from __future__ import annotations

import re
import time

from memory import ids
from memory.ids import STEP, Clock, RowKeys, key_at, new_id, new_key, new_message_key, time_of


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


def test_a_message_that_follows_one_of_a_clock_ahead_has_a_key_that_nothing_else_gets(monkeypatch):
    # Other tests make their keys in the present.
    monkeypatch.setattr(ids, "row_keys", RowKeys())
    ahead = new_key() + (300_000_000 << 12)
    keys = [new_message_key(2, ahead), new_message_key(2, ahead), new_message_key()]
    assert ahead < keys[0] < keys[0] + STEP < keys[1] < keys[1] + STEP < keys[2]
    assert new_key() < ahead


def test_a_clock_that_is_set_is_corrected_at_the_next_look(monkeypatch):
    clock, real, shift = Clock(), time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: real() + shift)
    for shift in (0.0, 300.0, -300.0):  # noqa: B007 - the clock reads it
        clock.compare(time.time(), real())
        assert abs(clock.now() - real()) < 0.1
