"""One upstream round as the events to show of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial

from gateway.apis.base import ReplyMask
from gateway.apis.round_result import RoundResult
from gateway.errors import GatewayError, StreamIncomplete, UpstreamFailed, UpstreamTimeout
from gateway.http.json_thread import run_by_weight, run_heavy
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.replies import CompletionReply, feed_framer, feed_long
from gateway.wire.chat import Json
from gateway.wire.json_weight import LIGHT_BYTES, SURE_BYTES, is_light
from gateway.wire.sse import LONG_BYTES, SseEvent, SseFramer
from gateway.wire.stream_endings import told_error

EVENT_END = b"\n\n"


async def stream_round(  # noqa: C901 - one loop, whose ends stand in their order
    reply: CompletionReply, mask: ReplyMask, forward: Dispatcher
) -> AsyncGenerator[bytes, None]:
    """Yield what to show of one round.

    An error of the upstream's own is its end; what breaks off after every finish is whole.
    """
    for shown_at_once in await _show_whole(reply, mask):
        yield shown_at_once
    events, body, framer = reply.events, reply.incoming.body, reply.framer
    try:
        while events:
            out: list[bytes] = []
            fault = await _consume_events(events, mask, out)
            if out:
                yield b"".join(out)
            if fault is not None:
                raise fault
            if mask.over:
                if mask.ended:
                    await reply.incoming.wait_for_end()
                return
            async for data in body:
                events_shown, unread_bytes = forward_events(data, mask, framer)
                if events_shown:
                    yield events_shown
                is_long = framer.waiting_bytes > LONG_BYTES
                if unread_bytes and (
                    events := await feed_long(framer, unread_bytes)
                    if is_long
                    else feed_framer(framer, unread_bytes)
                ):
                    break
            else:
                events = feed_framer(framer, None)
    except GatewayError as e:
        await forward.report_broken_stream(e)
        if not (mask.ended and isinstance(e, StreamIncomplete | UpstreamTimeout)):
            raise


async def _show_whole(reply: CompletionReply, mask: ReplyMask) -> list[bytes]:
    """Return the events of an answer that came whole, none of any other.

    Those of a heavy one are made in a thread, and left apart: to join them takes as long.
    """
    if reply.chunk is None:
        return []
    plain_reply = reply.plain or b""
    if not is_light(plain_reply):
        events = await run_heavy(partial(mask.show_whole, heavy=True), reply.chunk)
        return list(filter(None, events))
    shown_at_once = b"".join(mask.show_whole(reply.chunk))
    return [shown_at_once] if shown_at_once else []


def forward_events(data: bytes, mask: ReplyMask, framer: SseFramer) -> tuple[bytes, bytes]:
    """Return what to show of the events that need not be read, and the bytes behind them.

    These are such that only continue what is being shown; the first other one ends them.
    """
    if framer.waiting_bytes:
        return b"", data
    at = 0
    forwarded_events = []
    while (end := data.find(EVENT_END, at) + len(EVENT_END)) > at + 1:
        event = mask.fast_forward(data[at:end])
        if not event:
            break
        forwarded_events.append(event)
        at = end
    framer.count += len(forwarded_events)
    return b"".join(forwarded_events), data[at:]


async def _consume_events(
    events: list[SseEvent], mask: ReplyMask, out: list[bytes]
) -> StreamIncomplete | None:
    """Append the bytes to show for these events to `out`, up to the round's last.

    Return the fault of a malformed one.
    """
    for event in events:
        if event_shown := mask.fast_forward(event.event_bytes):
            out.append(event_shown)
        elif event.data:
            try:
                if event_shown := await mask.show(event):
                    out.append(event_shown)
            except StreamIncomplete as e:
                return e
            if mask.over:
                break
    return None


def raise_for_incomplete(result: RoundResult, forward: Dispatcher, whole: bool) -> None:
    """Raise UpstreamFailed for an error inside the stream.

    Unless it came whole, raise StreamIncomplete for a missing finish.
    """
    if result.error is not None:
        error = result.error
        # A chat client gets what a chat server told, whatever its shape.
        if not forward.wire.is_chat:
            error = told_error(error)
        failure = UpstreamFailed(error)
        if forward.served is not None:
            forward.log_failure(failure, forward.served)
        raise failure
    if not result.complete and not whole:
        raise StreamIncomplete(
            "The upstream's stream ended before the answer was complete. What came is above; try "
            "again."
        )


async def read_whole(
    reply: CompletionReply, mask: ReplyMask, *, in_parts: bool
) -> RoundResult | None:
    """Read an answer that is all of the turn's in one piece, None for any other.

    in_parts: it is shown in parts, or is not all of the turn's.
    """
    if in_parts or reply.chunk is None or mask.holds_finish:
        return None
    plain_reply = reply.plain or b""
    if len(plain_reply) <= SURE_BYTES:
        return mask.take_whole(reply.chunk)
    return await run_by_weight(plain_reply, mask.take_whole, reply.chunk)


async def close_round(mask: ReplyMask) -> tuple[bytes, RoundResult]:
    """End a round; in a thread if it has very many parts."""
    if mask.is_long:
        return await run_heavy(mask.close)
    return mask.close()


async def end_stream(mask: ReplyMask, usage: Json | None) -> bytes:
    """Return the last events; made in a thread if they repeat a long answer."""
    if mask.is_long:
        return await run_heavy(mask.end, usage)
    return mask.end(usage)


async def write_body(mask: ReplyMask, usage: Json | None, size: int) -> bytes | list[bytes]:
    """Return the whole answer for a client that wants no events, written in a thread if long.

    size: the bytes of what the upstream sent.
    """
    if size <= LIGHT_BYTES:
        return mask.body(usage)
    return await asyncio.to_thread(partial(mask.body, usage, long=True))
