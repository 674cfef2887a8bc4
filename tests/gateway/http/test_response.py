"""A long part of an answer leaves in steps, between which others have their turn."""

from types import SimpleNamespace

from gateway.http import response
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
