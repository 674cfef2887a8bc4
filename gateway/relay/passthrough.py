"""Pass-through: `X-Memory: off`, and every `/v1` path that is not a chat completion.

Bytes in, bytes out.

Allowed edits (PRODUCT.md): a declared alias, a scrubbed secret, keep-alive comments, and making a
cut stream visible.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from gateway.errors import (
    BadRequest,
    GatewayError,
    StreamIncomplete,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.http.json_thread import run_by_weight
from gateway.http.paths import UpstreamPath
from gateway.http.response import SSE, ResponseHead
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.replies import EventReader, RawReply
from gateway.routing.router import Target
from gateway.upstream.base import UpstreamRequest, UpstreamResponse, join_body
from gateway.wire.chat import encode
from gateway.wire.headers import Pairs, client_headers
from gateway.wire.json_members import MemberEditor
from gateway.wire.json_weight import MOST_MEMBERS, UNREADABLE, is_light, is_readable
from gateway.wire.long_strings import CutText
from gateway.wire.model_field import replace_model, usage_of
from gateway.wire.multipart import is_form
from gateway.wire.sse import COMMENT, DONE, LONG_BYTES, SseEvent, frame
from gateway.wire.stream_endings import ending_of, is_object

# Of an answer that is looked into for its usage.
USAGE_BYTES = 8 << 20
# Of an answer in which something is replaced before it goes on.
WHOLE_BYTES = 1 << 20
USAGE = re.compile(rb'"usage"\s*:\s*\{')


class RelayedRequest(msgspec.Struct):
    """What to pass on.

    path: below `/v1`, with its query. own_headers: headers of ours on every outcome.

    several: a chat completion of more than one choice. started_at: by perf_counter.
    """

    method: str
    path: UpstreamPath
    body: bytes | None
    content_type: bytes = b"application/json"
    several: bool = False
    own_headers: Pairs = msgspec.field(default_factory=list)
    started_at: float = msgspec.field(default_factory=time.perf_counter)


class PassthroughProducer:
    """An answer that is the upstream's own. stream: the client asked for events."""

    def __init__(self, forward: Dispatcher, passing: RelayedRequest, stream: bool) -> None:
        self._forward = forward
        self._relayed = passing
        self.stream = stream
        self._ending = ending_of(passing.path, passing.several)
        self._raw_reply: RawReply | None = None
        self._whole_body: bytes | None = None
        # So that its length is not known beforehand.
        self._is_edited = False
        self._committed = False

    @property
    def goes_on(self) -> bool:
        """Whether the upstream works on after its answer."""
        return False

    @property
    def gives_events(self) -> bool:
        """Whether the upstream answered with an event stream."""
        return self._raw_reply is not None and self._raw_reply.later_events is not None

    @property
    def passing(self) -> RelayedRequest:
        """What is passed on."""
        return self._relayed

    @property
    def memory(self) -> str:
        return dict(self._relayed.own_headers).get(b"x-memory-status", b"off").decode()

    async def ready(self) -> PassthroughProducer:
        return self

    async def body(self) -> AsyncGenerator[bytes, None]:
        raw_reply = self._raw_reply = await self._forward.passthrough(self._request)
        try:
            if raw_reply.later_events is not None:
                async for part in self._events(raw_reply, raw_reply.later_events):
                    yield part
            elif self._committed:
                raise UpstreamUnreachable(
                    "The upstream answered with no stream, but yours had begun. Try again."
                )
            else:
                async for data in self._bytes(raw_reply.incoming):
                    yield data
        finally:
            await raw_reply.incoming.close()

    async def _bytes(self, incoming: UpstreamResponse) -> AsyncGenerator[bytes, None]:
        """Yield a body that is no event stream.

        It goes on as it comes. JSON in which something is replaced is read whole first if it is
        short; in a longer one the model is replaced as it passes.
        """
        alias = self._forward.alias
        first_part = await anext(incoming.body, b"")
        json = b"json" in (incoming.header(b"content-type") or b"").lower()
        editor: MemberEditor | None = None
        if json and alias is not None:
            first_part += await incoming.read(WHOLE_BYTES)
            if len(first_part) < WHOLE_BYTES:
                first_part = self._whole_body = await run_by_weight(
                    first_part, _with_requested_model, first_part, alias
                )
            else:
                self._is_edited = True
                editor = MemberEditor(b"model", encode(alias))
                first_part = editor.feed(first_part)
        usage_parts = [first_part]
        size = len(first_part)
        yield first_part
        async for data in incoming.body:
            if editor is None:
                part = data
            else:
                part = editor.feed(data)
            if json and (size := size + len(part)) <= USAGE_BYTES:
                usage_parts.append(part)
            yield part
        if editor is not None:
            usage_parts.append(last_part := editor.end())
            yield last_part
        if json and size <= USAGE_BYTES:
            answer = b"".join(usage_parts)
            self._forward.meter.record_usage(await run_by_weight(answer, _usage, answer))

    async def _request(self, target: Target, headers: Pairs) -> UpstreamRequest:
        body = self._relayed.body
        if body is not None:
            headers = [*headers, (b"content-type", self._relayed.content_type)]
            if target.model and target.model != self._forward.route.name:
                body = await run_by_weight(
                    body, _with_target_model, body, target.model, self._relayed.content_type
                )
        return UpstreamRequest(
            self._relayed.path, body, headers, self._relayed.method, stream=self.stream
        )

    async def _events(
        self, raw_reply: RawReply, event_reader: EventReader
    ) -> AsyncGenerator[bytes, None]:
        if raw_reply.first_events:
            yield await self._edit_events(raw_reply.first_events)
        try:
            async for events in event_reader:
                yield await self._edit_events(events)
        except (StreamIncomplete, UpstreamTimeout) as e:
            # How a connection ends after the last event is nobody's matter.
            if not self._ending.ended:
                await self._forward.report_broken_stream(e)
                raise
        if not self._ending.is_complete:
            raise StreamIncomplete(
                "The upstream's stream ended before the answer was complete. What came is "
                "above; try again."
            )

    async def _edit_events(self, events: list[SseEvent]) -> bytes:
        """Return what to show for these events; long ones are read in a thread."""
        if all(is_light(e.event_bytes) for e in events):
            return self._show(events)
        return await asyncio.to_thread(self._show_heavy, events)

    def _show_heavy(self, events: list[SseEvent]) -> bytes:
        if not all(is_readable(e.event_bytes) for e in events):
            raise StreamIncomplete(
                f"The stream broke off: the upstream sent an event of {UNREADABLE}. Try again."
            )
        return self._show(events)

    def _show(self, events: list[SseEvent]) -> bytes:
        out = []
        for event in events:
            if (
                not event.ended
                and not self._ending.is_complete
                and event.data != DONE
                and not is_object(event.data or b"")
            ):
                # Cut before its last brace.
                continue
            shown_event = self._edit(event)
            self._ending.see(shown_event)
            out.append(shown_event.event_bytes)
            if not event.ended and not self._ending.is_complete:
                # So that what tells of the cut is an event of its own.
                out.append(b"\n\n")
        if len(out) == 1:
            return out[0]
        return b"".join(out)

    def _edit(self, event: SseEvent) -> SseEvent:
        """Return an event as it is shown; of a long one the long plain strings are not read."""
        if not event.data or event.data == DONE:
            return event
        text = None
        if len(event.data) > LONG_BYTES:
            text = CutText(event.data)
        data = event.data if text is None else text.cut_text
        if USAGE.search(data):
            self._forward.meter.record_usage(usage_of(data))
        alias = self._forward.alias
        if alias is None or b'"model"' not in data:
            return event
        edited = replace_model(data, alias)
        if edited == data:
            return event
        head = b""
        if event.name:
            head = b"event: " + event.name + b"\n"
        if text is not None:
            edited = join_body(text.restore(edited))
        framed_event = frame(edited)
        return event._replace(
            event_bytes=head + framed_event if head else framed_event, data=edited
        )

    def build_head(self, *, committed: bool) -> ResponseHead:
        if self._raw_reply is None:
            self._committed = committed
            return ResponseHead(list(SSE), events=True)
        incoming = self._raw_reply.incoming
        headers = client_headers(incoming.headers)
        if self._raw_reply.later_events is not None:
            return ResponseHead(
                [*(h for h in headers if h[0] != b"cache-control"), *SSE[1:]],
                incoming.status,
                events=True,
            )
        length = None
        if not self._is_edited:
            length = incoming.header(b"content-length")
        if self._whole_body is not None:
            length = b"%d" % len(self._whole_body)
        return ResponseHead(
            [*headers, (b"content-length", length)] if length else headers, incoming.status
        )

    def extra_headers(self) -> Pairs:
        return [*self._relayed.own_headers, *self._forward.target_headers(self._relayed.started_at)]

    def error_event(self, error: GatewayError) -> bytes:
        return self._ending.error_event(error)

    def keepalive(self) -> bytes:
        # openai-python takes a blank line after an `id` field for an event of its own: there the
        # comment stands before the next one.
        if self._raw_reply is not None and self._raw_reply.framer.ids:
            return COMMENT[:-1]
        return COMMENT

    def instead_of(self, error: Exception) -> None:
        return

    def on_finish(self, error: BaseException | None) -> None:
        return


def _usage(data: bytes) -> Any:
    """Return the usage that a whole answer tells, where it is no work to find."""
    if is_readable(data):
        return usage_of(data)
    return None


def _with_target_model(body: bytes, model: str, content_type: bytes) -> bytes:
    """Put the target's name for the model into a request. Raises BadRequest."""
    if not is_form(content_type) and _is_endless(body):
        raise BadRequest(f"The body has {UNREADABLE}: too many to replace its `model`. Send fewer.")
    return replace_model(body, model, content_type)


def _with_requested_model(body: bytes, model: str) -> bytes:
    """Put the name that was asked for into an answer. Raises UpstreamUnreachable."""
    if _is_endless(body):
        raise UpstreamUnreachable(f"The upstream answered with {UNREADABLE}. Try again.")
    return replace_model(body, model)


def _is_endless(body: bytes) -> bool:
    """Tell whether an object may have more members than are read in one step.

    Numbers are no members, so embeddings pass.
    """
    return body.count(b":") > MOST_MEMBERS and not is_readable(body)
