"""What the tests of streams share: upstreams that write bytes as told, and a reader that forgives
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from memory.ids import new_id
from tests.conftest import SENTINEL_KEY, Live

MODES = pytest.mark.parametrize("mode", ["full", "off"])
WAYS = pytest.mark.parametrize("stream", [True, False])
SHARED = pytest.mark.asyncio(loop_scope="module")
HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m"}
BARE = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
USAGE = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 0},
}


def piece(
    delta: Any = None, finish: str | None = None, lane: int = 0, **top: Any
) -> dict[str, Any]:
    """One chunk of one choice."""
    return {
        **HEAD,
        "choices": [{"index": lane, "delta": delta or {}, "finish_reason": finish}],
        **top,
    }


def hello(*words: str, finish: str | None = "stop") -> list[Any]:
    """The chunks of a short answer."""
    said = [piece({"content": word}) for word in words or ("Hel", "lo")]
    return [
        piece({"role": "assistant", "content": ""}),
        *said,
        *([piece(finish=finish)] if finish else []),
    ]


def text(body: Any) -> bytes:
    return (
        body
        if isinstance(body, bytes)
        else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    )


def framed(*bodies: Any, end: bytes = b"\n", done: bool = True) -> bytes:
    """A stream of these events."""
    return b"".join(
        b"data: " + text(b) + end * 2 for b in [*bodies, *([b"[DONE]"] if done else [])]
    )


def writing(*parts: bytes, then: str = "close", pause: float = 0.0) -> Any:
    """An upstream that writes these bytes, each by itself, and then: close, end (a whole chunked
    body), cut, reset or hold.
    """

    async def behave(seen: Any, wire: Any) -> None:
        chunked = then in ("end", "cut", "reset", "hold")
        await (wire.start_stream() if chunked else wire.raw(BARE.encode()))
        for part in parts:
            await (wire.part(part) if chunked else wire.raw(part))
            await asyncio.sleep(pause)
        if then == "end":
            await wire.end()
        elif then == "reset":
            wire.reset()
        elif then == "hold":
            await asyncio.sleep(30)
        else:
            wire.writer.close()

    return behave


def playing(*bodies: Any, done: bool = True) -> Any:
    """An upstream that plays these events to the end."""
    return writing(framed(*bodies, done=done), then="end")


def strict(body: bytes, comments: bool = False) -> list[Any]:
    """The events of a stream, which must be framed exactly: `data: `, one line, a blank line,
    nothing else.
    """
    assert body.endswith(b"\n\n"), body[-80:]
    out: list[Any] = []
    for block in body[:-2].split(b"\n\n"):
        if comments and block.startswith(b":"):
            assert b"\n" not in block
            continue
        assert block.startswith(b"data: "), block[:80]
        line = block.removeprefix(b"data: ")
        assert b"\n" not in line
        assert b"\r" not in line
        out.append("[DONE]" if line == b"[DONE]" else json.loads(line.decode()))
    return out


async def asked(live: Live, mode: str, **body: Any) -> bytes:
    """The bytes of a streamed answer.

    Each request is another user's, so that none is another's repetition.
    """
    return (
        await live.chat("hi", {"x-memory": mode}, **{"stream": True, "user": new_id("u"), **body})
    ).content


async def chunks(live: Live, mode: str, **body: Any) -> list[Any]:
    """The chunks of a streamed answer that ends as it should."""
    *found, last = strict(await asked(live, mode, **body))
    assert last == "[DONE]"
    return found


def deltas(found: list[Any], lane: int = 0) -> list[Any]:
    return [c["delta"] for e in found for c in e["choices"] if c["index"] == lane]


def calls_of(found: list[Any], lane: int = 0) -> list[Any]:
    """The deltas of tool calls, in order."""
    return [c for d in deltas(found, lane) for c in d.get("tool_calls") or []]


class Client:
    """A client on a raw socket that reads when told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.head = b""

    async def until(self, mark: bytes, seconds: float = 10) -> bytes:
        """What arrives up to and including `mark`."""
        async with asyncio.timeout(seconds):
            return await self.reader.readuntil(mark)

    async def status(self) -> int:
        self.head = await self.until(b"\r\n\r\n")
        return int(self.head.split(b" ", 2)[1])

    async def part(self) -> bytes:
        """The next piece of a chunked body, b"" at its end."""
        async with asyncio.timeout(10):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def quiet(self, seconds: float) -> bool:
        """Whether nothing arrives for so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return not await self.reader.read(1)
        return True


@contextlib.asynccontextmanager
async def client(
    root: str,
    mode: str = "full",
    limit: int = 2**16,
    path: str = "/v1/chat/completions",
    **body: Any,
) -> AsyncIterator[Client]:
    """A request on its own connection."""
    sent = json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "user": new_id("u"),
            **body,
        }
    )
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", int(root.rpartition(":")[2]), limit=limit
    )
    lines = [
        f"POST {path} HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {SENTINEL_KEY}",
        f"x-memory: {mode}",
        "content-type: application/json",
        f"content-length: {len(sent)}",
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n" + sent).encode())
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
