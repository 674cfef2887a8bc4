"""All waits of a turn for its store together have a limit."""

from __future__ import annotations

import time

import pytest

from memory.session.store_deadline import StoreDeadline
from memory.stores.sql.engine.waiting import tell_of_connection


def test_a_wait_gets_no_more_than_it_asked_for_or_than_is_left():
    deadline = StoreDeadline(0.5)
    with deadline.of(0.2) as seconds:
        assert seconds == 0.2
    with deadline.of(9) as seconds:
        assert 0.4 < seconds <= 0.5


def test_what_a_wait_took_is_deducted_also_when_it_failed():
    deadline = StoreDeadline(0.05)
    with pytest.raises(ValueError, match="x"), deadline.of(0.01):
        time.sleep(0.03)
        raise ValueError("x")
    assert deadline.seconds_left == pytest.approx(0.04)
    with deadline.of(1):
        time.sleep(0.06)
    assert deadline.seconds_left == 0


def test_a_wait_for_a_connection_is_not_deducted():
    deadline = StoreDeadline(0.5)
    with deadline.of(0.4):
        time.sleep(0.2)
        tell_of_connection()
    assert deadline.seconds_left > 0.4
