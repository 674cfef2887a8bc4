"""The built-in HTTP/1.1 client: one request at a time on a connection, with keep-alive.

The project prefers well-kept libraries, but measures on the hot path: the client is the most
expensive part of a request and is paid again for each piece of a stream. One POST of 4 KB with an
answer of 600 bytes over loopback, sent and read through `OpenAIUpstream`, took 226 us of CPU over
aiohttp (120 of them aiohttp's own) and takes 40 here; an event of a stream 34 and 17.

`Connection` is a socket and the response awaited on it (`http1_parser` has the grammar);
`Http1Client` is the pool. Rules:

- Nothing is sent twice, with one exception: a kept connection that dies before the first byte of a
  response was being closed by the server, so the request is sent over a fresh one at once. All
  other retries are the caller's, who counts them.
- No cookies, no redirects, no decompression; headers and target are sent and received byte for
  byte.
- A connection is reused only if its response was complete, its request was sent completely, and
  nothing followed.
- Cancelling, at any point, closes the connection at once; its slot in the pool is released once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, cast

from gateway.errors import StreamIncomplete, UpstreamUnreachable
from gateway.http.pacing import LOOP_PAUSE_SECONDS
from gateway.upstream.base import (
    Content,
    Origin,
    TransportRequest,
    UpstreamResponse,
    join_body,
    size_of,
)
from gateway.upstream.connection_errors import no_answer_error, too_slow, unreachable
from gateway.upstream.connection_pool_slots import ConnectionSlots
from gateway.upstream.deadlines import Deadlines
from gateway.upstream.dialer import dial
from gateway.upstream.http1_parser import CHUNK_BYTES, MalformedResponse, ResponseParser
from gateway.upstream.tls_trust import trust

# Bytes of a request's body written at once.
WRITTEN = 1 << 17
# Of it, after which the event loop is released.
STEP_BYTES = 1 << 19
# Smaller bodies are copied, which is faster than writing parts.
AT_ONCE = 1 << 15
# Unread bytes after which the server has to wait.
UNREAD = 1 << 17
# Seconds to keep an unused connection.
IDLE = 30.0
HERE = "closed here"


class Connection(asyncio.Protocol):
    """A connection to `origin`, and the response awaited on it. pool: its client."""

    def __init__(self, pool: Http1Client, origin: Origin) -> None:
        self.origin = origin
        # Since when it is idle, by the loop's time; 0 if new.
        self.since = 0.0
        self._pool = pool
        self._response: ResponseParser | None = None
        # Of the request, still to be written; None once all is.
        self._unwritten: Iterator[bytes | memoryview] | None = None
        self._is_full = self.paused = False
        self._next_step: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    def begin(self, head: bytes, body: Content | None, bodyless: bool) -> ResponseParser:
        """Send a request.

        A large one is sent as fast as the server takes it, and its response may start before.
        """
        response = self._response = ResponseParser(bodyless)
        content = body or b""
        if type(content) is list:
            size = sum(map(len, content))
        else:
            size = size_of(content)
        if self._transport.is_closing():
            self._finish("closed at once")
        elif size <= AT_ONCE:
            is_parts = type(content) is list
            self._transport.write(
                b"".join((head, *content)) if is_parts else head + join_body(content)
            )
        else:
            self._unwritten = _pieces(head, body or b"")
            self._write()
        return response

    async def more(self, response: ResponseParser, clock: Deadlines) -> None:
        """Wait until data arrived.

        A wait that is cancelled or exceeds its deadline closes the connection.
        """
        waiter = self._waiter = self._pool.loop.create_future()
        clock.limit(waiter)
        try:
            await waiter
        except BaseException:
            self.leave(response)
            raise
        finally:
            clock.end_wait()

    def resume_reading(self, response: ResponseParser) -> None:
        """Continue to read from the server once the reader has caught up."""
        if response.unread < CHUNK_BYTES and self._response is response and not self.closing:
            self._resume()

    def leave(self, response: ResponseParser) -> None:
        """Close the connection: the rest of the response is not wanted."""
        if self._response is response:
            self.abort()

    def abort(self) -> None:
        self._finish(HERE)
        self._transport.abort()

    @property
    def closing(self) -> bool:
        return self._transport.is_closing()

    def _finish(self, fault: str = "") -> None:
        """Release the slot: the response has ended, possibly with a fault."""
        response = self._response
        self._response = None
        if response is None:
            return
        response.end(fault)
        reusable = (
            response.reusable
            and self._unwritten is None
            and not self._transport.is_closing()
            and not self._transport.get_write_buffer_size()
        )
        self._unwritten = None
        if reusable and self.paused:
            self._resume()
        self._pool.give_back(self, reusable)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if not reusable:
            self._transport.abort()

    def _resume(self) -> None:
        self.paused = False
        self._transport.resume_reading()

    def _write(self) -> None:
        """Write what the server takes of a long request, `STEP_BYTES` in one turn of the loop."""
        written_bytes = 0
        while self._unwritten is not None and not self._is_full and self._next_step is None:
            if (part := next(self._unwritten, None)) is None:
                self._unwritten = None
                continue
            self._transport.write(part)
            written_bytes += len(part)
            if written_bytes >= STEP_BYTES:
                self._next_step = self._pool.loop.call_later(LOOP_PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._next_step = None
        self._write()

    # --- callbacks of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Uvloop's transports are no subclasses of it.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None:
            # Data without a request.
            self.abort()
            return
        try:
            response.feed(data)
        except MalformedResponse as e:
            self._finish(str(e))
            return
        if response.is_complete:
            self._finish()
            return
        if response.unread > UNREAD and not self.paused and not self.closing:
            self.paused = True
            self._transport.pause_reading()
        if response.status and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._write()

    def eof_received(self) -> None:
        # at once: the rest of the request need not be sent to a server that may not read it
        self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.forget(self)
        self._finish(type(exc).__name__ if exc is not None else "")


class Http1Body:
    """The bytes of a response as they arrive, in pieces of limited size."""

    __slots__ = ("_clock", "_connection", "_response")

    def __init__(self, connection: Connection, response: ResponseParser, clock: Deadlines) -> None:
        self._connection = connection
        self._response = response
        self._clock = clock

    def __aiter__(self) -> Http1Body:
        return self

    async def __anext__(self) -> bytes:
        response = self._response
        connection = self._connection
        clock = self._clock
        while not (data := response.take()):
            if response.is_complete:
                raise StopAsyncIteration
            if response.fault:
                raise StreamIncomplete(
                    f"The upstream's answer broke off ({response.fault}). Try again."
                )
            await connection.more(response, clock)
        clock.start_idle()
        if connection.paused:
            connection.resume_reading(response)
        return data

    async def aclose(self) -> None:
        self._connection.leave(self._response)


class Http1Client:
    """The connections of one provider.

    max_connections: limit at any time, over all its addresses. tls: replaces the system's trust.
    """

    def __init__(self, max_connections: int = 1000, tls: ssl.SSLContext | None = None) -> None:
        self.connections: set[Connection] = set()
        self.places = ConnectionSlots(max_connections)
        # Least recently used first.
        self._idle_connections: dict[Origin, list[Connection]] = {}
        self._idle_timer: asyncio.TimerHandle | None = None
        self._tls = tls

    async def call(self, request: TransportRequest, clock: Deadlines) -> UpstreamResponse:
        """Send the request, see the port."""
        head = _head(request)
        self.loop = asyncio.get_running_loop()
        for is_new in (False, True):
            connection = None
            if not is_new:
                connection = self._take_kept(request.origin)
            if connection is None:
                connection = await self._take_connection(request.origin, clock, fresh=is_new)
            request.on_written()
            response = connection.begin(head, request.content, request.method == "HEAD")
            while not response.status and not response.fault:
                await connection.more(response, clock)
            if response.status:
                return UpstreamResponse(
                    response.status, response.headers, Http1Body(connection, response, clock)
                )
            if not (connection.since and response.silent) or response.fault == HERE:
                break
        # For the log.
        raise no_answer_error(response.silent) from ConnectionError(response.fault)

    def _take_kept(self, origin: Origin) -> Connection | None:
        """Take a slot and a kept connection, where neither has to be waited for."""
        idle_connections = self._idle_connections.get(origin)
        slots = self.places
        while idle_connections and slots.free_count:
            connection = idle_connections.pop()
            if not connection._transport.is_closing():
                slots.free_count -= 1
                return connection
        return None

    async def _take_connection(
        self, origin: Origin, clock: Deadlines, *, fresh: bool
    ) -> Connection:
        """Take a slot and a connection: a kept one, unless `fresh`."""
        with clock:
            until = self.loop.time() + clock.timeouts.connect
            await self.places.take(until)
            return (None if fresh else self._usable(origin)) or await self._open(origin, until)

    async def aclose(self) -> None:
        """Close every connection; a reader of one gets an error."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for connection in list(self.connections):
            connection.abort()
        while self.connections:  # noqa: ASYNC110 - one or two iterations of the event loop
            await asyncio.sleep(0)

    def give_back(self, connection: Connection, reusable: bool) -> None:
        """Take back a connection whose response has ended."""
        if reusable:
            connection.since = self.loop.time()
            self._idle_connections.setdefault(connection.origin, []).append(connection)
            if self._idle_timer is None:
                self._idle_timer = self.loop.call_later(IDLE, self._close_idle)
        self.places.give()

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if connection in (idle_connections := self._idle_connections.get(connection.origin, [])):
            idle_connections.remove(connection)

    def _usable(self, origin: Origin) -> Connection | None:
        idle_connections = self._idle_connections.get(origin)
        while idle_connections:
            if not (connection := idle_connections.pop()).closing:
                return connection
        return None

    async def _open(self, origin: Origin, until: float) -> Connection:
        """Return a new connection, or release the slot.

        Raises UpstreamTimeout, UpstreamUnreachable.
        """
        make: Callable[[], Connection] = partial(Connection, self, origin)
        try:
            async with asyncio.timeout_at(until):
                sock = await dial(origin.host, origin.port)
                secured: dict[str, Any] = (
                    {"ssl": self._trust(), "server_hostname": origin.host} if origin.tls else {}
                )
                _, connection = await self.loop.create_connection(make, sock=sock, **secured)
        except BaseException as e:
            self.places.give()
            if isinstance(e, TimeoutError):
                raise too_slow() from e
            if isinstance(e, (OSError, ValueError)):
                raise unreachable(e) from e
            raise
        # registered only now: uvloop does not report the loss of a connection whose opening was
        # cancelled
        if not connection.closing:
            self.connections.add(connection)
        return connection

    def _trust(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = trust()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls

    def _close_idle(self) -> None:
        """Close connections that were idle for too long; set the timer for the next one."""
        now = self.loop.time()
        for idle_connections in self._idle_connections.values():
            while idle_connections and idle_connections[0].since + IDLE <= now:
                idle_connections.pop(0).abort()
        oldest_use = min(
            (
                idle_connections[0].since
                for idle_connections in self._idle_connections.values()
                if idle_connections
            ),
            default=None,
        )
        if oldest_use is None:
            self._idle_timer = None
        else:
            self._idle_timer = self.loop.call_at(oldest_use + IDLE, self._close_idle)


def _pieces(head: bytes, body: Content) -> Iterator[bytes | memoryview]:
    """Yield what is written of a long request at once. Parts are asked for as they are written."""
    parts = iter((body,) if isinstance(body, bytes) else body)
    first_part = next(parts)
    # Saves a write.
    if len(first_part) <= AT_ONCE:
        yield head + first_part
    else:
        yield head
        parts = chain((first_part,), parts)
    for part in parts:
        view = memoryview(part)
        for at in range(0, len(view), WRITTEN):
            yield view[at : at + WRITTEN]


def _head(request: TransportRequest) -> bytes:
    """Return the head of the request.

    Raises UpstreamUnreachable if a header has a line break in it.
    """
    lines = [
        b"%b %b HTTP/1.1" % (request.method.encode(), request.target),
        b"Host: " + request.host,
    ]
    lines += map(b": ".join, request.headers)
    head = b"\r\n".join(lines)
    if not head.count(b"\r") == head.count(b"\n") == len(lines) - 1 or b"\0" in head:
        raise UpstreamUnreachable(
            "A header for the upstream contains a line break and cannot be sent. Check the "
            "provider's api_key."
        )
    return head + b"\r\n\r\n"
