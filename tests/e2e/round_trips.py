"""A proxy before Postgres that counts round trips: how often the server was ready for the next."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from sqlalchemy.engine import make_url

READY = b"Z"[0]


class CountingProxy:
    """Passes bytes on while `passes` is set. ready: how often the server said ReadyForQuery."""

    def __init__(self, url: str) -> None:
        self._target = make_url(url)
        self.ready = 0
        self._carrying: set[asyncio.Task[None]] = set()
        self.passes = asyncio.Event()
        self.passes.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        # Unencrypted, so that messages can be told apart.
        through = self._target.set(port=port).update_query_dict({"ssl": "disable"})
        self.url = through.render_as_string(hide_password=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._carrying:
            task.cancel()
        if self._carrying:
            await asyncio.wait(self._carrying)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:  # the server is away
            writer.close()
            return
        for carry in (self._carry(reader, there[1]), self._answer(there[0], writer)):
            task = asyncio.create_task(carry)
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self.passes.wait()
                writer.write(data)
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.closing(writer),
            contextlib.suppress(OSError, asyncio.IncompleteReadError),
        ):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                self.ready += head[0] == READY
                await self.passes.wait()
                writer.write(head + body)
                await writer.drain()
