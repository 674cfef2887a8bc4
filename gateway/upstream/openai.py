"""Any OpenAI-compatible server: one request in, one answer out, with the provider's key and
clocks.
"""

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
    UpstreamRequest,
    UpstreamResponse,
    Wire,
    WireRequest,
    size_of,
)
from gateway.upstream.deadlines import Deadlines, DeadlineTimer, Timeouts
from gateway.wire.compression import CHUNK_BYTES, Decompressor

PACKED = (b"gzip", b"x-gzip", b"deflate")
TARGET = re.compile(r"[\x21-\x7e]{1,65536}")
BODYLESS = ("GET", "HEAD", "OPTIONS")  # whose requests need not say that they have no body


class BaseUrl:
    """A base URL taken apart. Raises ValueError for what is no http or https address.

    A query in it goes along with every request, but for members that the request has itself.
    credentials: of an address with `user:password@`, the header for them; None elsewhere.
    """

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("no http or https address")
        host = url.hostname if url.hostname.isascii() else url.hostname.encode("idna").decode()
        usual = 443 if url.scheme == "https" else 80
        self.origin = Origin(url.scheme == "https", host, url.port or usual)
        name = f"[{host}]" if ":" in host else host
        self.host = (name if self.origin.port == usual else f"{name}:{self.origin.port}").encode()
        self.path = url.path.rstrip("/")
        self._query = [part for part in url.query.split("&") if part]
        named = url.netloc.rpartition("@")[0]
        self.credentials = (
            (b"authorization", b"Basic " + b64encode(unquote(named).encode())) if named else None
        )

    def target(self, path: str) -> str:
        """Give the request line's target for a path below the base URL, which may have a query of
        its own.
        """
        if not self._query:
            return self.path + path
        known = {part.partition("=")[0] for part in path.partition("?")[2].split("&")}
        more = "&".join(part for part in self._query if part.partition("=")[0] not in known)
        return self.path + path + (("&" if "?" in path else "?") + more if more else "")


class OpenAIUpstream:
    """A server that speaks OpenAI's HTTP API.

    base_url: up to and including `/v1`. wire: shared by all upstreams of a provider, or a test's
    own.
    """

    def __init__(self, base_url: str, wire: Wire, timeouts: Timeouts | None = None) -> None:
        self._wire = wire
        self._timeouts = timeouts or Timeouts()
        self._alarm = DeadlineTimer()
        self._address: BaseUrl | None
        try:
            self._address = BaseUrl(base_url)
        except ValueError:  # told to who calls it: the gateway starts all the same
            self._address = None

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """See the port.

        The clocks: connect, then first_token until the first body byte, idle between bytes, total.
        """
        incoming = await self._wire.call(
            self._request(request),
            Deadlines(self._alarm, self._timeouts, request.until, stream=request.stream),
        )
        if (
            request.method == "HEAD"
            or (incoming.header(b"content-encoding") or b"").strip().lower() not in PACKED
        ):
            return incoming
        # Plain was asked for; who sends packed all the same is unpacked here, once, and the headers
        # say so.
        headers = [
            (k, v)
            for k, v in incoming.headers
            if k.lower() not in (b"content-encoding", b"content-length")
        ]
        return UpstreamResponse(incoming.status, headers, _DecompressedBody(incoming))

    def _request(self, request: UpstreamRequest) -> WireRequest:
        address = self._address
        if address is None:
            raise UpstreamUnreachable(
                "The provider's base_url is no http or https address, so it cannot be reached. "
                "Check it in the configuration."
            )
        target = address.target(request.path)
        if not TARGET.fullmatch(target):
            raise BadRequest(
                "The path and query cannot be sent on: they have more than 64 KB, or other "
                "than printable characters."
            )
        headers = [*request.headers]
        if address.credentials is not None and not any(k == b"authorization" for k, _ in headers):
            headers.append(address.credentials)
        if request.content is not None or request.method not in BODYLESS:
            headers.append((b"content-length", b"%d" % size_of(request.content)))
        return WireRequest(
            address.origin,
            address.host,
            request.method,
            target.encode(),
            headers,
            request.content,
            request.written,
        )


class _DecompressedBody:
    """A compressed body as what it says.

    An object, not a generator: closing one that was never iterated must work too.
    """

    def __init__(self, incoming: UpstreamResponse) -> None:
        self._incoming = incoming
        self._packed = PacedStream(incoming.body)
        self._unpack = Decompressor()
        self._pieces: Iterator[bytes] = iter(())

    def __aiter__(self) -> _DecompressedBody:
        return self

    async def __anext__(self) -> bytes:
        part = b""
        while not part:
            try:
                if (piece := next(self._pieces, None)) is None:
                    self._pieces = self._unpack.pieces(await anext(self._packed))
                else:
                    part = piece
                    if len(piece) == CHUNK_BYTES:
                        await asyncio.sleep(0)  # others' turn: a little becomes much
            except zlib.error as e:
                await self.aclose()
                raise StreamIncomplete(f"The upstream's answer broke off ({e}). Try again.") from e
            except StopAsyncIteration:
                if not self._unpack.whole:
                    raise StreamIncomplete(
                        "The upstream's compressed answer broke off. Try again."
                    ) from None
                raise
        return part

    async def aclose(self) -> None:
        await self._incoming.close()
