"""A raw HTTP/1.1 server on a real socket that says exactly what a test tells it: paces, cuts,
stalls, resets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

# Seconds.
TICK = 0.01


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


async def within(seconds: float, holds: Callable[[], object]) -> bool:
    """Tell whether something comes to hold within so many seconds of a loop that gets its turns.

    They are counted in turns of the loop: on a busy machine, which serves it late, a second has as
    many of them as on a quiet one.
    """
    for _ in range(round(seconds / TICK)):
        if holds():
            return True
        await asyncio.sleep(TICK)
    return bool(holds())


@dataclass
class Seen:
    """One request as it arrived, and what became of its connection."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def leaves(self, seconds: float = 1.0) -> None:
        """The caller closes the connection within so many seconds; see `within`."""
        assert await within(seconds, self.gone.is_set), f"open after {seconds} s"

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k.lower() == name), None)


def _spelt(body: Any) -> bytes:
    """JSON as most servers write it; halves of surrogate pairs have no other form than escapes."""
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


class Wire:
    """What a behaviour writes with."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, status: int, body: bytes, *headers: str, content_type: str = "application/json"
    ) -> None:
        lines = [
            f"HTTP/1.1 {status} X",
            f"content-type: {content_type}",
            f"content-length: {len(body)}",
            *headers,
        ]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def json(self, body: Any, status: int = 200, *headers: str) -> None:
        await self.answer(status, json.dumps(body).encode(), *headers)

    async def start_stream(self, *headers: str) -> None:
        lines = [
            "HTTP/1.1 200 OK",
            "content-type: text/event-stream",
            "transfer-encoding: chunked",
            *headers,
        ]
        await self.raw("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def part(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, body: Any) -> None:
        data = body if isinstance(body, bytes) else _spelt(body)
        await self.part(b"data: " + data + b"\n\n")

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        self.writer.transport.abort()


Behaviour = Callable[[Seen, Wire], Awaitable[None]]


class LoopbackServer:
    """Runs `serve(reader, writer)` for each connection to a port of 127.0.0.1; ends them all with
    its context.
    """

    # Bytes read ahead of what is asked for.
    limit = 1 << 20

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.open = self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=self.limit, ssl=self.tls
        )
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.add(task := asyncio.current_task())  # type: ignore[arg-type]
        self.open, self.connections = self.open + 1, self.connections + 1
        try:
            await self.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            # What a peer never reads must not keep the socket open.
            writer.transport.abort()
        finally:
            self.open -= 1
            self.tasks.discard(task)
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        raise NotImplementedError


class RawServer(LoopbackServer):
    """Serves `behave(request, wire)` for each request."""

    limit = 1 << 24

    def __init__(self, behave: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.behave = behave
        self.requests: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while seen := await self._read(reader):
            self.requests.append(seen)
            await self._one(seen, reader, writer)

    async def _one(
        self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Runs the behaviour and watches for the peer leaving meanwhile."""
        work = asyncio.ensure_future(self.behave(seen, Wire(writer)))
        while not work.done():
            await asyncio.wait([work], timeout=0.02)
            if reader.at_eof() or writer.is_closing():
                seen.gone.set()
                work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    async def _read(self, reader: asyncio.StreamReader) -> Seen | None:
        head = b""
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
        if not head:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = [(k, v.strip()) for k, _, v in (line.partition(":") for line in lines)]
        named = {k.lower(): v for k, v in headers}
        body = b""
        if "content-length" in named:
            body = await reader.readexactly(int(named["content-length"]))
        elif "chunked" in named.get("transfer-encoding", ""):
            while size := int((await reader.readline()).strip(), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readline()
        method, path, _ = first.split(" ", 2)
        return Seen(method, path, headers, body)
