"""Pass-through: `X-Memory: off`, and every `/v1` path that is not a chat completion. Bytes in, bytes out.

Allowed edits (PRODUCT.md): a declared alias, a scrubbed secret, keep-alive comments, and making a cut stream visible.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from gateway.answer import SSE, Head
from gateway.endings import ending_of, is_object
from gateway.errors import (
    BadRequest,
    GatewayError,
    StreamIncomplete,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.forms import is_form
from gateway.forward import Events, Forwarder, Passed
from gateway.headers import Pairs, client_headers
from gateway.naming import renamed, usage_of
from gateway.routing import Target
from gateway.sse import COMMENT, DONE, Event, frame
from gateway.upstream.base import Incoming, Outgoing
from gateway.weighing import MOST_VALUES, is_light, is_readable, weighed

USAGE_BYTES = 8 << 20  # of an answer that is looked into for its usage
USAGE = re.compile(rb'"usage"\s*:\s*\{')


@dataclass(slots=True)
class Passing:
    """What to pass on. path: below `/v1`, as it was sent, with its query. named: headers of ours on every outcome.

    several: a chat completion of more than one choice. started: by perf_counter.
    """

    method: str
    path: str
    body: bytes | None
    content_type: bytes = b"application/json"
    several: bool = False
    named: Pairs = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)


class RelayWork:
    """An answer that is the upstream's own. stream: the client asked for events."""

    def __init__(self, forward: Forwarder, passing: Passing, stream: bool) -> None:
        self._forward, self._p, self.stream = forward, passing, stream
        self._ending = ending_of(passing.path, passing.several)
        self._passed: Passed | None = None
        self._whole: bytes | None = None
        self._committed = False

    @property
    def memory(self) -> str:
        return "off"

    async def ready(self) -> RelayWork:
        return self

    async def parts(self) -> AsyncGenerator[bytes, None]:
        passed = self._passed = await self._forward.pass_on(self._request)
        try:
            if passed.more is not None:
                async for part in self._events(passed, passed.more):
                    yield part
            elif self._committed:
                raise UpstreamUnreachable(
                    "The upstream answered with no stream, but yours had begun. Try again."
                )
            else:
                async for data in self._bytes(passed.incoming):
                    yield data
        finally:
            await passed.incoming.close()

    async def _bytes(self, incoming: Incoming) -> AsyncGenerator[bytes, None]:
        """A body that is no event stream: as it comes, or whole where it is JSON with something in it to replace."""
        alias = self._forward.alias
        first = await anext(incoming.body, b"")
        json = b"json" in (incoming.header(b"content-type") or b"").lower()
        if json and (alias is not None or b'"error"' in first):
            whole = self._forward.scrubbed(
                first + await incoming.read()
            )  # some servers report errors under a 200
            first = self._whole = (
                await weighed(whole, _shown_as, whole, alias) if alias is not None else whole
            )
        seen, size = [first], len(first)
        yield first
        async for data in incoming.body:
            if json and (size := size + len(data)) <= USAGE_BYTES:
                seen.append(data)
            yield data
        if json and size <= USAGE_BYTES:
            whole = b"".join(seen)
            self._forward.meter.told(await weighed(whole, _usage, whole))

    async def _request(self, target: Target, headers: Pairs) -> Outgoing:
        body = self._p.body
        if body is not None:
            headers = [*headers, (b"content-type", self._p.content_type)]
            if target.model and target.model != self._forward.route.name:
                body = await weighed(body, _sent_as, body, target.model, self._p.content_type)
        return Outgoing(self._p.path, body, headers, self._p.method, stream=self.stream)

    async def _events(self, passed: Passed, more: Events) -> AsyncGenerator[bytes, None]:
        if passed.first:
            yield await self._taken(passed.first)
        try:
            async for events in more:
                yield await self._taken(events)
        except (StreamIncomplete, UpstreamTimeout) as e:
            if (
                not self._ending.ended
            ):  # how a connection ends after the last event is nobody's matter
                await self._forward.broke(e)
                raise
        if not self._ending.whole:
            raise StreamIncomplete(
                "The upstream's stream ended before the answer was complete. What came is above; try again."
            )

    async def _taken(self, events: list[Event]) -> bytes:
        """What is shown for events, made in a thread where one of them is long to read."""
        if all(is_light(e.raw) for e in events):
            return self._shown(events)
        return await asyncio.to_thread(self._shown_heavy, events)

    def _shown_heavy(self, events: list[Event]) -> bytes:
        if not all(is_readable(e.raw) for e in events):
            raise StreamIncomplete(
                f"The stream broke off: the upstream sent an event of more than {MOST_VALUES} values. Try again."
            )
        return self._shown(events)

    def _shown(self, events: list[Event]) -> bytes:
        out = []
        for event in events:
            if (
                not event.ended
                and not self._ending.whole
                and event.data != DONE
                and not is_object(event.data or b"")
            ):
                continue  # cut before its last brace
            shown = self._edited(event)
            self._ending.see(shown)
            out.append(shown.raw)
            if not event.ended and not self._ending.whole:
                out.append(b"\n\n")  # so that what tells of the cut is an event of its own
        return b"".join(out)

    def _edited(self, event: Event) -> Event:
        if not event.data or event.data == DONE:
            return event
        data = self._forward.scrubbed(event.data) if b'"error"' in event.data else event.data
        if USAGE.search(data):
            self._forward.meter.told(usage_of(data))
        if (alias := self._forward.alias) is not None and b'"model"' in data:
            data = renamed(data, alias)
        if data == event.data:
            return event
        return event._replace(
            raw=(b"event: " + event.name + b"\n" if event.name else b"") + frame(data), data=data
        )

    def head(self, *, committed: bool) -> Head:
        if self._passed is None:
            self._committed = committed
            return Head(list(SSE), events=True)
        incoming = self._passed.incoming
        headers = client_headers(incoming.headers)
        if self._passed.more is not None:
            return Head(
                [*(h for h in headers if h[0] != b"cache-control"), *SSE[1:]],
                incoming.status,
                events=True,
            )
        length = (
            b"%d" % len(self._whole)
            if self._whole is not None
            else incoming.header(b"content-length")
        )
        return Head([*headers, (b"content-length", length)] if length else headers, incoming.status)

    def named(self) -> Pairs:
        return [*self._p.named, *self._forward.named(self._p.started)]

    def told(self, error: GatewayError) -> bytes:
        return self._ending.told(error)

    def comment(self) -> bytes:
        # openai-python takes a blank line after an `id` field for an event of its own: there the comment stands before the next one.
        return COMMENT[:-1] if self._passed is not None and self._passed.framer.ids else COMMENT

    def over(self, error: BaseException | None) -> None:
        return


def _usage(data: bytes) -> Any:
    """The usage that a whole answer tells, where it is no work to find."""
    return usage_of(data) if is_readable(data) else None


def _sent_as(body: bytes, model: str, content_type: bytes) -> bytes:
    """Put the target's name for the model into a request. Raises BadRequest."""
    if not is_form(content_type) and _is_endless(body):
        raise BadRequest(
            f"The body has more than {MOST_VALUES} JSON values, too many to replace its `model`. Send fewer."
        )
    return renamed(body, model, content_type)


def _shown_as(body: bytes, model: str) -> bytes:
    """Put the name that was asked for into an answer. Raises UpstreamUnreachable."""
    if _is_endless(body):
        raise UpstreamUnreachable(
            f"The upstream answered with more than {MOST_VALUES} JSON values. Try again."
        )
    return renamed(body, model)


def _is_endless(body: bytes) -> bool:
    """Whether an object may have more members than are read in one step; numbers, as embeddings have, are none."""
    return body.count(b":") > MOST_VALUES and not is_readable(body)
