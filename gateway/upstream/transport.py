"""httpx's transports as a wire: for a provider behind a proxy, with trust of its own, or over HTTP/2; and for tests.

Each transport carries one request at a time and keeps one connection. So a caller who leaves can close it at once, over HTTP/2
too, where httpcore would only stop listening while the server went on; and nothing waits for another's connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx

from gateway.errors import GatewayError, StreamIncomplete, Unavailable, UpstreamUnreachable
from gateway.upstream.base import Content, Incoming, Request
from gateway.upstream.clock import Clock
from gateway.upstream.faults import too_slow, unreachable
from gateway.upstream.http1 import IDLE
from gateway.upstream.places import Places

DIED = ("Server disconnected", "<ConnectionTerminated")


class TransportWire:
    """Sends through transports that `make` makes, so many at a time."""

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport], max_connections: int = 1000) -> None:
        self._make = make
        self.places = Places(max_connections)
        self._kept: list[tuple[float, httpx.AsyncBaseTransport]] = []  # with the loop's time; the last one used last
        self._lent: set[httpx.AsyncBaseTransport] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def call(self, request: Request, clock: Clock) -> Incoming:
        """See the port."""
        _check(request)
        for fresh in (False, True):
            with clock:
                until = asyncio.get_running_loop().time() + clock.timeouts.connect
                await self.places.take(until)
            lent = _Lent(self, None if fresh or not self._kept else self._kept.pop()[1], request)
            try:
                return await lent.answer(clock, until)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as e:
                if fresh or not lent.died(e):
                    raise unreachable(e) from e
        raise AssertionError("the second try returns or raises")

    async def aclose(self) -> None:
        """Closes every connection; who still reads from one is told."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for transport in [*self._lent, *(t for _, t in self._kept)]:
            self.close(transport)
        self._kept.clear()
        while self._closing:
            await asyncio.wait(self._closing)

    def made(self) -> httpx.AsyncBaseTransport:
        """Make a transport, without a connection as yet."""
        return self._make()

    def lend(self, transport: httpx.AsyncBaseTransport) -> None:
        """Note who is at work."""
        self._lent.add(transport)

    def done(self, transport: httpx.AsyncBaseTransport, *, whole: bool, parts: Any = None) -> None:
        """Take a transport back: one whose answer came whole is kept for the next request."""
        self._lent.discard(transport)
        self.places.give()
        if not whole:
            self.close(transport, parts)
            return
        loop = asyncio.get_running_loop()
        self._kept.append((loop.time(), transport))
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE, self._swept)

    def close(self, transport: httpx.AsyncBaseTransport, parts: Any = None) -> None:
        """Close a transport's connection, in a task, since whoever asks may have been cancelled."""
        task = asyncio.ensure_future(_closed(transport, parts))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _swept(self) -> None:
        """Close what was not used for too long, and look again when the next one's time comes."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._kept and self._kept[0][0] + IDLE <= now:
            self.close(self._kept.pop(0)[1])
        self._sweep = loop.call_at(self._kept[0][0] + IDLE, self._swept) if self._kept else None


class _Lent:
    """A transport at work on one request. kept: one that may have its connection already."""

    def __init__(self, wire: TransportWire, kept: httpx.AsyncBaseTransport | None, request: Request) -> None:
        self._wire, self._request = wire, request
        self._transport = kept or wire.made()
        self._opened = kept is None
        self._limit: asyncio.Timeout | None = None
        wire.lend(self._transport)

    async def answer(self, clock: Clock, until: float) -> Incoming:
        """Send the request, and give its answer. until: the loop's time by which a connection must be open."""
        try:
            with clock:
                async with asyncio.timeout_at(until) as self._limit:
                    if not isinstance(self._transport, httpx.AsyncHTTPTransport):
                        self._told()  # a test's own, which traces nothing
                    response = await self._transport.handle_async_request(_built(self._request, self._trace))
        except BaseException as e:
            self._wire.done(self._transport, whole=False)
            raise _named(e) from e.__cause__ if isinstance(e, GatewayError) else e
        return Incoming(response.status_code, list(response.headers.raw), _Body(self, response, clock))

    def died(self, error: httpx.TransportError) -> bool:
        """Whether it was a kept connection, whose server had closed it."""
        return not self._opened and (not isinstance(error, httpx.RemoteProtocolError) or str(error).startswith(DIED))

    def done(self, *, whole: bool, parts: Any = None) -> None:
        """Give the transport back."""
        self._wire.done(self._transport, whole=whole, parts=parts)

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        """Hear from httpcore how far it is."""
        if event.endswith("connect_tcp.started"):
            self._opened = True
        elif event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT":
            self._told()

    def _told(self) -> None:
        """The connection is open, and the request leaves."""
        if self._limit is not None:
            self._limit.reschedule(None)
        self._request.written()


class _Body:
    """An object, not a generator: closing one that was never iterated must work too."""

    def __init__(self, lent: _Lent, response: httpx.Response, clock: Clock) -> None:
        stream = response.stream
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - narrows the type; httpx allows sync streams too
        self._stream, self._clock = stream, clock
        self._lent: _Lent | None = lent
        self._whole = False
        self._parts: AsyncIterator[bytes] = aiter(stream)

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        if self._lent is None:
            if self._whole:
                raise StopAsyncIteration
            raise StreamIncomplete("The upstream's answer broke off (closed here). Try again.")
        try:
            with self._clock:
                while not (part := await anext(self._parts, None)) and part is not None:
                    pass
                if part is None:
                    await self._stream.aclose()  # which tells its connection that the answer is over
        except (GatewayError, asyncio.CancelledError):
            self._end()
            raise
        except Exception as e:
            self._end()
            raise StreamIncomplete(f"The upstream's answer broke off ({type(e).__name__}). Try again.") from e
        if part is None:
            self._end(whole=True)
            raise StopAsyncIteration
        self._clock.heard()
        return part

    async def aclose(self) -> None:
        self._end()

    def _end(self, *, whole: bool = False) -> None:
        lent, self._lent = self._lent, None
        if lent is not None:
            self._whole = whole
            lent.done(whole=whole, parts=None if whole else (self._parts, self._stream))


class _Exact(httpx.URL):
    """A URL whose path and query stay as they are written."""

    target: bytes

    @property
    def raw_path(self) -> bytes:
        return self.target


class _Parts(httpx.AsyncByteStream):
    """A request's body in its parts."""

    def __init__(self, content: Content | None) -> None:
        self._parts: Sequence[bytes | memoryview] = (content,) if isinstance(content, bytes) else content or ()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield bytes(part)


def _built(request: Request, trace: Any) -> httpx.Request:
    origin = request.origin
    where: dict[str, Any] = {"scheme": "https" if origin.tls else "http", "host": origin.host, "port": origin.port}
    url = _Exact(**where, raw_path=request.target)
    url.target = request.target
    headers = [(b"Host", request.host), *((k, v.strip(b" \t")) for k, v in request.headers)]
    built = httpx.Request(request.method, url, headers=headers, stream=_Parts(request.content), extensions={"trace": trace})
    built.url = url
    return built


def _check(request: Request) -> None:
    """Refuse a header that would end elsewhere than at its end. Raises UpstreamUnreachable."""
    if any(re.search(rb"[\r\n\0]", k + v) for k, v in request.headers):
        raise UpstreamUnreachable("A header for the upstream has a line break in it and cannot be sent. Check the provider's api_key.")


def _named(error: BaseException) -> BaseException:
    """Name a failure before the answer began; one that may be a dead connection's stays what it is."""
    if isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError | GatewayError | asyncio.CancelledError):
        return error
    if isinstance(error, httpx.PoolTimeout):
        return Unavailable("All connections to the upstream are in use. Try again shortly.", headers=[(b"retry-after", b"1")])
    if isinstance(error, TimeoutError | httpx.ConnectTimeout):
        return too_slow()
    if isinstance(error, httpx.ProxyError):
        status = re.match(r"\d{3}", str(error))
        why = f" ({status[0]})" if status else ""
        return UpstreamUnreachable(f"The proxy between the gateway and the upstream did not let the request through{why}. The gateway's log has the reason.")
    return unreachable(error) if isinstance(error, Exception) else error


async def _closed(transport: httpx.AsyncBaseTransport, parts: Any) -> None:
    """Close what an answer held, and its connection."""
    for each in parts or ():
        with contextlib.suppress(httpx.HTTPError, OSError, RuntimeError):  # it ends here, however it does
            await each.aclose()
    with contextlib.suppress(httpx.HTTPError, OSError, RuntimeError):
        await transport.aclose()
