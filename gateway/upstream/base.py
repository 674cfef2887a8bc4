"""The two ports of this package.

`Upstream` forwards one request to one model server, once. `Transport` sends the bytes of a
request to wherever they go, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from typing import NamedTuple, Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.http.upstream_request import (
    Content,
    Headers,
    UpstreamRequest,
    ignore,
    join_body,
    size_of,
)
from gateway.upstream.deadlines import Deadlines

__all__ = [
    "Carriage",
    "Content",
    "Headers",
    "OnePiece",
    "Origin",
    "Transport",
    "TransportRequest",
    "Upstream",
    "UpstreamRequest",
    "UpstreamResponse",
    "join_body",
    "size_of",
]

# Limit of a response that is read as a whole.
ANSWER_BYTES = 128 << 20
ERROR_BYTES = 1 << 20


class OnePiece:
    """A body that has been read."""

    def __init__(self, data: bytes) -> None:
        self._data = [data]

    def __aiter__(self) -> OnePiece:
        return self

    async def __anext__(self) -> bytes:
        if not self._data:
            raise StopAsyncIteration
        return self._data.pop()


class Carriage(NamedTuple):
    """How a request went otherwise than it came: in which format, and what of it was lost.

    form: "" where that is its own.
    """

    form: str
    lost_members: tuple[str, ...] = ()


class UpstreamResponse(msgspec.Struct):
    """An upstream's response.

    Iterate `body` to its end or call `close`, which frees the connection at once. carriage: None
    where the server speaks the request's format.
    """

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    carriage: Carriage | None = None
    _is_events: bool | None = None

    def header(self, name: bytes) -> bytes | None:
        for header_name, value in self.headers:
            if header_name.lower() == name:
                return value
        return None

    @property
    def is_events(self) -> bool:
        """Whether the body is an event stream that can be read.

        One with a content encoding is passed on as bytes.
        """
        if self._is_events is None:
            self._is_events = self._tells_events()
        return self._is_events

    def _tells_events(self) -> bool:
        content_type = self.header(b"content-type")
        return (
            content_type is not None
            and b"event-stream" in content_type.lower()
            and not self.header(b"content-encoding")
        )

    async def wait_for_end(self, within: float = 0.01) -> None:
        """Wait a moment (seconds) for the end of a body whose content has arrived.

        The connection can then be used again.
        """
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(within):
                async for _ in self.body:
                    pass

    async def read(self, limit: int | None = None) -> bytes:
        """Return the whole body; past `limit` bytes the rest is left unread."""
        # It grows in place: to join the pieces of a large body would copy it in one long step.
        buffer = BytesIO()
        async for part in self.body:
            buffer.write(part)
            if limit is not None and buffer.tell() >= limit:
                break
        return buffer.getvalue()

    async def close(self) -> None:
        closer = getattr(self.body, "aclose", None)
        if closer is not None:
            await closer()


class Upstream(Protocol):
    """A model server."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Forward the request; return once the status is known.

        Raises UpstreamUnreachable (refused, reset, not HTTP), UpstreamTimeout (its code names the
        timer; the body iterator raises it too), Unavailable (no connection free within the connect
        limit). A cancelled call closes the upstream's connection at once, in every phase.
        """
        ...


class Origin(NamedTuple):
    """Where connections go. host: a name or an address, without brackets."""

    tls: bool
    host: str
    port: int


class TransportRequest(msgspec.Struct):
    """What a transport sends.

    host: value of the Host header. target: path and query as in the request line. on_written:
    called when the request is being sent; from then on it may cost money.
    """

    origin: Origin
    host: bytes
    method: str
    target: bytes
    headers: Headers
    content: Content | None
    on_written: Callable[[], None] = ignore


class Transport(Protocol):
    """Connections to servers."""

    async def call(self, request: TransportRequest, clock: Deadlines) -> UpstreamResponse:
        """Send the request once; return once the status is known.

        clock: deadlines of every wait, for the body too. A kept connection that dies before the
        first byte of a response is replaced by a fresh one, once.

        Raises Unavailable (no connection free within the connect limit), UpstreamTimeout (not
        connected by then, or a deadline passed), UpstreamUnreachable (refused, reset, not HTTP);
        the body's iterator raises StreamIncomplete. A cancelled call, or iterator, closes the
        connection at once.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
