"""The connections of clients: uvicorn's HTTP/1.1 protocol, with bounds before any key is looked at.

- A head has at most `HEAD_BYTES`, `HEAD_LINES` and `URL_BYTES`, and is whole within `HEAD_SECONDS`
  of its
  first byte; a new connection has as long to send one.
- A connection with `WAITING` unanswered requests is read no further, and closes behind them.
- A body that stands still for `BODY_SECONDS` while we would read is given up.
- A refusal is told as every other error, and the connection closes. It never goes into an answer
  that is under way: the connection then closes behind that answer.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import BadRequest, GatewayError, HeadTooLarge, RequestTimeout, UrlTooLong
from gateway.http import access_log

HEAD_BYTES = 64 * 1024
HEAD_LINES = 200  # what browsers and SDKs send behind several proxies are some 60
URL_BYTES = 16 * 1024
WAITING = 100  # requests that were sent behind one that is not answered yet
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
    """The head that is being read has a fault of its own."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. Most requests come whole in one piece, and cost no timer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase = HEAD  # of the connection as it begins: who opens one has to send a request
        self._begun = False  # whether a byte of that head came
        self._size = self._piece = 0  # bytes of the head at most; of the piece that came last
        self._later = 0  # bytes of the head in pieces after its first
        self._fault: GatewayError | None = None
        self._until: float | None = None
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self._leave()
        self._phase = IDLE  # what comes is another protocol's
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        before, self._piece = self._phase, len(data)
        if before == HEAD:
            self._size += len(data)
            self._later += len(data) if self._begun else 0
        elif before == IDLE:
            self._phase = HEAD
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._phase == BODY:
            self._limit(BODY_SECONDS)
        elif self._phase == HEAD:
            if self._later > HEAD_BYTES:
                self._fault = _too_large()
                self.send_400_response("")
            elif before != HEAD or self._until is None:
                self._limit(HEAD_SECONDS)

    # --- what the parser tells

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase, self._begun = HEAD, True
        self._size, self._later = self._piece, 0

    def on_headers_complete(self) -> None:
        lines = len(self.headers)
        if len(self.url) > URL_BYTES:
            self._fault = UrlTooLong(
                f"The URL has {len(self.url)} bytes; at most {URL_BYTES} are allowed. Send what "
                "is long in the body."
            )
        elif lines > HEAD_LINES:
            self._fault = HeadTooLarge(
                f"The request has {lines} header lines; at most {HEAD_LINES} are allowed. Send "
                "fewer."
            )
        elif len(self.pipeline) >= WAITING:
            self._fault = BadRequest(
                f"More than {WAITING} requests wait on this connection. Wait for answers."
            )
        elif (
            self._size > HEAD_BYTES
            and sum(map(len, chain.from_iterable(self.headers))) + 4 * lines > HEAD_BYTES
        ):
            self._fault = _too_large()
        if self._fault is not None:
            raise HeadRefused
        self._phase, self._begun, self._until = BODY, False, None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._phase, self._size, self._until = IDLE, 0, None
        super().on_message_complete()

    # --- refusals

    def send_400_response(self, msg: str) -> None:
        """Tell the fault of what was sent, whatever it was, and closes."""
        cycle = self.cycle
        running = cycle is not None and not cycle.response_complete
        if self.pipeline or (running and (self._phase == HEAD or cycle.response_started)):
            cycle.keep_alive = False
            self.flow.pause_reading()
            return
        if running:
            cycle.disconnected = True
        if self._phase == HEAD or running:  # else it was answered before it was whole
            fault = self._fault or BadRequest(
                "This is no HTTP/1.1 request that can be read. Check what sends it."
            )
            self._tell(fault)
            if not running:  # else it has a line of its own
                access_log.write_unread_line(fault, getattr(self, "url", b""))
        self._leave()
        self.transport.close()

    def _tell(self, fault: GatewayError) -> None:
        body = fault.body()
        head = (
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n" % (fault.status, STATUS[fault.status], len(body))
        )
        self.transport.write(head + body)

    # --- the watch: one timer, which looks again where there was progress meanwhile

    def _limit(self, seconds: float) -> None:
        self._until = self.loop.time() + seconds
        if self._watch is None:
            self._watch = self.loop.call_at(self._until, self._look)

    def _leave(self) -> None:
        self._until = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        self._watch = None
        if self._until is None or self.transport.is_closing():
            return
        left = self._until - self.loop.time()
        if left > 0:
            self._watch = self.loop.call_at(self._until, self._look)
        elif self._phase == BODY and self.flow.read_paused:
            self._limit(BODY_SECONDS)  # it is for us to go on
        else:
            self._late()

    def _late(self) -> None:
        self._until = None
        if self._phase == HEAD and not self._begun:
            self._close_behind()
            return
        part, seconds = ("head", HEAD_SECONDS) if self._phase == HEAD else ("body", BODY_SECONDS)
        self._fault = RequestTimeout(
            f"The request's {part} did not go on for {seconds:g} s. Send it whole, without pauses."
        )
        self.send_400_response("")

    def _close_behind(self) -> None:
        """Closes, behind the answer that is under way if there is one."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.transport.close()


def _too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"The request's headers have more than {HEAD_BYTES} bytes. Send less in them."
    )
