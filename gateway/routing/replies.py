"""Read what an upstream answered: completions, events, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gateway.apis.base import ApiFormat
from gateway.errors import (
    GatewayError,
    StreamIncomplete,
    UnreadableCompletion,
    UpstreamAuthError,
    UpstreamRefused,
    UpstreamUnreachable,
)
from gateway.http.json_thread import run_by_weight
from gateway.routing.caller import Caller
from gateway.routing.failures import error_json, status_of, worth_retrying
from gateway.routing.router import Target
from gateway.upstream.base import ANSWER_BYTES, ERROR_BYTES, UpstreamResponse
from gateway.wire.chat import MalformedReply, broken_stream, decode, encode, object_or_empty
from gateway.wire.headers import Pairs, client_headers
from gateway.wire.json_weight import SURE_BYTES, UNREADABLE, is_light, is_readable
from gateway.wire.placement import Piece
from gateway.wire.sse import DONE, LONG_BYTES, EventTooLarge, SseEvent, SseFramer, has_line_end
from gateway.wire.stream_endings import error_of, told_error


class CompletionReply(msgspec.Struct):
    """An upstream's accepted answer to a round.

    events: those that came up to the first with data, where it is a stream; the rest is the
    incoming body's. chunk: the answer where it came whole, as its format reads it, and `plain`, its
    bytes. messages: what it was asked.
    """

    target: Target
    attempts: int
    headers: Pairs
    incoming: UpstreamResponse
    framer: SseFramer = msgspec.field(default_factory=SseFramer)
    events: list[SseEvent] = msgspec.field(default_factory=list)
    chunk: Any = None
    plain: bytes | None = None
    messages: Sequence[Piece] = ()


class RawReply(msgspec.Struct):
    """An upstream's answer to pass on.

    first_events: the events that came up to the first with data; later_events: the rest, as they
    arrive.

    Both are empty where the answer is no event stream: its bytes are the incoming body's.
    """

    target: Target
    incoming: UpstreamResponse
    first_events: list[SseEvent] = msgspec.field(default_factory=list)
    later_events: EventReader | None = None
    framer: SseFramer = msgspec.field(default_factory=SseFramer)


# Of comments before the first event of a stream.
FORERUN_BYTES = 1 << 17
JSON_TYPE = (b"content-type", b"application/json")


async def read_completion(reply: CompletionReply, api_format: ApiFormat) -> None:
    """Read as much of an answer as tells whether it is one.

    Of a stream that is its first event with data, of any other the whole. Raises UpstreamRefused
    for an error that was reported under a 200, UpstreamUnreachable, StreamIncomplete.
    """
    await (_read_first_event if reply.incoming.is_events else _read_whole)(reply, api_format)


async def read_plain(reply: CompletionReply) -> Any:
    """Return what an answer that came whole says. Raises msgspec.DecodeError."""
    content = reply.plain or b"{}"
    return await run_by_weight(content, decode, content)


async def _read_first_event(reply: CompletionReply, api_format: ApiFormat) -> None:
    forerun = 0
    async for batch in EventReader(reply.incoming, reply.framer):
        forerun = _check_forerun(forerun, batch)
        if (first_event := next((e for e in batch if e.data), None)) is None:
            continue
        data = first_event.data or b""
        if data == DONE:
            break
        try:
            error = await run_by_weight(data, _readable, data, api_format.event_error)
        except MalformedReply as e:
            raise broken_stream(e) from e
        if error is not None:
            raise _reported(error, _error_body(error, b"", api_format), reply.headers)
        reply.events = batch
        return
    raise StreamIncomplete("The upstream's stream ended before its first event. Try again.")


def _readable(data: bytes, reader: Callable[[bytes], Any]) -> Any:
    """Read an event's data, unless it has too many values. Raises MalformedReply."""
    if not is_light(data) and not is_readable(data):
        raise MalformedReply(f"the upstream sent an event of {UNREADABLE}")
    return reader(data)


async def _read_whole(reply: CompletionReply, api_format: ApiFormat) -> None:
    data = await reply.incoming.read(ANSWER_BYTES)
    if len(data) >= ANSWER_BYTES:
        raise UpstreamUnreachable(
            f"The upstream's answer is longer than {ANSWER_BYTES} bytes. Try again, or ask "
            "for less."
        )
    try:
        if len(data) <= SURE_BYTES:
            chunk, error = api_format.read_whole(data)
        else:
            chunk, error = await run_by_weight(data, api_format.read_whole, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MalformedReply) as e:
        # An object may be an answer to who reads it otherwise.
        is_object = isinstance(e, MalformedReply) and data.lstrip().startswith(b"{")
        kind = UnreadableCompletion if is_object else UpstreamUnreachable
        raise kind(
            f"The upstream answered 200 with something that is no {api_format.noun} "
            f"({type(e).__name__}). Try again, or check its base_url."
        ) from e
    if error:
        raise _reported(error, _error_body(error, data, api_format), reply.headers)
    reply.chunk, reply.plain = chunk, data


async def begin_events(reply: RawReply, *, refuse_errors: bool) -> None:
    """Wait for the first event with data of a stream that is passed on.

    refuse_errors: one that reports an error worth another try raises UpstreamRefused.
    """
    reply.later_events = EventReader(reply.incoming, reply.framer)
    forerun = 0
    async for batch in reply.later_events:
        forerun = _check_forerun(forerun, batch)
        reply.first_events += batch
        if first_event := next((e for e in batch if e.data), None):
            if refuse_errors and first_event.data:
                await _refuse_error(first_event.data, reply)
            return


def _check_forerun(before: int, batch: Sequence[SseEvent]) -> int:
    """Return the bytes of what has come without data. Raises StreamIncomplete for too many."""
    size = before
    for event in batch:
        if event.data:
            return size
        size += len(event.event_bytes)
    if size > FORERUN_BYTES:
        raise StreamIncomplete(
            f"The upstream sent more than {FORERUN_BYTES >> 10} KiB of comments before its first "
            "event. Try again."
        )
    return size


async def _refuse_error(data: bytes, reply: RawReply) -> None:
    """Raise UpstreamRefused for an error that another try may not meet."""
    if error := await run_by_weight(data, _error, data):
        failure = _reported(error, data, client_headers(reply.incoming.headers))
        if worth_retrying(failure):
            raise failure


def _error_body(error: Any, data: bytes, api_format: ApiFormat) -> bytes:
    """Return the body of an error that came in place of an answer, as the API's SDKs read it.

    data: the whole answer, empty for a stream. What a chat server told stays as it came.
    """
    if api_format.is_chat:
        return data or encode({"error": error})
    readable_error = told_error(error)
    if readable_error is error and object_or_empty(data).get("type") == "error":
        return data
    return encode({"error": readable_error})


def _reported(error: Any, data: bytes, headers: Pairs) -> UpstreamRefused:
    """Return the refusal that an error inside an accepted answer is: JSON, whatever it came in."""
    json_headers = [*((k, v) for k, v in headers if k != b"content-type"), JSON_TYPE]
    return UpstreamRefused(status_of(error), data, json_headers)


async def read_refusal(caller: Caller, target: Target, incoming: UpstreamResponse) -> GatewayError:
    """Read an answer that is no success; return the error that the client is told."""
    data = await incoming.read(ERROR_BYTES)
    headers = client_headers(incoming.headers)
    if incoming.status == 401 and caller.managed:
        return _own_credential_refused(target, keyless=caller.credential(target) is None)
    if incoming.status < 200 or incoming.status > 599:
        return UpstreamUnreachable(
            f"The provider {target.provider!r} answered {incoming.status}, which nobody asked "
            "for. Check its base_url."
        )
    if 300 <= incoming.status < 400:
        return UpstreamUnreachable(
            f"The provider {target.provider!r} answered with a redirect ({incoming.status}), "
            "which is not followed. Check its base_url.",
            headers=[(b"x-should-retry", b"false")],
        )
    content, error_headers = error_json(incoming.status, data, headers)
    logged_text = ""
    if content is not data:
        logged_text = caller.loggable(data)
    return UpstreamRefused(
        incoming.status, content, error_headers, incoming.header(b"date") or b"", logged_text
    )


def _own_credential_refused(target: Target, *, keyless: bool) -> UpstreamAuthError:
    fault = "refused the gateway's own credentials"
    if keyless:
        fault = "has no api_key here, and wants one"
    return UpstreamAuthError(
        f"The provider {target.provider!r} {fault}. The gateway's operator must "
        f"{'set' if keyless else 'check'} providers.{target.provider}.api_key."
    )


def _error(data: bytes) -> Any:
    """Return the error that a stream's first event reports, if any."""
    if b'"error"' in data and is_readable(data):
        return error_of(data)
    return None


class EventReader:
    """Reads the events of a stream, in batches as they arrived.

    What follows the last blank line counts as an event if the stream ends, and is dropped if it
    breaks. An object and not a generator: a stream pays for it with every event, and whoever stops
    reading has nothing to close. Raises GatewayError.
    """

    __slots__ = ("_body", "_framer")

    def __init__(self, incoming: UpstreamResponse, framer: SseFramer) -> None:
        self._body = incoming.body
        self._framer = framer

    def __aiter__(self) -> EventReader:
        return self

    async def __anext__(self) -> list[SseEvent]:
        try:
            while True:
                data = await self._body.__anext__()
                if self._framer.waiting_bytes > LONG_BYTES:
                    events = await feed_long(self._framer, data)
                else:
                    events = feed_framer(self._framer, data)
                if events:
                    return events
        except StopAsyncIteration:
            if last_events := feed_framer(self._framer, None):
                return last_events
            raise


async def feed_long(framer: SseFramer, data: bytes) -> list[SseEvent]:
    """Frame the next bytes of a long event, in a thread where they may end it.

    It is copied twice then, which takes some 20 ms. Raises StreamIncomplete.
    """
    if has_line_end(data):
        return await asyncio.to_thread(feed_framer, framer, data)
    return feed_framer(framer, data)


def feed_framer(framer: SseFramer, data: bytes | None) -> list[SseEvent]:
    """Frame the next bytes, None at their end.

    Raises StreamIncomplete for an event without end.
    """
    try:
        if data is not None:
            return framer.feed(data)
        if last_event := framer.close():
            return [last_event]
        return []
    except EventTooLarge as e:
        raise StreamIncomplete(f"The stream broke off: the upstream sent {e}. Try again.") from e
