"""A long part of an answer leaves in steps, and what failed leaves nothing behind."""

import asyncio
import contextlib
import gc
import weakref
from types import SimpleNamespace

import pytest

from gateway.errors import GatewayError
from gateway.http import response
from gateway.http.asgi import ClientLeft
from gateway.http.response import STEP_BYTES, GatewayResponse, ResponseHead, ResponseWriter

LONG = bytes(range(256)) * (20 * STEP_BYTES // 256) + b"end"


class Producer:
    stream = False

    def __init__(self, *parts):
        self._parts = parts

    async def body(self):
        for part in self._parts:
            yield part

    def build_head(self, *, committed):
        return ResponseHead([])

    def extra_headers(self):
        return []


async def test_a_long_part_takes_a_bounded_step_in_each_turn_of_the_loop(monkeypatch):
    sent, steps = [], [0]

    async def send(message):
        sent.append(message.get("body", b""))
        steps[-1] += len(sent[-1])

    async def pause(seconds):
        assert seconds > 0
        steps.append(0)

    monkeypatch.setattr(response.asyncio, "sleep", pause)
    timing = SimpleNamespace(commit_seconds=0, keepalive_seconds=0)
    base = [(b"x-request-id", b"req_1")]
    prepared = (Producer(b"short", LONG), [])
    writer = ResponseWriter(send, prepared, base, timing, lambda *_, **__: None)
    await writer.write_body()
    assert b"".join(sent) == b"short" + LONG
    assert max(steps) <= STEP_BYTES + len(b"short")


class LostError(GatewayError):
    """An error that somebody may wait for."""


class HoldingProducer(Producer):
    """Fails, with the error and a large object in the frame that raises it."""

    memory = "ok"

    def __init__(self, error, held):
        super().__init__()
        self._raised, self._held = error, held

    async def body(self):
        held = self._held.pop()
        error = self._raised.pop()
        assert held
        raise error
        yield b""

    def instead_of(self, error):
        return None

    def on_finish(self, error):
        return None

    def error_event(self, error):
        return error.event()


@pytest.mark.parametrize("kind", [LostError, ClientLeft, asyncio.CancelledError])
async def test_what_failed_frees_its_frames_without_a_search_for_garbage(kind):
    held = {1, 2, 3}
    held_set = type("Held", (set,), {})(held)
    alive = weakref.ref(held_set)
    holder = [held_set]
    raised = [kind("Try again.")]
    del held_set
    callbacks = SimpleNamespace(on_first_byte=lambda *_, **__: None, on_finish=lambda *_: None)
    timing = SimpleNamespace(commit_seconds=0, keepalive_seconds=0)

    async def prepare():
        return HoldingProducer(raised, holder), []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        pass

    answer = GatewayResponse(prepare, callbacks, [(b"x-request-id", b"req_1")], set(), timing)
    gc.disable()
    try:
        with contextlib.suppress(ClientLeft, asyncio.CancelledError):
            await answer({}, receive, send)
        await asyncio.sleep(0)
        assert alive() is None
    finally:
        gc.enable()
