"""A long part of an answer leaves in steps, between which others have their turn."""

import asyncio
from types import SimpleNamespace

from gateway.http.response import STEP_BYTES, ResponseHead, ResponseWriter

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


async def test_a_long_part_takes_a_bounded_step_in_each_turn_of_the_loop():
    turns, is_over = [0], True

    def end_turn():
        nonlocal is_over
        is_over = True

    async def send(message):
        nonlocal is_over
        if is_over:
            turns.append(0)
            is_over = False
            asyncio.get_running_loop().call_soon(end_turn)
        turns[-1] += len(message.get("body", b""))
        sent.append(message.get("body", b""))

    sent = []
    timing = SimpleNamespace(commit_seconds=0, keepalive_seconds=0)
    prepared = (Producer(b"short", LONG), [])
    base = [(b"x-request-id", b"req_1")]
    writer = ResponseWriter(send, prepared, base, timing, lambda *_, **__: None)
    await writer.write_body()
    assert b"".join(sent) == b"short" + LONG
    assert max(turns) <= STEP_BYTES + len(b"short")
