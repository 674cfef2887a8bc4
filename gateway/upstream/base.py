"""The two ports of this package.

`Upstream` forwards one request to one model server, once. `Wire` sends the bytes of a request to
wherever they go, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple, Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.http.paths import UpstreamPath, with_query
from gateway.upstream.deadlines import Deadlines
from gateway.wire.long_content import LongContent

ANSWER_BYTES = 128 << 20  # limit of a response that is read as a whole
ERROR_BYTES = 1 << 20
Headers = list[tuple[bytes, bytes]]
Content = (
    bytes | Sequence[bytes | memoryview]
)  # a body, or its parts: joining those of a long history costs as much as sending it


def join_body(content: Content) -> bytes:
    """Return a body in one piece."""
    if isinstance(content, LongContent):
        return content.join()
    return content if isinstance(content, bytes) else b"".join(content)


def size_of(content: Content | None) -> int:
    """Return the size of a body in bytes; 0 for none."""
    if isinstance(content, LongContent):
        return content.size
    return len(content) if isinstance(content, bytes) else sum(map(len, content or ()))


def _ignore() -> None:
    """Do nothing."""


class UpstreamRequest(msgspec.Struct):
    """One upstream request.

    path: below the provider's base URL; names in it are quoted. model: the name its target knows
    the model by; "" if the body names none. frozen: the first system message ends with core text
    that stays the same for a while, so a provider whose prompt cache needs marks may set one there.
    stream: events were asked for, so silence is limited; otherwise only the total time is. written:
    called when the request is being sent. composed: it may hold other things than the one before
    it did at the same place, since memory changes. masked: who reads the answer for the client
    takes out what is marked as ours. tenant: whose request it is. own: a call of the gateway's own,
    a small chat completion, whose limit of tokens is named as its server wants it.
    """

    path: UpstreamPath
    content: Content | None
    headers: Sequence[tuple[bytes, bytes]] = ()
    method: str = "POST"
    model: str = ""
    frozen: bool = False
    until: float = float("inf")  # the caller's own deadline, by the loop's time
    stream: bool = False
    written: Callable[[], None] = _ignore
    composed: bool = False
    masked: bool = False
    tenant: str = ""
    own: bool = False

    def add_query(self, query: str) -> None:
        """Send a query too, "" for none."""
        self.path = with_query(self.path, query)

    @property
    def body(self) -> bytes | None:
        """The content in one piece."""
        return None if self.content is None else join_body(self.content)


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
    lost: tuple[str, ...] = ()


class UpstreamResponse(msgspec.Struct):
    """An upstream's response.

    Iterate `body` to its end or call `close`, which frees the connection at once. carriage: None
    where the server speaks the request's format.
    """

    status: int
    headers: Headers
    body: AsyncIterator[bytes]
    carriage: Carriage | None = None

    def header(self, name: bytes) -> bytes | None:
        for other, value in self.headers:
            if other.lower() == name:
                return value
        return None

    @property
    def is_events(self) -> bool:
        """Whether the body is an event stream that can be read.

        One with a content encoding is passed on as bytes.
        """
        return b"event-stream" in (self.header(b"content-type") or b"").lower() and not self.header(
            b"content-encoding"
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
        read = BytesIO()
        async for part in self.body:
            read.write(part)
            if limit is not None and read.tell() >= limit:
                break
        return read.getvalue()

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


@dataclass(slots=True)
class WireRequest:
    """What a wire sends.

    host: value of the Host header. target: path and query as in the request line. written: called
    when the request is being sent; from then on it may cost money.
    """

    origin: Origin
    host: bytes
    method: str
    target: bytes
    headers: Headers
    content: Content | None
    written: Callable[[], None] = _ignore


class Wire(Protocol):
    """Connections to servers."""

    async def call(self, request: WireRequest, clock: Deadlines) -> UpstreamResponse:
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
