"""A provider's connections are limited, and waiting callers are served in order."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import Unavailable
from gateway.upstream.connection_pool_slots import ConnectionSlots


def soon(seconds=5.0):
    return asyncio.get_running_loop().time() + seconds


async def test_a_slot_passes_to_the_caller_who_waited_longest():
    slots, served = ConnectionSlots(1), []
    await slots.take(soon())

    async def caller(name):
        await slots.take(soon())
        served.append(name)

    tasks = [asyncio.create_task(caller(name)) for name in "ab"]
    await asyncio.sleep(0)
    assert (slots.waiting, slots.free_count) == (2, 0)
    for _ in tasks:
        slots.give()
        await asyncio.sleep(0.01)
    assert served == ["a", "b"]
    slots.give()
    assert slots.free_count == 1


async def test_a_caller_who_waits_too_long_is_told_when_to_return():
    slots = ConnectionSlots(1)
    await slots.take(soon())
    with pytest.raises(Unavailable, match="All 1 connections") as e:
        await slots.take(soon(0.01))
    assert (b"retry-after", b"1") in e.value.headers
    slots.give()
    assert slots.free_count == 1


async def test_a_caller_who_leaves_as_a_slot_is_granted_gives_it_back():
    slots = ConnectionSlots(1)
    await slots.take(soon())
    task = asyncio.create_task(slots.take(soon()))
    await asyncio.sleep(0)
    slots.give()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slots.free_count == 1
