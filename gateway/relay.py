"""Pass-through: `X-Memory: off`, and every `/v1` path that is not a chat completion. Bytes in, bytes out.

Allowed edits (PRODUCT.md): a declared alias, a scrubbed secret, keep-alive comments, and making a cut stream visible.
"""
from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.answer import COMMENT, Receive, Send, respond, respond_error, unless_gone
from gateway.errors import GatewayError, StreamIncomplete
from gateway.forward import Forwarder
from gateway.headers import Pairs, client_headers, header_value, upstream_headers
from gateway.sse import DONE, Event, Framer, frame
from gateway.upstream.base import Incoming, Outgoing
from gateway.wire.chat import decode, encode


@dataclass(slots=True)
class Passing:
    """What to pass on. alias: the requested model name where the target's differs; chat: a stream must end with a finish."""

    method: str
    path: str
    body: bytes | None
    content_type: bytes
    alias: str | None = None
    chat: bool = False
    base: Pairs = field(default_factory=list)
    quiet: float = 15


class Relay:
    """An ASGI response that is the upstream's own."""

    def __init__(self, forward: Forwarder, passing: Passing, client: Mapping[bytes, bytes]) -> None:
        self._forward, self._p, self._client = forward, passing, client
        self._started = False
        self._quiet_since = 0.0

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        await unless_gone(self._run(send), receive)

    async def _run(self, send: Send) -> None:
        incoming: Incoming | None = None
        try:
            incoming = await self._forward.pass_on(self._request)
            await self._answer(send, incoming)
        except GatewayError as e:
            if self._started:
                await send({"type": "http.response.body", "body": frame(e.event()), "more_body": False})
            else:
                await respond_error(send, e, self._p.base)
        finally:
            if incoming is not None:
                await incoming.close()

    def _request(self, model: str, credential: bytes | None) -> Outgoing:
        body = self._p.body
        if body is not None and self._p.alias is not None and model:
            body = renamed(body, model)
        headers = upstream_headers(self._client, credential, self._p.content_type)
        return Outgoing(self._p.path, body, headers if body is not None else [h for h in headers if h[0] != b"content-type"], self._p.method)

    async def _answer(self, send: Send, incoming: Incoming) -> None:
        target = self._forward.served
        named = [(b"x-memgate-upstream", header_value(target.label)), (b"x-memgate-attempts", b"%d" % self._forward.attempts)] if target else []
        headers = [*self._p.base, *named, *client_headers(incoming.headers)]
        if b"event-stream" in (incoming.header(b"content-type") or b"").lower() and not incoming.header(b"content-encoding"):
            headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
            await self._stream(send, incoming, headers)
        elif self._p.alias is not None and b"json" in (incoming.header(b"content-type") or b""):
            body = renamed(await incoming.read(), self._p.alias)
            await respond(send, incoming.status, body, [*headers, (b"content-length", b"%d" % len(body))])
        else:
            await self._bytes(send, incoming, headers)

    async def _bytes(self, send: Send, incoming: Incoming, headers: Pairs) -> None:
        length = incoming.header(b"content-length")
        await send({"type": "http.response.start", "status": incoming.status, "headers": [*headers, *([(b"content-length", length)] if length else [])]})
        async for data in incoming.body:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, send: Send, incoming: Incoming, headers: Pairs) -> None:
        framer, ending = Framer(), _Ending(self._p.chat)
        self._started = True
        await send({"type": "http.response.start", "status": incoming.status, "headers": headers})
        keeper = asyncio.ensure_future(self._keep(send))
        try:
            async for data in incoming.body:
                if events := framer.feed(data):
                    await send({"type": "http.response.body", "body": b"".join(self._shown(e, ending) for e in events), "more_body": True})
                    self._quiet_since = asyncio.get_running_loop().time()
            rest = framer.rest
            last = framer.close()
            if last is not None and ending.seen(last):
                await send({"type": "http.response.body", "body": rest, "more_body": True})
        finally:
            keeper.cancel()
        if not ending.whole:
            raise StreamIncomplete("The upstream's stream ended before the answer was complete. What came is above; try again.")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        self._quiet_since = loop.time()
        while self._p.quiet:
            left = self._quiet_since + self._p.quiet - loop.time()
            if left <= 0:
                await send({"type": "http.response.body", "body": COMMENT, "more_body": True})
                self._quiet_since = loop.time()
            await asyncio.sleep(max(left, 0.05))

    def _shown(self, event: Event, ending: _Ending) -> bytes:
        ending.seen(event)
        if self._p.alias is None or not event.data or event.data == DONE or event.name:
            return event.raw
        return frame(renamed(event.data, self._p.alias))


class _Ending:
    """Whether a chat stream has ended as it should: a finish, `[DONE]`, or an error of the upstream's own."""

    def __init__(self, chat: bool) -> None:
        self.whole = not chat

    def seen(self, event: Event) -> bool:
        """Takes an event into account. False for one that is no JSON."""
        if not event.data:
            return True
        if event.data == DONE or b'"error"' in event.data:
            self.whole = True
        elif b"finish_reason" in event.data and not self.whole:
            try:
                self.whole = any(c.get("finish_reason") for c in decode(event.data).get("choices") or [])
            except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
                return False
        return True


def renamed(body: bytes, model: str) -> bytes:
    """A JSON object with another top-level `model`; every other member keeps its bytes. What is no object stays as it is."""
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    if "model" not in members:
        return body
    members["model"] = msgspec.Raw(encode(model))
    return encode(members)
