"""C.

A client that does not read: the upstream is slowed down, memory stays bounded, nobody else notices.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import running
from tests.e2e.wire.rows import row
from tests.e2e.wire.streams import MODES, client, framed, hello, piece, strict
from tests.models import Model

STREAMS = 8


@pytest.fixture
def apart(tmp_path):
    """A gateway in a process of its own, so that its memory can be told from the test's.

    Gives (start, resident).
    """
    children = []

    async def start(upstream):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        env = {
            **os.environ,
            "MNEMOGATE_STORAGE__DATA": str(tmp_path),
            "MNEMOGATE_STORAGE__VECTORS": "none",
            "MNEMOGATE_SERVER__KEEPALIVE_SECONDS": "1",
        }
        child = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--port", str(port), "--upstream", upstream],
            env=env,
            cwd=Path(__file__).parents[3],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        children.append(child)
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        return f"http://127.0.0.1:{port}", child.pid

    yield start
    for child in children:
        child.send_signal(signal.SIGKILL)
        child.wait(10)


def resident(pid):
    """MiB."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@row(63)
@MODES
@pytest.mark.parametrize("size", [5, 60_000])
async def test_clients_that_do_not_read_slow_the_upstream_and_cost_two_mebibytes_at_most(
    apart, mode, size
):
    written = []
    event = framed(piece({"content": "w" * size}), done=False)

    async def flooding(seen, wire):
        if seen.json["user"] == "quick":
            await wire.start_stream()
            await wire.part(framed(*hello()))
            await wire.end()
            return
        mine = len(written)
        written.append(0)
        await wire.start_stream()
        while True:
            await wire.part(event)
            written[mine] += len(event)

    async def quick(root):
        async with client(root, mode, user="quick") as c:
            assert await c.status() == 200
            body = b""
            while part := await c.part():
                body += part
            assert strict(body, comments=True) == [*hello(), "[DONE]"]

    async with Model(flooding) as up:
        root, pid = await apart(up.url)
        async with client(root, mode, limit=1024, user="warm") as c:
            assert await c.status() == 200
            await asyncio.sleep(1)
        await asyncio.gather(*(quick(root) for _ in range(20)))
        # What the first was told is written down.
        await asyncio.sleep(2)
        before = resident(pid)
        clients = [client(root, mode, limit=1024, user=f"slow{i}") for i in range(STREAMS)]
        held = [await c.__aenter__() for c in clients]
        async with asyncio.timeout(90):
            last = [-1]
            while len(written) < STREAMS + 1 or last != written:
                last = list(written)
                await asyncio.sleep(0.5)
        # What the sockets of both sides hold, and no more.
        assert max(written) < 24 * 2**20
        grown = resident(pid) - before
        assert grown < 2 * STREAMS, f"{grown:.1f} MiB for {STREAMS} streams"
        await asyncio.wait_for(asyncio.gather(*(quick(root) for _ in range(10))), 30)
        # The one that reads again gets the events in order.
        assert await held[0].status() == 200
        body = b""
        async with asyncio.timeout(60):
            while len(body) < 2**20:
                body += await held[0].part()
        found = strict(body[: body.rindex(b"\n\n") + 2], comments=True)
        assert len(found) > 0.8 * 2**20 / len(event)
        assert found[1:] == [found[1]] * (len(found) - 1)
        for c in clients:
            await c.__aexit__(None, None, None)


@row(60, 63)
@MODES
async def test_no_comment_is_queued_for_a_client_that_does_not_read(data, mode):
    """Eight megabytes, which no socket holds: while they wait there is always something to say."""
    events = hello(*["x" * 2**16] * 128)

    async def flooding(seen, wire):
        await wire.start_stream()
        for event in events:
            await wire.part(framed(event, done=False))
        await wire.part(framed())
        await wire.end()

    async with (
        Model(flooding) as up,
        running(up.url, data, {"server.keepalive_seconds": 1}) as live,
    ):
        async with client(live.root, mode, limit=1024) as c:
            assert await c.status() == 200
            await asyncio.sleep(2.5)
            body = b""
            while part := await c.part():
                body += part
        assert strict(body, comments=True) == [*events, "[DONE]"]
        # After the last event the store may take its time.
        assert b"\n: " not in body[: body.index(b'"stop"')]
