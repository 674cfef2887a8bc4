"""An httpx transport over one aiohttp session, with the errors told apart.

The ready-made adapter reports a refused connection, a reset and a full pool alike as a connect timeout, which gives
wrong statuses and unsafe retries; this thin one maps each cause. Rules: no cookies are kept, no redirect is followed,
no header is added, nothing is decompressed, and closing a response closes its connection unless it was read out.
"""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx
from yarl import URL

PIECE = 1 << 16  # bytes
AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class Body(httpx.AsyncByteStream):
    """The bytes of one response, as they arrive."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            # What has arrived, at once, but never so much of it that a slow client's share is more than a few such pieces.
            async for part in self._response.content.iter_chunked(PIECE):
                yield part
        except TimeoutError as e:
            raise httpx.ReadTimeout("the upstream fell silent") from e
        except aiohttp.ClientError as e:
            # A connection that breaks makes every later read raise, whatever came before the break and was not read yet.
            if left := self._response.content._read_nowait(-1):
                yield left
            raise httpx.ReadError(_told(e)) from e

    async def aclose(self) -> None:
        # close, not release: a body that was not read out must not linger in the pool.
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class AiohttpTransport(httpx.AsyncBaseTransport):
    """One shared session. max_connections: per transport; a request beyond it waits for its connect budget."""

    def __init__(self, max_connections: int = 1000) -> None:
        self._max = max_connections
        self._session: aiohttp.ClientSession | None = None
        self._free = asyncio.Semaphore(max_connections)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, keepalive_timeout=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=AUTO_HEADERS,
                timeout=aiohttp.ClientTimeout(total=None),
            )
            # It would send a GET anew when a kept connection turns out dead. Attempts are counted and bounded by the caller;
            # there is no public switch, and a test counts the requests that arrive.
            self._session._retry_connection = False
        return self._session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeouts: dict[str, Any] = request.extensions.get("timeout", {})
        try:
            async with asyncio.timeout(timeouts.get("connect")):
                await self._free.acquire()
        except TimeoutError as e:
            raise httpx.PoolTimeout(f"all {self._max} connections to the upstream are in use") from e
        try:
            return await self._send(request, timeouts)
        except BaseException:
            self._free.release()
            raise

    async def _send(self, request: httpx.Request, timeouts: dict[str, Any]) -> httpx.Response:
        try:
            response = await self._open().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers.raw if k.lower() not in (b"host", b"content-length")],
                data=(b"".join(request.stream) or None) if isinstance(request.stream, httpx.ByteStream) else request.stream,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.get("connect"), sock_read=timeouts.get("read")),
            )
        except aiohttp.ConnectionTimeoutError as e:
            raise httpx.ConnectTimeout("no connection to the upstream in time") from e
        except TimeoutError as e:
            raise httpx.ReadTimeout("the upstream did not answer in time") from e
        except aiohttp.ClientConnectorError as e:
            raise httpx.ConnectError(_told(e)) from e
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError) as e:
            raise httpx.ReadError(_told(e)) from e
        except (aiohttp.ClientError, ValueError) as e:
            raise httpx.RemoteProtocolError(_told(e)) from e
        return httpx.Response(response.status, headers=httpx.Headers(list(response.raw_headers)), stream=_Leased(response, self._free))

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()


class _Leased(Body):
    """A body that gives its place in the pool back, once."""

    def __init__(self, response: aiohttp.ClientResponse, free: asyncio.Semaphore) -> None:
        super().__init__(response)
        self._free: asyncio.Semaphore | None = free

    async def aclose(self) -> None:
        free, self._free = self._free, None
        if free is not None:
            await super().aclose()
            free.release()


def _told(error: Exception) -> str:
    """The kind of failure without addresses: client-visible texts must not name internal hosts."""
    return type(error.__cause__ or error).__name__
