"""Any OpenAI-compatible server: one request in, one response out, with deadlines."""

from __future__ import annotations

import asyncio
import re
import zlib
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from gateway.errors import BadRequest, StreamIncomplete, UpstreamUnreachable
from gateway.http.pacing import PacedStream
from gateway.upstream.base import (
    Origin,
    Transport,
    TransportRequest,
    UpstreamRequest,
    UpstreamResponse,
    size_of,
)
from gateway.upstream.deadlines import Deadlines, DeadlineTimer, Timeouts
from gateway.wire.compression import CHUNK_BYTES, Decompressor

PACKED = (b"gzip", b"x-gzip", b"deflate")
TARGET = re.compile(r"[\x21-\x7e]{1,65536}")
# Need no Content-Length of 0.
BODYLESS = ("GET", "HEAD", "OPTIONS")


class BaseUrl:
    """A base URL taken apart.

    Its query is sent with every request, except members that the request has itself. credentials:
    the Authorization header for a URL with `user:password@`; None without. Raises ValueError unless
    it is an http or https URL.
    """

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("not an http or https URL")
        if url.hostname.isascii():
            host = url.hostname
        else:
            host = url.hostname.encode("idna").decode()
        default_port = 443 if url.scheme == "https" else 80
        self.origin = Origin(url.scheme == "https", host, url.port or default_port)
        name = f"[{host}]" if ":" in host else host
        self.host = (
            name if self.origin.port == default_port else f"{name}:{self.origin.port}"
        ).encode()
        self.path = url.path.rstrip("/")
        self._query = [part for part in url.query.split("&") if part]
        credentials = url.netloc.rpartition("@")[0]
        self.credentials = (
            (
                (
                    b"authorization",
                    b"Basic " + b64encode(unquote(credentials).encode()),
                )
            )
            if credentials
            else None
        )

    def target(self, path: str) -> str:
        """Return the request target for a path below the base URL, which may have a query."""
        if not self._query:
            return self.path + path
        path_members = {part.partition("=")[0] for part in path.partition("?")[2].split("&")}
        extra_query = "&".join(
            part for part in self._query if part.partition("=")[0] not in path_members
        )
        return (
            self.path + path + (("&" if "?" in path else "?") + extra_query if extra_query else "")
        )


class OpenAIUpstream:
    """A server that speaks OpenAI's HTTP API.

    base_url: up to and including `/v1`. transport: shared by all upstreams of a provider, or
    a test's own.
    """

    def __init__(
        self, base_url: str, transport: Transport, timeouts: Timeouts | None = None
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts or Timeouts()
        self._alarm = DeadlineTimer()
        self._address: BaseUrl | None
        try:
            self._address = BaseUrl(base_url)
        except ValueError:
            # Raised on use: the gateway still starts.
            self._address = None

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request, see the port.

        Time limits: connect; first_token, until the first body byte; idle, between bytes; total.
        """
        incoming = await self._transport.call(
            self._request(request),
            Deadlines(self._alarm, self._timeouts, request.until, stream=request.stream),
        )
        if (
            request.method == "HEAD"
            or (incoming.header(b"content-encoding") or b"").strip().lower() not in PACKED
        ):
            return incoming
        # No compression was asked for; a body that is compressed nevertheless is decompressed here,
        # and the headers say so.
        headers = [
            (k, v)
            for k, v in incoming.headers
            if k.lower() not in (b"content-encoding", b"content-length")
        ]
        return UpstreamResponse(incoming.status, headers, _DecompressedBody(incoming))

    def _request(self, request: UpstreamRequest) -> TransportRequest:
        address = self._address
        if address is None:
            raise UpstreamUnreachable(
                "The provider's base_url is not an http or https URL, so it cannot be reached. "
                "Check it in the configuration."
            )
        target = address.target(request.path)
        if not TARGET.fullmatch(target):
            raise BadRequest(
                "The path and query cannot be forwarded: they have more than 64 KB, or other "
                "than printable characters."
            )
        headers = [*request.headers]
        if address.credentials is not None and not any(k == b"authorization" for k, _ in headers):
            headers.append(address.credentials)
        if request.content is not None or request.method not in BODYLESS:
            headers.append((b"content-length", b"%d" % size_of(request.content)))
        return TransportRequest(
            address.origin,
            address.host,
            request.method,
            target.encode(),
            headers,
            request.content,
            request.on_written,
        )


class _DecompressedBody:
    """A compressed body, decompressed.

    An object, not a generator: closing one that was never iterated must work too.
    """

    def __init__(self, incoming: UpstreamResponse) -> None:
        self._incoming = incoming
        self._compressed = PacedStream(incoming.body)
        self._unpack = Decompressor()
        self._unpacked: Iterator[bytes] = iter(())

    def __aiter__(self) -> _DecompressedBody:
        return self

    async def __anext__(self) -> bytes:
        part = b""
        while not part:
            try:
                if (unpacked_part := next(self._unpacked, None)) is None:
                    self._unpacked = self._unpack.pieces(await anext(self._compressed))
                else:
                    part = unpacked_part
                    if len(unpacked_part) == CHUNK_BYTES:
                        # Let other requests run: little data may become much.
                        await asyncio.sleep(0)
            except zlib.error as e:
                await self.aclose()
                raise StreamIncomplete(f"The upstream's answer broke off ({e}). Try again.") from e
            except StopAsyncIteration:
                if not self._unpack.is_between_members:
                    raise StreamIncomplete(
                        "The upstream's compressed answer broke off. Try again."
                    ) from None
                raise
        return part

    async def aclose(self) -> None:
        await self._incoming.close()
