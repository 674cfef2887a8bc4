"""A task is waited for by a clock that does not count what kept the event loop from noticing."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from memory.stores.sql.engine import waiting
from memory.stores.sql.engine.waiting import (
    ends_within,
    gets_connection,
    limit_from_connection,
    tell_of_connection,
    told_of_connection,
)


async def test_what_ends_in_time_is_told_and_what_does_not_goes_on():
    go = asyncio.Event()
    task = asyncio.create_task(go.wait())
    assert not await ends_within(task, 0.01)
    assert not task.done()
    go.set()
    assert await ends_within(task, 5)
    assert task.result()


async def test_without_a_limit_it_is_waited_for():
    assert await ends_within(asyncio.create_task(asyncio.sleep(0.02)), None)


async def test_an_answer_that_came_while_the_loop_was_busy_is_in_time():
    loop, answer = asyncio.get_running_loop(), asyncio.Future()
    task = asyncio.create_task(passed_on(answer, 5))
    loop.call_later(0.01, time.sleep, 0.2)
    threading.Timer(0.1, loop.call_soon_threadsafe, [answer.set_result, "ok"]).start()
    assert await ends_within(task, 0.05)
    assert task.result() == "ok"


async def passed_on(answer, times):
    """An answer that takes some turns of the event loop to arrive."""
    return await (asyncio.create_task(passed_on(answer, times - 1)) if times else answer)


async def test_a_limit_runs_from_the_connection_and_not_from_the_queue(monkeypatch):
    monkeypatch.setattr(waiting, "WAIT_SECONDS", 20.0)
    told = []
    async with asyncio.timeout(15):
        with told_of_connection(lambda: told.append(1)), pytest.raises(TimeoutError):
            async with limit_from_connection(0.05):
                # Six times the limit, in a queue.
                await asyncio.sleep(0.3)
                tell_of_connection()
                await asyncio.sleep(15)
    assert told == [1]
    # Nobody listens any more.
    tell_of_connection()
    assert told == [1]


async def test_the_queue_has_a_bound_of_its_own(monkeypatch):
    monkeypatch.setattr(waiting, "WAIT_SECONDS", 0.05)
    with pytest.raises(TimeoutError):
        async with limit_from_connection(9):
            await asyncio.sleep(15)
    never, task = asyncio.Event(), asyncio.create_task(asyncio.sleep(15))
    assert not await gets_connection(task, never)
    task.cancel()


async def test_a_second_connection_gives_no_second_limit():
    with pytest.raises(TimeoutError):
        async with limit_from_connection(0.05):
            while True:
                tell_of_connection()
                await asyncio.sleep(0.01)


async def test_nothing_waits_for_a_connection_once_its_time_is_up():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), limit_from_connection(0):
            await asyncio.sleep(15)
