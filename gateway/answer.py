"""Answers over ASGI: one class carries streams and whole bodies, watches for a client that leaves, keeps quiet lines alive.

Rules (WIRE.md C and D): the status line leaves with the first part, or after the commit delay where a stream was asked for; an
error before it has its own status, one after it is the last event, without `[DONE]`, and where there are no events the
connection breaks, so that no cut answer looks whole. A client that leaves cancels the work at once, in every phase; what
must still be written is shielded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.accesslog import current
from gateway.errors import GatewayError, Headers, Unavailable
from gateway.headers import Pairs
from gateway.sse import COMMENT, frame

log = logging.getLogger("mnemogate")
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
UNEXPECTED = "Something went wrong inside the gateway. Try again; its log has the details."
SSE = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(slots=True)
class Head:
    """What goes before the first part. events: the parts are whole events, between which a comment may stand."""

    headers: Pairs = field(default_factory=list)
    status: int = 200
    events: bool = False


class ClientLeft(OSError):
    """The connection to the client broke as an answer was written to it; no fault of ours."""


class Work(Protocol):
    """One request's work."""

    stream: bool  # the client asked for events, so the status may leave before anything is known

    @property
    def memory(self) -> str:
        """`x-memory-status`, as it is by now."""
        ...

    def parts(self) -> AsyncGenerator[bytes, None]:
        """The body's bytes. Raises GatewayError."""
        ...

    def head(self, *, committed: bool) -> Head:
        """Asked once, before the first part. committed: nothing is known of the upstream yet."""
        ...

    def named(self) -> Pairs:
        """Headers of ours, on answers and errors alike."""
        ...

    def told(self, error: GatewayError) -> bytes:
        """An error after the first part, as the last event."""
        ...

    def comment(self) -> bytes:
        """What keeps a quiet line alive."""
        ...

    def over(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        """Called once at the end; error: why it ended early. Returns what must still be done, which is shielded, if anything."""
        ...


class Completing(ABC):
    """What the works that answer with a chat completion share: `chunks` as events, `whole` for who wants no stream."""

    stream: bool
    _sent_body: bytes

    @abstractmethod
    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The events to show, up to `[DONE]`; for who wants no stream, for their effect."""

    @abstractmethod
    def whole(self) -> bytes:
        """The body for who wants no stream, once the chunks are through."""

    def parts(self) -> AsyncGenerator[bytes, None]:
        return self.chunks() if self.stream else self._at_once()

    async def _at_once(self) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for _ in chunks:
                pass
        self._sent_body = self.whole()
        yield self._sent_body

    def shaped(self, headers: Pairs) -> Head:
        """The head around these headers, whatever they say of type and length."""
        kept = [
            (k, v)
            for k, v in headers
            if k not in (b"content-type", b"content-length", b"content-encoding")
        ]
        if self.stream:
            return Head([*kept, *SSE], events=True)
        return Head(
            [
                *kept,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(self._sent_body)),
            ]
        )

    def told(self, error: GatewayError) -> bytes:
        return frame(error.event())

    def comment(self) -> bytes:
        return COMMENT


Prepare = Callable[[], Awaitable[Work]]


class Answer:
    """An ASGI response. base: headers of every outcome. live: where it is listed while it runs.

    commit: seconds until a silent stream's status leaves. quiet: seconds between comments, 0 for none.
    """

    def __init__(
        self,
        prepare: Prepare,
        base: Headers,
        live: set[Answer],
        *,
        commit: float = 15,
        quiet: float = 15,
    ) -> None:
        self._prepare, self._base, self._live, self._commit, self._quiet = (
            prepare,
            list(base),
            live,
            commit,
            quiet,
        )
        self._name = dict(base).get(b"x-mnemogate-request-id", b"")
        self._head: Head | None = None
        self._busy = self._cut = False
        self._task: asyncio.Task[Any] | None = None
        self._comment: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
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
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        error = await self._worked(send)
        # The work is settled before the client is told, so that a repetition of the request finds it so.
        if self._work is not None and (rest := self._work.over(error)) is not None:
            await shielded(rest)
        if isinstance(error, GatewayError):
            await self._told(send, error)
        elif error is not None:
            raise error
        else:
            await _written(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _worked(self, send: Send) -> BaseException | None:
        """Does the work; returns why it ended early, if it did."""
        try:
            self._work = await self._prepare()
            await self._sent(send, self._work)
        except asyncio.CancelledError as e:
            if self._cut and self._task is not None:
                self._task.uncancel()
            return (
                Unavailable(
                    "The gateway is shutting down and could not wait for this answer. Try again."
                )
                if self._cut
                else e
            )
        except (GatewayError, ClientLeft) as e:
            return e
        except Exception:
            log.exception("unexpected failure (%s)", self._name.decode())
            return GatewayError(UNEXPECTED, code="internal_error")
        return None

    async def _sent(self, send: Send, work: Work) -> None:
        self._send, self._last = send, self._loop.time()
        if work.stream and self._commit:
            self._look_in(self._commit)
        try:
            async with contextlib.aclosing(work.parts()) as parts:
                async for part in parts:
                    await self._write(part)
            if self._head is None:
                await self._write(b"")
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._comment is not None:
                self._comment.cancel()

    async def _write(self, data: bytes, *, committed: bool = False) -> None:
        self._busy = True
        if self._head is None:
            await _written(self._send, self._begin(committed=committed))
        await _written(self._send, {"type": "http.response.body", "body": data, "more_body": True})
        self._last, self._busy = self._loop.time(), False

    def _begin(self, *, committed: bool) -> dict[str, Any]:
        """The message that begins the response."""
        assert self._work is not None  # noqa: S101 - prepared
        head = self._head = self._work.head(committed=committed)
        headers = [*self._base, *self._work.named(), *head.headers]
        if not any(
            k == b"x-request-id" for k, _ in head.headers
        ):  # the upstream's, else ours: clients log it
            headers.append((b"x-request-id", self._name))
        if head.events and self._quiet and self._timer is None:
            self._look_in(self._quiet)
        return {"type": "http.response.start", "status": head.status, "headers": headers}

    def _look_in(self, seconds: float) -> None:
        """Sets the timer: sooner where the status may leave meanwhile, since the shorter of the two limits then counts."""
        self._timer = self._loop.call_later(
            max(min(seconds, self._quiet or seconds), 0.05), self._look
        )

    def _look(self) -> None:
        """Comments on a line that fell silent; the first of them commits the status. Never while a write is under way.

        A timer and no task: a stream seldom falls silent, and to begin and to end a task costs it as much as two events."""
        if limit := self._commit if self._head is None else self._quiet:
            left = self._last + limit - self._loop.time()
            if left <= 0 and not self._busy:
                self._comment, left = asyncio.ensure_future(self._commented()), limit
            self._look_in(left)

    async def _commented(self) -> None:
        assert self._work is not None  # noqa: S101 - prepared
        if not self._busy:  # by now
            with contextlib.suppress(ClientLeft):  # the next part meets it too
                await self._write(self._work.comment(), committed=self._head is None)

    async def _told(self, send: Send, error: GatewayError) -> None:
        if self._head is None:
            await respond_error(
                send, error, [*self._base, *(self._work.named() if self._work else ())]
            )
        elif self._head.events:
            assert self._work is not None  # noqa: S101 - it gave the head
            await _written(
                send,
                {"type": "http.response.body", "body": self._work.told(error), "more_body": False},
            )
        else:
            log.warning(
                "an answer broke off: %s", error.message
            )  # to return without an end breaks the connection


class Refusal:
    """A refusal that leaves before the rest of the body is read. The rest is thrown away for a moment, since closing on
    unread bytes resets the connection and takes the refusal with it."""

    def __init__(self, error: GatewayError, base: Headers = (), linger: float = 2.0) -> None:
        self._error, self._base, self._linger = error, base, linger

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        current().refused(self._error)
        body = self._error.body()
        headers = [
            *self._base,
            *self._error.headers,
            (b"content-type", b"application/json"),
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


async def _written(send: Send, message: dict[str, Any]) -> None:
    """Sends to the client. Raises ClientLeft where its connection is broken."""
    try:
        await send(message)
    except OSError as e:
        raise ClientLeft(*e.args) from e


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


async def unless_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Does the work, in the caller's own task, and watches for a disconnect beside it: a client that leaves cancels the work."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine runs in one
    leave = _Leave(task)
    watch = asyncio.ensure_future(_gone(receive))
    watch.add_done_callback(leave)
    try:
        await work
    except (asyncio.CancelledError, ClientLeft):
        if not leave.asked and task.cancelling():
            raise  # somebody else's
    finally:
        leave.over = True
        watch.cancel()
        for _ in range(leave.asked):
            task.uncancel()


class _Leave:
    """Cancels a task once its client is gone, and again until it is over: a library may swallow a cancellation that meets a result.

    asked: how often. An object that nothing it holds leads back to: a request is large to be left to the garbage collector."""

    __slots__ = ("asked", "over", "task")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task, self.asked, self.over = task, 0, False

    def __call__(self, watch: asyncio.Future[None] | None = None) -> None:
        if not (self.over or (watch is not None and watch.cancelled())):
            self.asked += 1
            self.task.cancel()
            asyncio.get_running_loop().call_later(0.25, self)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, status: int, body: bytes, headers: Pairs) -> None:
    current().status = status
    await _written(send, {"type": "http.response.start", "status": status, "headers": headers})
    await _written(send, {"type": "http.response.body", "body": body, "more_body": False})


async def respond_error(send: Send, error: GatewayError, base: Headers = ()) -> None:
    """An error as a whole response: its own headers win over the base ones."""
    current().refused(error)
    body = error.body()
    own = [(k, v) for k, v in error.headers if k != b"content-length"]
    names = {k for k, _ in own}
    headers = [*((k, v) for k, v in base if k not in names and k != b"content-type"), *own]
    if b"content-type" not in names:
        headers.append((b"content-type", b"application/json"))
    await respond(send, error.status, body, [*headers, (b"content-length", b"%d" % len(body))])
