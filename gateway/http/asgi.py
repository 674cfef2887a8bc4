"""Send responses and errors over ASGI, and notice a client that has disconnected."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from gateway.errors import GatewayError, Headers, UpstreamRefused
from gateway.http.access_log import current_line
from gateway.wire.headers import Pairs

log = logging.getLogger("mnemogate")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
# Where a request's scope names its `ClientConnection`.
CONNECTION = "mnemogate.connection"
UNEXPECTED = "Something went wrong inside the gateway. Try again; its log has the details."


class ClientConnection(Protocol):
    """A client's connection that tells when it ends; see `gateway.server.http_protocol`."""

    def watch(self, callback: Callable[[], None]) -> bool:
        """Call back when the connection ends, or soon if it has ended.

        Returns False, and does nothing, while a request on it is still being received.
        """
        ...

    def unwatch(self, callback: Callable[[], None]) -> None: ...


class ClientLeft(OSError):
    """The connection to the client broke while a response was written to it."""


class EarlyErrorResponse:
    """An error response sent before the rest of the body is read.

    The rest is read and discarded for a moment, since closing on unread bytes resets the
    connection, and the client would lose the response.
    """

    def __init__(self, error: GatewayError, base: Headers = (), linger: float = 2.0) -> None:
        self._error = error
        self._base = base
        self._linger = linger

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        line = current_line()
        line.note_error(self._error)
        body = line.write_error(self._error)
        headers = [
            *self._base,
            *self._error.headers,
            (b"content-type", b"application/json"),
            NOSNIFF,
            (b"content-length", b"%d" % len(body)),
        ]
        await send(
            {"type": "http.response.start", "status": self._error.status, "headers": headers}
        )
        await send({"type": "http.response.body", "body": body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger):
                while (message := await receive())["type"] == "http.request" and message.get(
                    "more_body"
                ):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_message(send: Send, message: dict[str, Any]) -> None:
    """Send a message to the client. Raises ClientLeft if the connection is broken."""
    try:
        await send(message)
    except OSError as e:
        raise ClientLeft(*e.args) from e


async def run_shielded(work: Any) -> None:
    """Run `work` to its end even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as e:
            cancelled = e
        except Exception:
            # The answer has left, so nobody can be told but the operator.
            log.exception("a turn's last write failed")
    if cancelled is not None:
        raise cancelled


async def cancel_on_disconnect(
    work: Coroutine[Any, Any, None], receive: Receive, connection: ClientConnection | None = None
) -> None:
    """Run the work in the caller's task, and cancel it if the client disconnects.

    connection: tells of its end by itself, where the server has such a one. Else a task waits for
    the message that says so, which costs each request some 20 us.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in one
    leave = _DisconnectCanceller(task)
    watch: asyncio.Future[None] | None = None
    if connection is None or not connection.watch(leave):
        connection = None
        watch = asyncio.ensure_future(_wait_for_disconnect(receive))
        watch.add_done_callback(leave)
    try:
        await work
    except (asyncio.CancelledError, ClientLeft):
        if not leave.cancellations and task.cancelling():
            # Cancelled by somebody else.
            raise
    finally:
        leave.over = True
        if connection is not None:
            connection.unwatch(leave)
        if watch is not None:
            watch.cancel()
        for _ in range(leave.cancellations):
            task.uncancel()


class _DisconnectCanceller:
    """Cancels a task once its client is gone, and again until the task ends.

    A library may swallow a cancellation that coincides with a result. cancellations: number of
    cancellations. Not part of a reference cycle, so that a large request need not wait for the
    garbage collector.
    """

    __slots__ = ("cancellations", "over", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.cancellations = 0
        self.over = False

    def __call__(self, watch: asyncio.Future[None] | None = None) -> None:
        if not (self.over or (watch is not None and watch.cancelled())):
            self.cancellations += 1
            self.task.cancel()
            asyncio.get_running_loop().call_later(0.25, self)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, status: int, body: bytes, headers: Pairs) -> None:
    current_line().status = status
    await send_message(send, {"type": "http.response.start", "status": status, "headers": headers})
    await send_message(send, {"type": "http.response.body", "body": body, "more_body": False})


# Whose every answer tells what part the memory had in it.
NEEDS_STATUS = re.compile(rb"(?:/u/[^/]+)?/v1(?:/|\Z)").match
# On what is ours, not on what an upstream said: a browser must not take stored text for a page.
NOSNIFF = (b"x-content-type-options", b"nosniff")
REFUSES_CALLER = (401, 403)


def without_memory(error: GatewayError) -> Pairs:
    """Return the memory's part in an error of ours: it is the caller who is refused, or the
    request.
    """
    is_caller_refused = error.status in REFUSES_CALLER and not isinstance(error, UpstreamRefused)
    reason = b"auth" if is_caller_refused else b"request"
    return [(b"x-memory-status", b"off"), (b"x-memory-reason", reason)]


async def respond_error(send: Send, error: GatewayError, base: Headers = ()) -> None:
    """An error as a whole response: its own headers win over the base ones."""
    line = current_line()
    line.note_error(error)
    body = line.write_error(error)
    if NEEDS_STATUS(line.path) and not any(k == b"x-memory-status" for k, _ in base):
        base = [*base, *without_memory(error)]
    error_headers = [(k, v) for k, v in error.headers if k != b"content-length"]
    names = {k for k, _ in error_headers}
    headers = [
        *((k, v) for k, v in base if k not in names and k != b"content-type"),
        *error_headers,
    ]
    if not isinstance(error, UpstreamRefused):
        headers.append(NOSNIFF)
    if b"content-type" not in names:
        headers.append((b"content-type", b"application/json"))
    await respond(send, error.status, body, [*headers, (b"content-length", b"%d" % len(body))])
