"""A client that leaves ends the work, whoever tells of it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.http.asgi import cancel_on_disconnect


class Connection:
    """A connection that tells of its end. watches: whether it does so yet."""

    def __init__(self, *, watches: bool) -> None:
        self.watches, self.callbacks = watches, set()

    def watch(self, callback):
        if self.watches:
            self.callbacks.add(callback)
        return self.watches

    def unwatch(self, callback):
        self.callbacks.discard(callback)

    def end(self):
        for callback in [*self.callbacks]:
            callback()


async def run(connection, receive, ended):
    async def work():
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)

    task = asyncio.ensure_future(cancel_on_disconnect(work(), receive, connection))
    await asyncio.sleep(0)
    return task


async def test_a_connection_that_ends_cancels_the_work_and_nobody_asks_for_messages():
    connection, ended, asked = Connection(watches=True), [], []

    async def receive():
        asked.append(True)

    task = await run(connection, receive, ended)
    connection.end()
    await task
    assert (ended, asked, connection.callbacks) == ([True], [], set())


@pytest.mark.parametrize("connection", [None, Connection(watches=False)], ids=["none", "not yet"])
async def test_without_such_a_connection_the_message_of_the_end_cancels_the_work(connection):
    ended, leave = [], asyncio.Event()

    async def receive():
        await leave.wait()
        return {"type": "http.disconnect"}

    task = await run(connection, receive, ended)
    assert ended == []
    leave.set()
    await task
    assert ended == [True]


async def test_work_that_is_done_leaves_no_callback_at_the_connection():
    connection = Connection(watches=True)

    async def work():
        assert len(connection.callbacks) == 1

    await cancel_on_disconnect(work(), lambda: None, connection)
    assert connection.callbacks == set()


async def test_a_cancellation_of_somebody_else_is_passed_on():
    connection, ended = Connection(watches=True), []
    task = await run(connection, lambda: None, ended)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
