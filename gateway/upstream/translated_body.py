"""A response's body in other words than those that came."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Protocol

from gateway.errors import StreamIncomplete
from gateway.http.pacing import PacedStream
from gateway.upstream.base import UpstreamResponse
from gateway.wire.chat import MalformedReply
from gateway.wire.json_weight import LIGHT_BYTES
from gateway.wire.sse import EventTooLarge

SENT = "the upstream sent "


class Translation(Protocol):
    """Translates the bytes of a response as they arrive.

    waiting: number of bytes that wait for the rest of their event or object.
    """

    @property
    def waiting(self) -> int: ...

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes, of any length; return what can be translated so far."""
        ...

    def end(self) -> bytes:
        """Return the rest when no more bytes come."""
        ...


def translate_response(incoming: UpstreamResponse, into: Translation) -> UpstreamResponse:
    """Return a response whose body is translated as it is read."""
    headers = [(k, v) for k, v in incoming.headers if k.lower() != b"content-length"]
    return UpstreamResponse(incoming.status, headers, _TranslatedBody(incoming, into))


class _TranslatedBody:
    """A translated response body.

    An object, not a generator: closing one that was never iterated must work too.
    """

    def __init__(self, incoming: UpstreamResponse, into: Translation) -> None:
        self._incoming = incoming
        self._into = into
        self._source_parts = PacedStream(incoming.body) if incoming.is_events else incoming.body
        self._has_ended = False

    def __aiter__(self) -> _TranslatedBody:
        return self

    async def __anext__(self) -> bytes:
        out = b""
        while not out:
            if self._has_ended:
                raise StopAsyncIteration
            data = await anext(self._source_parts, None)
            self._has_ended = data is None
            if data is None:
                step = self._into.end
            else:
                step = partial(self._into.feed, data)
            try:
                if self._into.waiting <= LIGHT_BYTES:
                    out = step()
                else:
                    out = await asyncio.to_thread(step)
            except (EventTooLarge, MalformedReply) as e:
                fault = str(e).removeprefix(SENT)
                raise StreamIncomplete(f"The stream broke off: {SENT}{fault}. Try again.") from e
        return out

    async def aclose(self) -> None:
        self._has_ended = True
        await self._incoming.close()
