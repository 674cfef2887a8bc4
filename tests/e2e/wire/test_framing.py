"""C. Stream framing: what leaves the gateway, event by event."""
from __future__ import annotations

from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.models import Model


@row(36)
async def test_a_stream_is_marked_as_one_that_nobody_may_hold_back(data):
    async with Model("Hello there") as up, running(up.url, data) as live:
        for memory in ("full", "off"):
            response, _ = await live.stream("hi", {"x-memory": memory})
            assert response.headers["content-type"].startswith("text/event-stream")
            assert (response.headers["cache-control"], response.headers["x-accel-buffering"]) == ("no-cache", "no")
            assert "content-length" not in response.headers
            assert "content-encoding" not in response.headers
