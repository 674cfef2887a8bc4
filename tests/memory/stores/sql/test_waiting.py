"""A task is waited for by a clock that does not count what kept the event loop from noticing."""

from __future__ import annotations

import asyncio
import threading
import time

from memory.stores.sql.waiting import ends_within


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
