"""Lines of a server's process; whole servers are played in test_mcp_tool."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.tools.mcp_stdio import _read_line

LIMIT = 1 << 14
LONG = '{"content":[{"type":"text","text":"' + "x" * 9 * LIMIT + '"}]}'


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":7,"result":' + LONG + "}",
        '{"result":' + LONG + ',"jsonrpc":"2.0","id":7}',
    ],
)
async def test_a_message_that_is_too_long_ends_its_call_alone(line):
    stdout = asyncio.StreamReader(limit=LIMIT)
    stdout.feed_data(f"{line}\nnext\nlast".encode())
    stdout.feed_eof()
    answer = json.loads(await _read_line(stdout, "probe"))
    assert answer["id"] == 7
    assert answer["error"]["message"] == "the server's answer has more than 8 MiB"
    lines = [await _read_line(stdout, "probe") for _ in range(3)]
    assert lines == [b"next\n", b"last", b""]


async def test_a_message_that_never_ends_is_the_end():
    stdout = asyncio.StreamReader(limit=LIMIT)
    stdout.feed_data(b"x" * 5 * LIMIT)
    stdout.feed_eof()
    assert await _read_line(stdout, "probe") == b""
