"""What turns under way hold, and that all of it is given back."""

from __future__ import annotations

import asyncio

from memory.session.in_flight import InFlight


def nothing_is_held(turns):
    return not (turns.nodes or turns.continued or turns.requests)


def test_of_two_attempts_at_a_request_one_is_the_first():
    turns = InFlight()
    first, second = turns.claim(b"r"), turns.claim(b"r")
    assert (first.is_first, second.is_first) == (True, False)
    second.release()
    assert b"r" in turns.requests
    first.release()
    assert turns.claim(b"r").is_first


def test_a_request_that_has_no_name_is_no_duplicate_of_another():
    turns = InFlight()
    assert not turns.claim(None).is_first
    assert nothing_is_held(turns)


async def test_a_duplicate_waits_until_the_first_is_released():
    turns = InFlight()
    first = turns.claim(b"r")
    waiting = asyncio.ensure_future(turns.wait_for(b"r"))
    await asyncio.sleep(0)
    assert not waiting.done()
    first.release()
    await asyncio.wait_for(waiting, 10)
    await turns.wait_for(b"another")


async def test_who_waits_waits_for_the_next_attempt_too():
    turns = InFlight()
    first = turns.claim(b"r")
    waiting = asyncio.ensure_future(turns.wait_for(b"r"))
    await asyncio.sleep(0)
    first.release()
    second = turns.claim(b"r")
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    second.release()
    await asyncio.wait_for(waiting, 10)


def test_a_released_turn_does_not_end_a_later_attempt():
    turns = InFlight()
    first = turns.claim(b"r")
    first.release()
    assert turns.claim(b"r").is_first
    first.release()
    assert b"r" in turns.requests


def test_one_history_at_a_time_continues_a_node():
    turns = InFlight()
    one, same, other = turns.claim(b"1"), turns.claim(b"1"), turns.claim(b"2")
    assert one.is_first_to_continue(7, b"a history")
    assert same.is_first_to_continue(7, b"a history")
    assert not other.is_first_to_continue(7, b"another")
    other.release()
    assert turns.continued == {7: b"a history"}
    one.release()
    assert turns.claim(b"3").is_first_to_continue(7, b"another")


def test_a_node_is_open_until_its_turn_is_released():
    turns = InFlight()
    claim = turns.claim(b"r")
    claim.hold_node(5)
    assert turns.claim(b"q").is_open(5)
    assert not claim.is_open(6)
    claim.release()
    claim.release()
    assert not claim.is_open(5)


def test_nothing_is_held_by_who_was_released():
    turns = InFlight()
    claim = turns.claim(b"r")
    claim.hold_node(5)
    claim.is_first_to_continue(4, b"a history")
    claim.release()
    assert nothing_is_held(turns)
