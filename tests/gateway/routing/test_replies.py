"""An event of many megabytes is taken apart in a thread, not on the event loop."""

import threading
from types import SimpleNamespace

import pytest

from gateway.routing import replies
from gateway.routing.replies import EventReader
from gateway.wire.sse import LONG_BYTES, SseFramer

SLICE_BYTES = 1 << 13


async def slices(data):
    for at in range(0, len(data), SLICE_BYTES):
        yield data[at : at + SLICE_BYTES]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_the_event_loop_frames_no_more_than_the_bound_of_an_event(monkeypatch, end):
    loop_thread, framed = threading.current_thread(), []
    feed = SseFramer.feed

    def watched(framer, data):
        events = feed(framer, data)
        if threading.current_thread() is loop_thread:
            framed.extend(len(event.event_bytes) for event in events)
        return events

    monkeypatch.setattr(SseFramer, "feed", watched)
    text = b'{"a":"%b"}' % (b"x" * 4 * LONG_BYTES)
    stream = (b"data: {}" + end) * 3 + b"data: " + text + end + b"data: 1" + end
    reader = EventReader(SimpleNamespace(body=slices(stream)), SseFramer())
    found = [event async for batch in reader for event in batch]
    assert b"".join(event.event_bytes for event in found) == stream
    assert [event.data for event in found if event.data] == [b"{}"] * 3 + [text, b"1"]
    assert framed
    assert max(framed) <= LONG_BYTES + 2 * SLICE_BYTES


async def test_what_cannot_end_a_long_event_needs_no_thread(monkeypatch):
    threads = []

    async def to_thread(work, *args):
        threads.append(work)
        return work(*args)

    monkeypatch.setattr(replies.asyncio, "to_thread", to_thread)
    stream = b"data: " + b"x" * 4 * LONG_BYTES + b"\n\n"
    reader = EventReader(SimpleNamespace(body=slices(stream)), SseFramer())
    assert [len(batch) async for batch in reader] == [1]
    assert len(threads) == 1
