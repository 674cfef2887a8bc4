"""Answers over ASGI: one class carries stream and plain, watches for a client that leaves, and keeps quiet lines alive.

Rules (WIRE.md C and D): the status line leaves with the first chunk, or after the commit delay of a stream; an error before
it has its own status, one after it is the last event, without `[DONE]`. A client that leaves cancels the work at once, in
every phase; what must still be written is shielded.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Protocol

from gateway.errors import GatewayError, Headers, Unavailable
from gateway.sse import DONE, frame

log = logging.getLogger("memgate")
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
SSE = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
COMMENT = b": keep-alive\n\n"


class Work(Protocol):
    """One request's work. chunks: what to show, as JSON texts (stream) or for their effect (plain)."""

    stream: bool

    def chunks(self) -> AsyncGenerator[bytes, None]: ...

    def headers(self, *, committed: bool) -> list[tuple[bytes, bytes]]:
        """Response headers; committed: nothing is known of the upstream yet."""
        ...

    def whole(self) -> bytes:
        """The body of a plain answer, once the chunks are through."""
        ...

    async def over(self, error: BaseException | None) -> None:
        """Called once at the end, shielded; error: why it ended early."""
        ...


Prepare = Callable[[], Awaitable[Work]]


class Answer:
    """An ASGI response. commit: seconds until a silent stream's status leaves. quiet: seconds between comments, 0 for none."""

    def __init__(self, prepare: Prepare, base: Headers, live: set[Answer], *, commit: float = 15, quiet: float = 15) -> None:
        self._prepare, self._base, self._live, self._commit, self._quiet = prepare, list(base), live, commit, quiet
        self._started = self._busy = self._cut = False
        self._task: asyncio.Task[Any] | None = None
        self._work: Work | None = None
        self._last = 0.0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Runs the work and the watch for a disconnect side by side; whichever ends first ends the other."""
        self._live.add(self)
        try:
            await unless_gone(self._run(send), receive)
        finally:
            self._live.discard(self)

    def cut(self) -> None:
        """Ends the work at the end of a drain; the client is told."""
        self._cut = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self, send: Send) -> None:
        self._task = asyncio.current_task()
        error = await self._worked(send)
        # The work is settled before the client is told, so that a repetition of the request finds it so.
        if self._work is not None:
            await shielded(self._work.over(error))
        if isinstance(error, GatewayError):
            await self._told(send, error)
        elif error is not None:
            raise error

    async def _worked(self, send: Send) -> BaseException | None:
        """Does the work; returns why it ended early, if it did."""
        try:
            self._work = await self._prepare()
            await (self._streamed(send) if self._work.stream else self._plain(send))
        except asyncio.CancelledError as e:
            return Unavailable("The gateway is shutting down and could not wait for this answer. Try again.") if self._cut else e
        except (GatewayError, OSError) as e:
            return e
        except Exception:
            log.exception("unexpected failure")
            return GatewayError("Something went wrong inside the gateway. Try again; its log has the details.", code="internal_error")
        return None

    async def _plain(self, send: Send) -> None:
        assert self._work is not None  # noqa: S101 - prepared
        async with contextlib.aclosing(self._work.chunks()) as chunks:
            async for _ in chunks:
                pass
        body = self._work.whole()
        headers = [*self._base, *self._work.headers(committed=False), (b"content-length", b"%d" % len(body))]
        await respond(send, 200, body, _typed(headers))

    async def _streamed(self, send: Send) -> None:
        assert self._work is not None  # noqa: S101 - prepared
        keeper = asyncio.ensure_future(self._keep(send)) if self._quiet or self._commit else None
        try:
            async with contextlib.aclosing(self._work.chunks()) as chunks:
                async for chunk in chunks:
                    await self._write(send, frame(chunk))
            await self._write(send, frame(DONE))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if keeper is not None:
                keeper.cancel()

    async def _write(self, send: Send, data: bytes, *, committed: bool = False) -> None:
        self._busy = True
        try:
            if not self._started:
                self._started = True
                assert self._work is not None  # noqa: S101 - prepared
                headers = [(k, v) for k, v in [*self._base, *self._work.headers(committed=committed)] if k != b"content-type"]
                await send({"type": "http.response.start", "status": 200, "headers": [*headers, *SSE]})
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._last = asyncio.get_running_loop().time()
        finally:
            self._busy = False

    async def _keep(self, send: Send) -> None:
        """Comments on a line that fell silent; the first of them commits the status. Never while a write is under way."""
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        while True:
            limit = self._quiet if self._started else self._commit
            if not limit:
                await asyncio.sleep(1)
                continue
            left = self._last + limit - loop.time()
            if left > 0 or self._busy:
                # The status may leave meanwhile, and the shorter of the two limits then counts.
                await asyncio.sleep(max(min(left, self._quiet or left), 0.05))
                continue
            await self._write(send, COMMENT, committed=not self._started)

    async def _told(self, send: Send, error: GatewayError) -> None:
        if self._started:
            await self._write(send, frame(error.event()))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        extra = self._work.headers(committed=True) if self._work else []
        await respond_error(send, error, [*self._base, *extra])


class Refusal:
    """A refusal that leaves before the rest of the body is read. The rest is thrown away for a moment, since closing on
    unread bytes resets the connection and takes the refusal with it."""

    def __init__(self, error: GatewayError, linger: float = 2.0) -> None:
        self._error, self._linger = error, linger

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        body = self._error.body()
        headers = [*self._error.headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": self._error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._linger):
                while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def shielded(work: Any) -> None:
    """Runs `work` to its end even when the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as e:
            cancelled = e
        except Exception:
            log.exception("a turn's last write failed")
    if cancelled is not None:
        raise cancelled


async def unless_gone(coroutine: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Runs the work and the watch for a disconnect side by side: a client that leaves cancels the work."""
    work = asyncio.ensure_future(coroutine)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not work.done():
            work.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await work


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _typed(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return headers if any(k == b"content-type" for k, _ in headers) else [*headers, (b"content-type", b"application/json")]


async def respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def respond_error(send: Send, error: GatewayError, base: Headers = ()) -> None:
    """An error as a whole response: its own headers win over the base ones."""
    body = error.body()
    own = [(k, v) for k, v in error.headers if k != b"content-length"]
    names = {k for k, _ in own}
    headers = _typed([*((k, v) for k, v in base if k not in names and k != b"content-type"), *own])
    await respond(send, error.status, body, [*headers, (b"content-length", b"%d" % len(body))])


