"""httpx as a transport: for proxies, own certificates and HTTP/2; and for tests.

Each transport carries one request at a time and keeps one connection. A cancelled request can
therefore close it at once, over HTTP/2 too, where httpcore would only stop listening while the
server continues; and no request waits for another's connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.errors import GatewayError, StreamIncomplete, Unavailable, UpstreamUnreachable
from gateway.upstream.base import Content, TransportRequest, UpstreamResponse
from gateway.upstream.connection_errors import too_slow, unreachable
from gateway.upstream.connection_pool_slots import ConnectionSlots
from gateway.upstream.deadlines import Deadlines
from gateway.upstream.http1 import IDLE

DIED = ("Server disconnected", "<ConnectionTerminated")


@dataclass(eq=False, slots=True)
class _OneConnection:
    """A transport and the connection that it opened last.

    httpcore leaves a connection open that was cancelled during its handshake.
    """

    transport: httpx.AsyncBaseTransport
    stream: Any = None
    # Since when it is idle, by the loop's time.
    since: float = 0.0

    async def close(self, *streams: Any) -> None:
        """Close the connection and the response's streams, whatever they raise."""
        for closable in (*streams, self.transport, self.stream):
            if closable is not None:
                with contextlib.suppress(httpx.HTTPError, OSError, RuntimeError):
                    await closable.aclose()


class HttpxTransport:
    """Sends through transports that `make` creates, at most `max_connections` at a time.

    proxy: their proxy, for the log.
    """

    def __init__(
        self,
        make: Callable[[], httpx.AsyncBaseTransport],
        max_connections: int = 1000,
        proxy: str = "",
    ) -> None:
        self._make = make
        self.proxy = proxy
        self.places = ConnectionSlots(max_connections)
        # Least recently used first.
        self._idle_carriers: list[_OneConnection] = []
        self._lent: set[_OneConnection] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None

    async def call(self, request: TransportRequest, clock: Deadlines) -> UpstreamResponse:
        """Send the request, see the port."""
        _check(request)
        must_be_new = False
        while True:
            with clock:
                until = asyncio.get_running_loop().time() + clock.timeouts.connect
                await self.places.take(until)
            call = _HttpxCall(self, self.lend(fresh=must_be_new), request)
            try:
                return await call.answer(clock, until)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as e:
                if must_be_new or not call.is_dead_connection(e):
                    raise unreachable(e) from e
                must_be_new = True

    async def aclose(self) -> None:
        """Close every connection; a reader of one gets an error."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for carrier in (*self._lent, *self._idle_carriers):
            self._close(carrier)
        self._idle_carriers.clear()
        while self._closing:
            await asyncio.wait(self._closing)

    def lend(self, *, fresh: bool) -> _OneConnection:
        """Return a transport: a kept one, unless `fresh`."""
        if fresh or not self._idle_carriers:
            carrier = _OneConnection(self._make())
        else:
            carrier = self._idle_carriers.pop()
        self._lent.add(carrier)
        return carrier

    def give_back(self, carrier: _OneConnection, *streams: Any, whole: bool) -> None:
        """Take a transport back; keep it if its response was complete.

        streams: other streams to close.
        """
        self._lent.discard(carrier)
        self.places.give()
        if not whole:
            self._close(carrier, *streams)
            return
        loop = asyncio.get_running_loop()
        carrier.since = loop.time()
        self._idle_carriers.append(carrier)
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(IDLE, self._close_idle)

    def _close(self, carrier: _OneConnection, *streams: Any) -> None:
        """Close a connection in a task, since the caller may have been cancelled."""
        task = asyncio.ensure_future(carrier.close(*streams))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _close_idle(self) -> None:
        """Close connections that were idle for too long; set the timer for the next one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._idle_carriers and self._idle_carriers[0].since + IDLE <= now:
            self._close(self._idle_carriers.pop(0))
        if self._idle_carriers:
            self._idle_timer = loop.call_at(self._idle_carriers[0].since + IDLE, self._close_idle)
        else:
            self._idle_timer = None


class _HttpxCall:
    """One request on its way through a transport."""

    def __init__(
        self, transport: HttpxTransport, carrier: _OneConnection, request: TransportRequest
    ) -> None:
        self._transport = transport
        self._carrier = carrier
        self._request = request
        self._is_open = carrier.stream is None
        self._limit: asyncio.Timeout | None = None

    async def answer(self, clock: Deadlines, until: float) -> UpstreamResponse:
        """Send the request and return its response.

        until: the loop's time by which a connection must be open.
        """
        transport = self._carrier.transport
        try:
            with clock:
                async with asyncio.timeout_at(until) as self._limit:
                    if not isinstance(transport, httpx.AsyncHTTPTransport):
                        # A test's transport, which does not trace.
                        self._on_send()
                    response = await transport.handle_async_request(
                        _build_request(self._request, self._trace)
                    )
        except BaseException as e:
            self.give_back(whole=False)
            if (gateway_error := _as_gateway_error(e)) is e:
                raise
            if self._transport.proxy and isinstance(
                e, httpx.ConnectError | httpx.ConnectTimeout | TimeoutError
            ):
                why = httpx.ConnectError(f"through proxy {self._transport.proxy}: {e}")
                why.__cause__ = e
                raise gateway_error from why
            raise gateway_error from e
        return UpstreamResponse(
            response.status_code, list(response.headers.raw), _HttpxBody(self, response, clock)
        )

    def is_dead_connection(self, error: httpx.TransportError) -> bool:
        """Tell whether the error means that the server had closed a kept connection."""
        return not self._is_open and (
            not isinstance(error, httpx.RemoteProtocolError) or str(error).startswith(DIED)
        )

    def give_back(self, *streams: Any, whole: bool) -> None:
        """Give the transport back."""
        self._transport.give_back(self._carrier, *streams, whole=whole)

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        """Follow the progress that httpcore reports."""
        if event.endswith("connect_tcp.complete"):
            self._is_open = True
            self._carrier.stream = info["return_value"]
        elif (
            event.endswith("send_request_headers.started") and info["request"].method != b"CONNECT"
        ):
            self._on_send()

    def _on_send(self) -> None:
        """Note that the connection is open and the request is being sent."""
        if self._limit is not None:
            self._limit.reschedule(None)
        self._request.on_written()


class _HttpxBody:
    """A response's body. An object, not a generator: closing one never iterated must work."""

    def __init__(self, call: _HttpxCall, response: httpx.Response, clock: Deadlines) -> None:
        stream = response.stream
        # narrows the type; httpx allows sync streams too
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101
        self._stream = stream
        self._clock = clock
        self._call: _HttpxCall | None = call
        self._is_complete = False
        self._parts: AsyncIterator[bytes] = aiter(stream)

    def __aiter__(self) -> _HttpxBody:
        return self

    async def __anext__(self) -> bytes:
        if self._call is None:
            if self._is_complete:
                raise StopAsyncIteration
            raise StreamIncomplete("The upstream's answer broke off (closed here). Try again.")
        try:
            with self._clock:
                while not (part := await anext(self._parts, None)) and part is not None:
                    pass
                if part is None:
                    # Tells the connection that the response has ended.
                    await self._stream.aclose()
        except (GatewayError, asyncio.CancelledError):
            self._end()
            raise
        except Exception as e:
            self._end()
            raise StreamIncomplete(
                f"The upstream's answer broke off ({type(e).__name__}). Try again."
            ) from e
        if part is None:
            self._end(whole=True)
            raise StopAsyncIteration
        self._clock.start_idle()
        return part

    async def aclose(self) -> None:
        self._end()

    def _end(self, *, whole: bool = False) -> None:
        call = self._call
        self._call = None
        if call is not None:
            self._is_complete = whole
            call.give_back(self._parts, self._stream, whole=whole)


class _ExactHeaders(httpx.URL):
    """A URL whose path and query are sent as written."""

    target: bytes

    @property
    def raw_path(self) -> bytes:
        return self.target


class _RequestParts(httpx.AsyncByteStream):
    """A request's body in its parts."""

    def __init__(self, content: Content | None) -> None:
        self._parts: Sequence[bytes | memoryview] = (
            (content,) if isinstance(content, bytes) else content or ()
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield bytes(part)


def _build_request(request: TransportRequest, trace: Any) -> httpx.Request:
    origin = request.origin
    where: dict[str, Any] = {
        "scheme": "https" if origin.tls else "http",
        "host": origin.host,
        "port": origin.port,
    }
    url = _ExactHeaders(**where, raw_path=request.target)
    url.target = request.target
    headers = [(b"Host", request.host), *((k, v.strip(b" \t")) for k, v in request.headers)]
    built = httpx.Request(
        request.method,
        url,
        headers=headers,
        stream=_RequestParts(request.content),
        extensions={"trace": trace},
    )
    built.url = url
    return built


def _check(request: TransportRequest) -> None:
    """Raise UpstreamUnreachable if a header has a line break in it."""
    if any(re.search(rb"[\r\n\0]", k + v) for k, v in request.headers):
        raise UpstreamUnreachable(
            "A header for the upstream contains a line break and cannot be sent. Check the "
            "provider's api_key."
        )


def _as_gateway_error(error: BaseException) -> BaseException:
    """Translate a failure before the response began.

    An error that may come from a dead connection is returned as it is.
    """
    if isinstance(
        error,
        httpx.ReadError
        | httpx.WriteError
        | httpx.RemoteProtocolError
        | GatewayError
        | asyncio.CancelledError,
    ):
        return error
    if isinstance(error, httpx.PoolTimeout):
        return Unavailable(
            "All connections to the upstream are in use. Try again shortly.",
            headers=[(b"retry-after", b"1")],
        )
    if isinstance(error, TimeoutError | httpx.ConnectTimeout):
        return too_slow()
    if isinstance(error, httpx.ProxyError):
        status = re.match(r"\d{3}", str(error))
        why = f" ({status[0]})" if status else ""
        return UpstreamUnreachable(
            "The proxy between the gateway and the upstream did not let the request "
            f"through{why}. The gateway's log has the reason."
        )
    if isinstance(error, Exception):
        return unreachable(error)
    return error
