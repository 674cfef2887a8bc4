"""One upstream round as the events to show of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.chat.interceptor import Interceptor, RoundResult
from gateway.errors import GatewayError, StreamIncomplete, UpstreamFailed, UpstreamTimeout
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.replies import CompletionReply, chunk_of, feed_framer
from gateway.wire.chat import decode, encode
from gateway.wire.sse import DONE, SseEvent, frame


async def stream_round(  # noqa: C901 - one loop, whose ends stand in their order
    reply: CompletionReply, interceptor: Interceptor, forward: Dispatcher
) -> AsyncGenerator[bytes, None]:
    """Yield what to show of one round.

    An error of the upstream's own is its end; what breaks off after every finish is whole.
    """
    if reply.chunk is not None and (shown_at_once := interceptor.feed(reply.chunk)):
        yield sse_frames(shown_at_once)
    events, body, framer = reply.events, reply.incoming.body, reply.framer
    try:
        while events:
            out: list[bytes] = []
            end = await _consume_events(events, interceptor, out)
            if out:
                yield b"".join(out)
            if isinstance(end, StreamIncomplete):
                raise end
            if end is not None:
                if end.data == DONE:
                    await reply.incoming.wait_for_end()
                return
            async for data in body:
                if framer.between and (shown := interceptor.fast_forward(data)):
                    framer.count += 1
                    yield shown
                elif events := feed_framer(framer, data):
                    break
            else:
                events = feed_framer(framer, None)
    except GatewayError as e:
        await forward.report_broken_stream(e)
        if not (interceptor.ended and isinstance(e, StreamIncomplete | UpstreamTimeout)):
            raise


async def _consume_events(
    events: list[SseEvent], interceptor: Interceptor, out: list[bytes]
) -> SseEvent | StreamIncomplete | None:
    """Append the bytes to show for these events to `out`.

    Return the terminal event (`[DONE]` or an error), or the `StreamIncomplete` for a malformed one;
    None if the stream goes on.
    """
    for event in events:
        if shown := interceptor.fast_forward(event.raw):
            out.append(shown)
        elif event.data == DONE:
            out += map(frame, interceptor.finish_round())
            return event
        elif event.data:
            try:
                piece = await chunk_of(event)
            except StreamIncomplete as e:
                return e
            out += map(frame, interceptor.feed(piece))
            if piece.error is not None:
                return event
    return None


def sse_frames(payloads: list[bytes]) -> bytes:
    """Return JSON texts as events."""
    return b"".join(map(frame, payloads))


def raise_for_incomplete(result: RoundResult, forward: Dispatcher, whole: bool) -> None:
    """Raise UpstreamFailed for an error inside the stream.

    Unless it came whole, raise StreamIncomplete for a missing finish.
    """
    if result.error is not None:
        failed = UpstreamFailed(decode(forward.redact_key(encode(result.error))))
        if forward.served is not None:
            forward.log_failure(failed, forward.served)
        raise failed
    if not result.complete and not whole:
        raise StreamIncomplete(
            "The upstream's stream ended before the answer was complete. What came is above; try "
            "again."
        )
