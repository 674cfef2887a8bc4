"""Servers that tests of the web tools reach, and a listener that counts what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class CountingListener:
    """Answers HTTP on loopback by `answer(request head) -> bytes`, and counts connections."""

    answer: Callable[[str], bytes] = lambda head: reply("hello")
    host: str = "127.0.0.1"
    connections: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> CountingListener:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            size = [
                line for line in head.lower().split("\r\n") if line.startswith("content-length:")
            ]
            self.bodies.append(
                await reader.readexactly(int(size[0].split(":")[1])) if size else b""
            )
            writer.write(self.answer(head))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def reply(body: str | bytes, status: int = 200, kind: str = "text/plain", **headers: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data
