"""Answers over ASGI, streamed or whole.

A producer gives the body; `GatewayResponse` runs it, watches for a client that leaves and tells the
books of the first byte and the end; `ResponseWriter` writes, and keeps silent lines alive.

Rules (WIRE.md C and D): the status line leaves with the first part, or after the commit delay where
a stream was asked for; an error before it has its own status, one after it is the last event,
without `[DONE]`, and where there are no events the connection breaks, so that no cut answer looks
whole. A client that leaves cancels the work at once, in every phase; what must still be written is
shielded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from gateway.errors import GatewayError, Headers, Unavailable
from gateway.http.access_log import current_line
from gateway.http.asgi import (
    CONNECTION,
    UNEXPECTED,
    ClientLeft,
    Receive,
    Send,
    cancel_on_disconnect,
    respond_error,
    run_shielded,
    send_message,
)
from gateway.http.pacing import LOOP_PAUSE_SECONDS
from gateway.wire.headers import NAME, Pairs
from gateway.wire.sse import COMMENT, frame

ABOUT_BODY = frozenset({b"content-type", b"content-length", b"content-encoding"})
# Of a long part, written in one turn of the loop.
STEP_BYTES = 1 << 20

log = logging.getLogger("mnemogate")

SSE = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class ResponseHead(msgspec.Struct):
    """What goes before the first part.

    events: the parts are whole events, between which a comment may stand.
    """

    headers: Pairs = msgspec.field(default_factory=list)
    status: int = 200
    events: bool = False


class ResponseProducer(Protocol):
    """One request's work."""

    # The client asked for events, so the status may leave before anything is known.
    stream: bool

    @property
    def memory(self) -> str:
        """`x-memory-status`, as it is by now."""
        ...

    def body(self) -> AsyncGenerator[bytes, None]:
        """Yield the body's bytes. Raises GatewayError."""
        ...

    def build_head(self, *, committed: bool) -> ResponseHead:
        """Return what goes before the first part; asked once.

        committed: nothing is known of the upstream yet.
        """
        ...

    def extra_headers(self) -> Pairs:
        """Return headers of ours, on answers and errors alike."""
        ...

    def error_event(self, error: GatewayError) -> bytes:
        """Return an error after the first part, as the last event."""
        ...

    def keepalive(self) -> bytes:
        """Return what keeps a quiet line alive."""
        ...

    def instead_of(self, error: Exception) -> ResponseProducer | None:
        """Return what answers in its place after an error before its first part, if anything."""
        ...

    def on_finish(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        """Called once at the end; error: why it ended early.

        Returns what must still be done, which is shielded, if anything.
        """
        ...


class CompletionProducer(ABC):
    """What producers of turns share.

    `chunks` yields the events of a stream; `whole` is the body for a client that wants no stream.
    """

    def __init__(self, *, stream: bool) -> None:
        self.stream = stream
        self._sent_bytes = 0

    @abstractmethod
    def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the events to show, up to the last.

        For a client that wants no stream it is run to its end, and `whole` is sent.
        """

    @abstractmethod
    async def whole(self) -> bytes | list[bytes]:
        """Return the body for who wants no stream, once the chunks are through."""

    def body(self) -> AsyncGenerator[bytes, None]:
        if self.stream:
            return self.chunks()
        return self._whole_body()

    async def _whole_body(self) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for _ in chunks:
                pass
        body = await self.whole()
        parts = [body] if isinstance(body, bytes) else body
        self._sent_bytes = sum(map(len, parts))
        for part in parts:
            yield part

    def completion_head(self, headers: Pairs) -> ResponseHead:
        """Return the head around these headers, whatever they say of type and length."""
        passed_headers: Pairs = []
        for header in headers:
            if header[0] not in ABOUT_BODY:
                passed_headers.append(header)
        if self.stream:
            return ResponseHead([*passed_headers, *SSE], events=True)
        return ResponseHead(
            [
                *passed_headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % self._sent_bytes),
            ]
        )

    def error_event(self, error: GatewayError) -> bytes:
        return frame(error.event())

    def keepalive(self) -> bytes:
        return COMMENT

    def instead_of(self, error: Exception) -> ResponseProducer | None:
        return None


# What is ready to answer, and headers on answers and errors alike, which replace the upstream's of
# the same name.
Prepared = tuple[ResponseProducer, Pairs]
Prepare = Callable[[], Awaitable[Prepared]]


def forget_frames(error: BaseException) -> None:
    """Cut an error, and those that it came from, loose from the frames that it passed.

    Frames that hold the error in turn would keep all of the turn until a search for garbage.
    """
    linked_errors = [error]
    while linked_errors:
        linked_error = linked_errors.pop()
        if linked_error.__traceback__ is None:
            continue
        linked_error.__traceback__ = None
        origins = (linked_error.__cause__, linked_error.__context__)
        linked_errors.extend(origin for origin in origins if origin is not None)


class ResponseCallbacks(Protocol):
    """What is notified while a response runs, to account for it."""

    def on_first_byte(self, status: int, *, committed: bool) -> None:
        """Take note that the head leaves. committed: nothing is known of the upstream yet."""
        ...

    def on_finish(
        self, memory: str, error: BaseException | None
    ) -> Coroutine[Any, Any, None] | None:
        """Take note that the work is over.

        memory: `x-memory-status` at the end. error: why it ended early. Returns what must still be
        done, which is shielded, if anything.
        """
        ...


class ResponseTiming(Protocol):
    """How long a response may be silent, in seconds; 0: for ever."""

    @property
    def commit_seconds(self) -> float:
        """Until the status of a silent stream leaves."""
        ...

    @property
    def keepalive_seconds(self) -> float:
        """Between comments on a line that is silent."""
        ...


class GatewayResponse:
    """An ASGI response: prepares it, writes it, settles what is left to do.

    base: headers of every outcome, the request's name first. live: where it is listed while it
    runs.
    """

    def __init__(
        self,
        prepare: Prepare,
        callbacks: ResponseCallbacks,
        base: Headers,
        live: set[GatewayResponse],
        timing: ResponseTiming,
    ) -> None:
        self._prepare = prepare
        self._callbacks = callbacks
        self._live = live
        self._base = list(base)
        self._timing = timing
        self._is_cut = False
        self._task: asyncio.Task[Any] | None = None
        self._writer: ResponseWriter | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Run the work and the watch for a disconnect side by side.

        Whichever ends first ends the other.
        """
        self._live.add(self)
        try:
            await cancel_on_disconnect(self._run(send), receive, scope.get(CONNECTION))
        finally:
            self._live.discard(self)

    def abort_for_shutdown(self) -> None:
        """End the work at the end of a drain; the client is told."""
        self._is_cut = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self, send: Send) -> None:
        self._task = asyncio.current_task()
        error = await self._produce(send)
        if error is not None:
            forget_frames(error)
        writer = self._writer
        # The work is settled before the client is told, so that a repetition of the request finds
        # it so.
        if writer is not None and (settlement := self._finish(writer.producer, error)) is not None:
            await run_shielded(settlement)
        if error is None:
            await send_message(
                send, {"type": "http.response.body", "body": b"", "more_body": False}
            )
        elif not isinstance(error, GatewayError):
            try:
                raise error
            finally:
                del error
        elif writer is None:
            await respond_error(send, error, self._base)
        else:
            await writer.send_error(error)

    async def _produce(self, send: Send) -> BaseException | None:
        """Do the work; return why it ended early, if it did."""
        try:
            prepared = await self._prepare()
            self._writer = ResponseWriter(
                send, prepared, self._base, self._timing, self._callbacks.on_first_byte
            )
            await self._writer.write_body()
        except asyncio.CancelledError as e:
            if not self._is_cut:
                return e
            if self._task is not None:
                self._task.uncancel()
            return Unavailable(
                "The gateway is shutting down and could not wait for this answer. Try again."
            )
        except (GatewayError, ClientLeft) as e:
            return e
        except Exception:
            # A defect of ours. The client gets an error with the request's id, the log the rest.
            log.exception("unexpected failure (%s)", self._base[0][1].decode())
            return GatewayError(UNEXPECTED, code="internal_error")
        return None

    def _finish(
        self, producer: ResponseProducer, error: BaseException | None
    ) -> Coroutine[Any, Any, None] | None:
        """End the work, then its books; return what of that has to be waited for."""
        if (producer_end := producer.on_finish(error)) is None:
            return self._callbacks.on_finish(_note_degraded(producer), error)
        return self._finish_after(producer_end, producer, error)

    async def _finish_after(
        self,
        producer_end: Coroutine[Any, Any, None],
        producer: ResponseProducer,
        error: BaseException | None,
    ) -> None:
        try:
            await producer_end
        finally:
            memory = _note_degraded(producer)
            if (settlement := self._callbacks.on_finish(memory, error)) is not None:
                await settlement


def _note_degraded(producer: ResponseProducer) -> str:
    """Note for the request's books what of its memory was missing; return its status."""
    if (memory := producer.memory) == "degraded":
        reason = dict(producer.extra_headers()).get(b"x-memory-reason", b"")
        current_line().why_degraded = reason.decode().removeprefix("degraded: ")
    return memory


class ResponseWriter:
    """Writes what a producer gives: head, parts, comments while it is silent, an error.

    on_first_byte: told as the head leaves.
    """

    def __init__(
        self,
        send: Send,
        prepared: Prepared,
        base: Pairs,
        timing: ResponseTiming,
        on_first_byte: Callable[..., None],
    ) -> None:
        self.producer, self._own_headers = prepared
        self._send = send
        self._base = base
        self._timing = timing
        self._on_first_byte = on_first_byte
        self._loop = asyncio.get_running_loop()
        self._head: ResponseHead | None = None
        self._is_writing = False
        self._last_write_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None

    async def write_body(self) -> None:
        """Write all that the producer gives. Raises what it raises, and ClientLeft."""
        if self.producer.stream and self._timing.commit_seconds:
            self._arm_keepalive(self._timing.commit_seconds)
        try:
            await self._write_parts()
            if self._head is None:
                await self._write(b"")
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._comment is not None:
                self._comment.cancel()

    async def _write_parts(self) -> None:
        """Write what the producer gives, or what it has answer in its place."""
        has_written = False
        try:
            async with contextlib.aclosing(self.producer.body()) as parts:
                async for part in parts:
                    has_written = True
                    if len(part) > STEP_BYTES:
                        await self._write_long(part)
                    else:
                        await self._write(part)
        except Exception as e:
            successor = None
            if not has_written:
                successor = self.producer.instead_of(e)
            if successor is None:
                raise
            forget_frames(e)
            self.producer = successor
            # A comment was sent.
            if self._head is not None:
                successor.build_head(committed=True)
            await self._write_parts()

    async def _write_long(self, data: bytes) -> None:
        """Write a long part in steps: the server copies what it is given, and sends it at once."""
        for at in range(0, len(data), STEP_BYTES):
            await self._write(data[at : at + STEP_BYTES])
            await asyncio.sleep(LOOP_PAUSE_SECONDS)

    async def _write(self, data: bytes, *, committed: bool = False) -> None:
        self._is_writing = True
        try:
            if self._head is None:
                await self._send(self._start_message(committed=committed))
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except OSError as e:
            raise ClientLeft(*e.args) from e
        self._last_write_at = self._loop.time()
        self._is_writing = False

    def _start_message(self, *, committed: bool) -> dict[str, Any]:
        """Return the message that begins the response."""
        head = self._head = self.producer.build_head(committed=committed)
        self._on_first_byte(head.status, committed=committed)
        answer_headers = head.headers
        if self._own_headers:
            own_names = {k for k, _ in self._own_headers}
            answer_headers = [(k, v) for k, v in answer_headers if k not in own_names]
        headers = [*self._base, *self.producer.extra_headers(), *self._own_headers, *answer_headers]
        # The upstream's, else ours: clients log it.
        if b"x-request-id" not in map(NAME, answer_headers):
            headers.append((b"x-request-id", self._base[0][1]))
        if head.events and self._timing.keepalive_seconds and self._timer is None:
            self._arm_keepalive(self._timing.keepalive_seconds)
        return {"type": "http.response.start", "status": head.status, "headers": headers}

    def _arm_keepalive(self, seconds: float) -> None:
        """Set the timer.

        Sooner where the status may leave meanwhile, since the shorter of the two limits then
        counts.
        """
        self._timer = self._loop.call_later(
            max(min(seconds, self._timing.keepalive_seconds or seconds), 0.05),
            self._on_keepalive_timer,
        )

    def _on_keepalive_timer(self) -> None:
        """Comment on a line that fell silent; the first comment commits the status.

        Never while a write is under way. A timer and no task: a stream seldom falls silent, and to
        begin and to end a task costs it as much as two events.
        """
        if (
            limit := self._timing.commit_seconds
            if self._head is None
            else self._timing.keepalive_seconds
        ):
            seconds_left = self._last_write_at + limit - self._loop.time()
            if seconds_left <= 0 and not self._is_writing:
                self._comment = asyncio.ensure_future(self._send_keepalive())
                seconds_left = limit
            self._arm_keepalive(seconds_left)

    async def _send_keepalive(self) -> None:
        # By now.
        if not self._is_writing:
            # The next part meets it too.
            with contextlib.suppress(ClientLeft):
                await self._write(self.producer.keepalive(), committed=self._head is None)

    async def send_error(self, error: GatewayError) -> None:
        """Tell an error.

        With its own status, as the last event, or by breaking the connection.
        """
        if self._head is None:
            extra = [*self._base, *self.producer.extra_headers(), *self._own_headers]
            await respond_error(self._send, error, extra)
        elif self._head.events:
            body = self.producer.error_event(error)
            await send_message(
                self._send, {"type": "http.response.body", "body": body, "more_body": False}
            )
        else:
            # To return without an end breaks the connection.
            log.warning("an answer broke off: %s", error.message)
