"""Two ports.

`Upstream` forwards one request to one model server, once; `Wire` carries the bytes of one to
wherever they go, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.errors import GatewayError
from gateway.upstream.deadlines import Deadlines

ANSWER_BYTES = 128 << 20  # of an answer that is read whole
ERROR_BYTES = 1 << 20
Headers = list[tuple[bytes, bytes]]
Content = (
    bytes | Sequence[bytes | memoryview]
)  # a body, or its parts: to join those of a long history costs as much as to send it


def join_body(content: Content) -> bytes:
    """Return a body in one piece."""
    return content if isinstance(content, bytes) else b"".join(content)


def size_of(content: Content | None) -> int:
    """Return the bytes of a body; 0 for none."""
    return len(content) if isinstance(content, bytes) else sum(len(part) for part in content or ())


def _ignore() -> None:
    """Take no note."""


@dataclass(slots=True)
class UpstreamRequest:
    """One upstream request: `path` is relative to the provider's base URL and may hold a query.

    model: the name its target knows the model by, "" where the body names none. frozen: the first
    system message ends with core text that stays the same for a while, so a provider whose prompt
    cache wants marks may be told so there. stream: events were asked for, so silence is limited;
    else the total time alone is. written: called once the request leaves. composed: it may hold
    other things than the one before it did at the same place, since memory changes.
    """

    path: str
    content: Content | None
    headers: Sequence[tuple[bytes, bytes]] = ()
    method: str = "POST"
    model: str = ""
    frozen: bool = False
    until: float = float("inf")  # the loop's time by which the caller's own limit ends it
    stream: bool = False
    written: Callable[[], None] = _ignore
    composed: bool = False

    @property
    def body(self) -> bytes | None:
        """The content in one piece."""
        return None if self.content is None else join_body(self.content)


@dataclass(slots=True)
class UpstreamResponse:
    """An upstream's answer.

    Iterate `body` to its end or call `close`, which frees the connection at once.
    """

    status: int
    headers: Headers
    body: AsyncIterator[bytes]

    def header(self, name: bytes) -> bytes | None:
        return next((v for k, v in self.headers if k.lower() == name), None)

    @property
    def is_events(self) -> bool:
        """Whether events can be read from it: packed in a way that is not ours to unpack, it is
        bytes.
        """
        return b"event-stream" in (self.header(b"content-type") or b"").lower() and not self.header(
            b"content-encoding"
        )

    async def wait_for_end(self, within: float = 0.01) -> None:
        """Wait a moment (seconds) for the end of a body of which all that matters has come: the
        connection can then be used again.
        """
        with contextlib.suppress(TimeoutError, GatewayError):
            async with asyncio.timeout(within):
                async for _ in self.body:
                    pass

    async def read(self, limit: int | None = None) -> bytes:
        """Return the whole body; past `limit` bytes the rest is left unread."""
        parts: list[bytes] = []
        size = 0
        async for part in self.body:
            parts.append(part)
            size += len(part)
            if limit is not None and size >= limit:
                break
        return b"".join(parts)

    async def close(self) -> None:
        closer = getattr(self.body, "aclose", None)
        if closer is not None:
            await closer()


class Upstream(Protocol):
    """A model server."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Forward the request; returns once the status is known.

        Raises UpstreamUnreachable (refused, reset, garbage), UpstreamTimeout (its code names the
        timer; the body iterator raises it too), Unavailable (no connection free within the connect
        budget). A cancelled call closes the upstream's connection at once, in every phase.
        """
        ...


class Origin(NamedTuple):
    """Where connections go. host: a name or an address, without brackets."""

    tls: bool
    host: str
    port: int


@dataclass(slots=True)
class WireRequest:
    """What a wire carries.

    host: the header of that name. target: path and query as they stand in the request line.

    written: called when it begins to leave: from then on its answer may cost something.
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
        """Send the request once; returns once the status is known.

        clock: what every wait is made under, for the body too.

        A kept connection that dies before the first byte of an answer is replaced by a fresh one,
        once.

        Raises Unavailable (no connection free within its connect limit), UpstreamTimeout (none open
        by then, or the clock's), UpstreamUnreachable (refused, reset, garbage); the body's iterator
        raises StreamIncomplete. A cancelled call, or iterator, closes the connection at once.
        """
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...
