"""Client connections: uvicorn's HTTP/1.1 protocol with limits that hold before authentication.

- A request head has at most `HEAD_BYTES`, `HEAD_LINES` and `URL_BYTES`, and is complete within
  `HEAD_SECONDS` of its first byte. A new connection has as long to send its first byte.
- A connection with `WAITING` unanswered requests is read no further, and closed after them.
- Trailers are read past: no header of a request stands behind its body. They, and the extensions
  of chunks, have at most `TRAILER_BYTES`.
- A body that makes no progress for `BODY_SECONDS`, while the gateway would read it, is given up.
- Whoever answers a request may watch its connection, and is called when that ends.
- A violation is answered like any other error, and the connection is closed. It is never written
  into a response in progress: the connection then closes after that response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.auth.peer_user import find_peer_user
from gateway.errors import BadRequest, GatewayError, HeadTooLarge, RequestTimeout, UrlTooLong
from gateway.http import access_log
from gateway.http.asgi import CONNECTION

HEAD_BYTES = 64 * 1024
# Browsers and SDKs behind several proxies send some 60.
HEAD_LINES = 200
URL_BYTES = 16 * 1024
TRAILER_BYTES = 8 * 1024
# Around a chunk, without extensions.
FRAME_BYTES = 24
# Pipelined requests behind one that is not answered yet.
WAITING = 100
HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0
IDLE, HEAD, BODY = range(3)
STATUS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    414: b"URI Too Long",
    431: b"Request Header Fields Too Large",
}


class HeadRefused(Exception):
    """The request head that is being read breaks a limit."""


class JoinedHead:
    """Sends the head of a response together with what follows it at once.

    That is one call of the system less for each response. It stands in for the transport of a
    response until then. Nothing is held back longer than the event loop's next round.
    """

    __slots__ = ("_cycle", "_head", "_is_sent", "_loop", "_transport")

    def __init__(self, cycle: RequestResponseCycle, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle = cycle
        self._loop = loop
        self._transport = cycle.transport
        self._head = b""
        self._is_sent = False
        cycle.transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        """Hold the head; send it with the next bytes."""
        if self._head:
            self._cycle.transport = self._transport
            self._is_sent = True
            head = self._head
            self._head = b""
            self._transport.writelines((head, data) if data else (head,))
        elif self._is_sent:
            self._transport.write(data)
        else:
            self._head = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Close the connection, after what is held."""
        self._send()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _send(self) -> None:
        if self._head:
            self.write(b"")


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Most requests arrive in one piece and need no timer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A new connection has to send a request.
        self._phase = HEAD
        # Whether a byte of the head arrived.
        self._has_head_begun = False
        # Bytes of the head (upper bound); of the last piece.
        self._size = self._piece_bytes = 0
        # Bytes of the head after its first piece.
        self._later = 0
        # Bytes of the trailers so far.
        self._trailers = 0
        # Bytes around the body's pieces, of trailers and extensions of chunks.
        self._framing_bytes = 0
        self._fault: GatewayError | None = None
        self._until: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._has_ended = False
        self._watchers: set[Callable[[], None]] = set()
        # Looked up once, when it is first needed.
        self._peer_user: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)
        self._has_ended = True
        for callback in [*self._watchers]:
            callback()

    def watch(self, callback: Callable[[], None]) -> bool:
        """See `ClientConnection`."""
        if self._has_ended:
            self.loop.call_soon(callback)
        elif self._phase == BODY:
            # What comes is read by who waits for it.
            return False
        else:
            # Else the end would go unseen.
            self.flow.resume_reading()
        self._watchers.add(callback)
        return True

    def find_peer_user(self) -> int | None:
        """Return the user who opened this connection; see `peer_user.find_peer_user`."""
        if self._peer_user is None and self.client is not None and self.server is not None:
            self._peer_user = find_peer_user(self.client, self.server)
        return self._peer_user

    def unwatch(self, callback: Callable[[], None]) -> None:
        """See `ClientConnection`."""
        self._watchers.discard(callback)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a request that wants another protocol is answered as one over HTTP."""

    def data_received(self, data: bytes) -> None:
        before = self._phase
        self._piece_bytes = len(data)
        if before == HEAD:
            self._size += len(data)
            if self._has_head_begun:
                self._later += len(data)
        elif before == IDLE:
            self._phase = HEAD
        else:
            self._framing_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._phase == BODY and self._framing_bytes > TRAILER_BYTES:
            self._refuse_beside()
            self.send_400_response("")
        elif self._phase == BODY:
            self._limit(BODY_SECONDS)
        elif self._phase == HEAD:
            if self._later > HEAD_BYTES:
                self._fault = _too_large()
                self.send_400_response("")
            elif before != HEAD or self._until is None:
                self._limit(HEAD_SECONDS)

    # --- parser callbacks

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]
        self._phase = HEAD
        self._has_head_begun = True
        self._size = self._piece_bytes
        self._later = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != BODY:
            super().on_header(name, value)
            return
        self._trailers += len(name) + len(value) + 4
        if self._trailers > TRAILER_BYTES:
            self._refuse_beside()
            raise HeadRefused

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = max(0, self._framing_bytes - len(body) - FRAME_BYTES)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        lines = len(self.headers)
        if len(self.url) > URL_BYTES:
            self._fault = UrlTooLong(
                f"The URL has {len(self.url)} bytes; at most {URL_BYTES} are allowed. Send long "
                "data in the body."
            )
        elif lines > HEAD_LINES:
            self._fault = HeadTooLarge(
                f"The request has {lines} header lines; at most {HEAD_LINES} are allowed. Send "
                "fewer."
            )
        elif len(self.pipeline) >= WAITING:
            self._fault = BadRequest(
                f"More than {WAITING} requests are pipelined on this connection. Wait for answers."
            )
        elif (
            self._size > HEAD_BYTES
            and sum(map(len, chain.from_iterable(self.headers))) + 4 * lines > HEAD_BYTES
        ):
            self._fault = _too_large()
        if self._fault is not None:
            raise HeadRefused
        self._phase = BODY
        self._has_head_begun = False
        self._until = None
        self._framing_bytes = self._trailers = 0
        super().on_headers_complete()
        JoinedHead(self.cycle, self.loop)

    def on_message_complete(self) -> None:
        self._phase = IDLE
        self._size = 0
        self._until = None
        super().on_message_complete()

    def _refuse_beside(self) -> None:
        self._fault = HeadTooLarge(
            f"The request has more than {TRAILER_BYTES} bytes of trailers, or of extensions of its "
            "chunks. Send fewer."
        )

    # --- errors

    def send_400_response(self, msg: str) -> None:
        """Send the error, whatever its status, and close the connection."""
        cycle = self.cycle
        is_running = cycle is not None and not cycle.response_complete
        if self.pipeline or (is_running and (self._phase == HEAD or cycle.response_started)):
            cycle.keep_alive = False
            self.flow.pause_reading()
            return
        if is_running:
            cycle.disconnected = True
        # Else it was answered before it was complete.
        if self._phase == HEAD or is_running:
            fault = self._fault or BadRequest(
                "This is not a valid HTTP/1.1 request. Check the client."
            )
            self._send_error(fault)
            # Else it has its own line in the log.
            if not is_running:
                access_log.write_unread_line(fault, getattr(self, "url", b""))
        self._leave()
        self.transport.close()

    def _send_error(self, fault: GatewayError) -> None:
        body = fault.body()
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"x-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
            % (fault.status, STATUS[fault.status], len(body))
        )
        self.transport.write(head + body)

    # --- one timer, which is set again if there was progress meanwhile

    def _limit(self, seconds: float) -> None:
        self._until = self.loop.time() + seconds
        if self._watch is None:
            self._watch = self.loop.call_at(self._until, self._check_progress)

    def _leave(self) -> None:
        self._until = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _check_progress(self) -> None:
        self._watch = None
        if self._until is None or self.transport.is_closing():
            return
        seconds_left = self._until - self.loop.time()
        if seconds_left > 0:
            self._watch = self.loop.call_at(self._until, self._check_progress)
        elif self._phase == BODY and self.flow.read_paused:
            # The gateway paused reading.
            self._limit(BODY_SECONDS)
        else:
            self._on_timeout()

    def _on_timeout(self) -> None:
        self._until = None
        if self._phase == HEAD and not self._has_head_begun:
            self._close_behind()
            return
        if self._phase == HEAD:
            part, seconds = ("head", HEAD_SECONDS)
        else:
            part, seconds = ("body", BODY_SECONDS)
        self._fault = RequestTimeout(
            f"No progress with the request's {part} for {seconds:g} s. Send it without pauses."
        )
        self.send_400_response("")

    def _close_behind(self) -> None:
        """Close the connection, after the response in progress if there is one."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.transport.close()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"The request's headers have more than {HEAD_BYTES} bytes. Send fewer or shorter ones."
    )
