"""Proxies on loopback, written for the tests: plain HTTP and CONNECT in one, and SOCKS5."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from urllib.parse import urlsplit

from tests.sockets import LoopbackServer


class Proxy(LoopbackServer):
    """Serves until its context ends.

    auth: `user:password` that it asks for. seen: where it was asked to go, in order.
    """

    scheme = "http"

    def __init__(self, auth: str = "", tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.auth = auth
        self.seen: list[str] = []
        self.silent = False
        self.onward: dict[asyncio.Task, list[asyncio.StreamWriter]] = {}

    async def __aenter__(self):
        await super().__aenter__()
        named = f"{self.auth}@" if self.auth else ""
        scheme, host = (f"{self.scheme}s", "localhost") if self.tls else (self.scheme, "127.0.0.1")
        self.url = f"{scheme}://{named}{host}:{self.port}"
        return self

    async def serve(self, reader, writer):
        try:
            if self.silent:
                await reader.read()
            await self.carry(reader, writer)
        finally:
            for each in (writer, *self.onward.pop(asyncio.current_task(), [])):
                each.transport.abort()

    async def on(self, host, port):
        """Give a connection onward, which ends with the client's.

        Every name leads here: the proxy alone knows it.
        """
        streams = await asyncio.open_connection("127.0.0.1", port)
        self.onward.setdefault(asyncio.current_task(), []).append(streams[1])
        return streams

    async def carry(self, reader, writer):
        """Carry one connection of a client onward."""
        onward = None
        while head := await reader.readuntil(b"\r\n\r\n"):
            line, *lines = head.decode("latin-1").split("\r\n")[:-2]
            method, target, _ = line.split(" ")
            sent = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
            wanted = "Basic " + base64.b64encode(self.auth.encode()).decode()
            if self.auth and sent.get("proxy-authorization") != wanted:
                writer.write(b"HTTP/1.1 407 Geheim Required\r\ncontent-length: 0\r\n\r\n")
                await writer.drain()
                return
            self.seen.append(f"{method} {target}" if method == "CONNECT" else target)
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                onward = await self.on(host, int(port))
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await joined((reader, writer), onward)
                return
            if onward is None:
                url = urlsplit(target)
                onward = await self.on(url.hostname, url.port)
                self.tasks.add(back := asyncio.ensure_future(pumped(onward[0], writer)))
                back.add_done_callback(self.tasks.discard)
                self.tasks.add(watch := asyncio.ensure_future(_left(reader, onward[1])))
                watch.add_done_callback(self.tasks.discard)
            path = "/" + target.split("/", 3)[3]
            kept = [x for x in lines if not x.lower().startswith("proxy-")]
            onward[1].write(
                "\r\n".join([f"{method} {path} HTTP/1.1", *kept]).encode("latin-1") + b"\r\n\r\n"
            )
            onward[1].write(await reader.readexactly(int(sent.get("content-length", 0))))


class Socks(Proxy):
    """SOCKS5, with names told to it."""

    scheme = "socks5"

    async def carry(self, reader, writer):
        _, count = await reader.readexactly(2)
        await reader.readexactly(count)
        writer.write(b"\x05\x02" if self.auth else b"\x05\x00")
        if self.auth:
            await reader.readexactly(1)
            found = [
                (await reader.readexactly((await reader.readexactly(1))[0])).decode()
                for _ in range(2)
            ]
            writer.write(b"\x01\x00" if ":".join(found) == self.auth else b"\x01\x01")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = ".".join(map(str, await reader.readexactly(4)))
        port = int.from_bytes(await reader.readexactly(2))
        self.seen.append(f"{host}:{port}")
        try:
            onward = await self.on(host, port)
        except OSError:
            writer.write(b"\x05\x05\x00\x01" + bytes(6))
            await writer.drain()
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await joined((reader, writer), onward)


async def joined(one, other):
    """Carries bytes both ways until either side ends."""
    ways = [asyncio.ensure_future(pumped(a[0], b[1])) for a, b in ((one, other), (other, one))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        other[1].transport.abort()


async def pumped(reader, writer):
    """Carries bytes one way."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _left(reader, writer):
    """Closes the way on once the client has gone."""
    while not reader.at_eof():
        await asyncio.sleep(0.02)
    writer.transport.abort()
