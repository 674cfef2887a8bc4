"""An HTTP client for tools whose host is the operator's: no cookies, no proxy of the environment.

A redirect is followed on the same host alone, since the headers of the operator go with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import msgspec

from gateway.upstream.tls_trust import trust
from memory import product_name

if TYPE_CHECKING:
    import httpx

# Of an answer, after decompression.
MAX_BYTES = 8 << 20
REDIRECTS = 5
MOVED = frozenset({301, 302, 303, 307, 308})
# A redirect after which nothing is sent again.
AS_GET = frozenset({301, 302, 303})
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 30.0


class ToolRequest(msgspec.Struct, frozen=True):
    """One request. content: b"" for none."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes = b""


class ToolAnswer(msgspec.Struct, frozen=True):
    """An answer, whole. charset: as its headers name it, "" where they do not."""

    status: int
    media_type: str
    charset: str
    content: bytes


class ToolUnreachable(Exception):
    """No connection, or one that broke off."""


class UnusableAnswer(Exception):
    """An answer that is too large, or leads to another host; the message is for the model."""


class ToolClient:
    """Sends the requests of one entry. Opened at its first use."""

    def __init__(self, max_connections: int) -> None:
        self._max_connections = max_connections
        self._client: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()

    async def send(self, request: ToolRequest) -> ToolAnswer:
        """Send a request; a connection that failed before a byte was sent is tried once more.

        The caller bounds its time. Raises ToolUnreachable, UnusableAnswer.
        """
        client = await self._open()
        for _ in range(REDIRECTS + 1):
            answer, location = await self._send_once(client, request)
            if not location:
                return answer
            request = _redirected(request, answer.status, location)
        raise UnusableAnswer(f"it redirected more than {REDIRECTS} times")

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _open(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._client is None:
                # Authorities are read from files, which takes tens of milliseconds.
                self._client = await asyncio.to_thread(_make_client, self._max_connections)
            return self._client

    async def _send_once(
        self, client: httpx.AsyncClient, request: ToolRequest
    ) -> tuple[ToolAnswer, str]:
        """Return an answer, and where it redirects to, "" for nowhere."""
        import httpx

        for is_last in (False, True):
            try:
                return await _exchange(client, request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as e:
                if is_last:
                    raise ToolUnreachable from e
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as e:
                raise ToolUnreachable from e
        raise ToolUnreachable


async def _exchange(client: httpx.AsyncClient, request: ToolRequest) -> tuple[ToolAnswer, str]:
    headers = {"user-agent": product_name(), "accept": "*/*", **request.headers}
    outgoing = client.build_request(
        request.method, request.url, headers=headers, content=request.content or None
    )
    response = await client.send(outgoing, stream=True)
    try:
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MAX_BYTES:
                raise UnusableAnswer(f"its answer has more than {MAX_BYTES >> 20} MiB")
    finally:
        await response.aclose()
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    charset = response.charset_encoding or ""
    location = ""
    if response.status_code in MOVED:
        location = response.headers.get("location", "")
    return ToolAnswer(response.status_code, media_type, charset, bytes(content)), location


def _make_client(max_connections: int) -> httpx.AsyncClient:
    import httpx

    nobodys = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    limits = httpx.Limits(max_connections=max_connections, keepalive_expiry=IDLE_SECONDS)
    return httpx.AsyncClient(
        verify=trust(),
        cookies=nobodys,
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        limits=limits,
    )


def _redirected(request: ToolRequest, status: int, location: str) -> ToolRequest:
    """Return the request that a redirect asks for. Raises UnusableAnswer for another host."""
    url = urljoin(request.url, location)
    if _origin(url) != _origin(request.url):
        raise UnusableAnswer("it redirected to another host, which is not followed")
    if status in AS_GET and request.method not in ("GET", "HEAD"):
        return ToolRequest("GET", url, request.headers)
    return msgspec.structs.replace(request, url=url)


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", "", None
    return parts.scheme, parts.hostname or "", port
