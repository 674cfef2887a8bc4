"""One round's upstream call: targets in order, retries before the first event only, then a stream of chunks.

Both modes give the same thing, an iterator of `Chunk`: a whole completion is lifted to one. Nothing of an answer was used
when this raises, so the caller may compose the request anew.
"""
from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

import msgspec

from gateway.errors import (
    GatewayError,
    StreamIncomplete,
    UpstreamAuthError,
    UpstreamRefused,
    UpstreamUnreachable,
    error_body,
)
from gateway.headers import Pairs, client_headers, upstream_headers
from gateway.routing import Route, Target
from gateway.sse import DONE, Framer
from gateway.upstream.base import Incoming, Outgoing
from gateway.wire.chat import Chunk, Json, Malformed, chunk, decode, encode, lift, read

ERROR_BYTES = 1 << 20
LONGEST_PAUSE = 10.0  # seconds; a client told to wait longer is told so at once
RETRIED = frozenset({408, 409, 429, 500, 502, 503, 504, 520, 522, 524, 529})
OVERFLOW = re.compile(
    r"context_length_exceeded|maximum context length|context window|prompt is too long|input is too long|too many (?:input )?tokens|exceeds? the (?:maximum|limit|context)"
    r"|reduce the length|input token count|exceed_context_size|request too large", re.IGNORECASE)
TAGS = re.compile(r"<(script|style)\b.*?(?:</\1>|\Z)|<[^>]*>", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Reply:
    """An upstream's accepted answer. plain: the whole completion, where it was sent as one."""

    target: Target
    attempts: int
    headers: Pairs
    chunks: AsyncIterator[Chunk]
    incoming: Incoming
    plain: bytes | None = None


@dataclass(slots=True)
class Forwarder:
    """Sends one client request's rounds. client: its headers. authorization: the client's own, in own-key mode.

    managed: provider keys are ours, so an upstream's 401 is about us.
    """

    route: Route
    client: Mapping[bytes, bytes]
    authorization: bytes | None
    managed: bool
    retries: int
    deadline: float
    attempts: int = 0
    served: Target | None = None
    waited: float = field(default=0.0)

    async def open(self, body: Json | bytes, stream: bool) -> Reply:
        """Tries targets until one answers. Raises GatewayError: the last refusal or fault."""
        tries = 0
        targets = [self.served] if self.served else list(self.route.targets)
        while True:
            target = targets[min(tries, len(targets) - 1)]
            try:
                return await self._once(target, body, stream)
            except GatewayError as e:
                tries += 1
                pause = _pause(e, tries)
                late = asyncio.get_running_loop().time() + pause > self.deadline
                if tries > self.retries or not _worth_retrying(e) or late or pause > LONGEST_PAUSE:
                    raise
            if tries >= len(targets):
                await asyncio.sleep(pause)

    async def pass_on(self, make: Callable[[str, bytes | None], Outgoing]) -> Incoming:
        """The relay's call: `make(model, credential)` gives the request for a target. Errors are raised as they came."""
        tries = 0
        while True:
            target = self.route.targets[min(tries, len(self.route.targets) - 1)]
            self.attempts += 1
            try:
                incoming = await target.upstream.send(make(target.model, self.credential(target)))
                if incoming.status >= 300:
                    try:
                        raise await self._refusal(target, incoming)
                    finally:
                        await incoming.close()
                self.served = target
                return incoming
            except GatewayError as e:
                tries += 1
                pause = _pause(e, tries) if tries >= len(self.route.targets) else 0
                if tries > self.retries or not _worth_retrying(e) or pause > LONGEST_PAUSE or asyncio.get_running_loop().time() + pause > self.deadline:
                    raise
                await asyncio.sleep(pause)

    async def _once(self, target: Target, body: Json | bytes, stream: bool) -> Reply:
        self.attempts += 1
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await self._sent(target, body, stream)
        finally:
            self.waited += loop.time() - started

    async def _sent(self, target: Target, body: Json | bytes, stream: bool) -> Reply:
        payload = body if isinstance(body, bytes) else encode({**body, "model": target.model})
        incoming = await target.upstream.send(Outgoing("/chat/completions", payload, upstream_headers(self.client, self.credential(target)), stream=stream))
        try:
            if incoming.status >= 300:
                raise await self._refusal(target, incoming)
            reply = Reply(target, self.attempts, client_headers(incoming.headers), _none(), incoming)
            if b"event-stream" in (incoming.header(b"content-type") or b""):
                await self._first(reply)
            else:
                await self._whole(reply)
            self.served = target
            return reply
        except BaseException:
            await incoming.close()
            raise

    def credential(self, target: Target) -> bytes | None:
        key = target.settings.api_key
        if key is not None and key.get_secret_value():
            return b"Bearer " + key.get_secret_value().encode()
        return None if self.managed else self.authorization

    async def _first(self, reply: Reply) -> None:
        """Waits for the first event: until then another target may still be tried."""
        chunks = chunks_of(reply.incoming)
        try:
            first = await anext(chunks, None)
        except BaseException:
            await chunks.aclose()
            raise
        if first is None:
            raise StreamIncomplete("The upstream's stream ended before its first event. Try again.")
        if first.error is not None:
            await chunks.aclose()
            raise UpstreamRefused(_status_of(first.error), encode({"error": first.error}), reply.headers)
        reply.chunks = _chained(first, chunks)

    async def _whole(self, reply: Reply) -> None:
        data = await reply.incoming.read()
        try:
            body = decode(data)
            if not isinstance(body, dict):
                raise Malformed("not an object")
            if body.get("error"):
                raise UpstreamRefused(_status_of(body["error"]), data, reply.headers)
            reply.chunks = _one(chunk(lift(body), b""))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Malformed) as e:
            raise UpstreamUnreachable(f"The upstream answered 200 with something that is no chat completion ({type(e).__name__}). Try again, or check its base_url.") from e
        reply.plain = data

    async def _refusal(self, target: Target, incoming: Incoming) -> GatewayError:
        data = await incoming.read(ERROR_BYTES)
        headers = client_headers(incoming.headers)
        key = target.settings.api_key
        if key is not None and (secret := key.get_secret_value()):
            data = data.replace(secret.encode(), b"[key]")
        if incoming.status == 401 and self.managed:
            return UpstreamAuthError(f"The provider {target.provider!r} refused the gateway's own credentials. Its operator must check the api_key.")
        if 300 <= incoming.status < 400:
            return UpstreamUnreachable(f"The provider {target.provider!r} answered with a redirect ({incoming.status}), which is not followed. Check its base_url.")
        return UpstreamRefused(incoming.status, *_error_json(incoming.status, data, headers))


def _error_json(status: int, data: bytes, headers: Pairs) -> tuple[bytes, Pairs]:
    """An upstream's error body as it came when it is JSON, else a JSON error with the beginning of its text."""
    try:
        msgspec.json.decode(data)
        return data, headers
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = " ".join(TAGS.sub(" ", data[:4000].decode("utf-8", "replace")).split())[:300]
        kept = [(k, v) for k, v in headers if k not in (b"content-type", b"content-encoding")]
        return error_body(f"The upstream answered {status}: {text or 'no text'}", "upstream_error", "upstream_error"), [*kept, (b"content-type", b"application/json")]


def is_overflow(error: UpstreamRefused) -> bool:
    """Whether a refusal says that the prompt does not fit, in any provider's words."""
    return error.status in (400, 413, 422) and bool(OVERFLOW.search(error.content[:4000].decode("utf-8", "replace")))


def overflowed(e: UpstreamRefused) -> UpstreamRefused:
    """The upstream's own refusal, with the code by which frameworks know an overflow."""
    try:
        body = decode(e.content)
        error = body.get("error") if isinstance(body, dict) else None
        if isinstance(error, dict) and error.get("code") != "context_length_exceeded":
            return UpstreamRefused(e.status, encode({**body, "error": {**error, "code": "context_length_exceeded"}}), e.headers)
        if not isinstance(error, dict):
            return UpstreamRefused(e.status, error_body(str(error or body), "invalid_request_error", "context_length_exceeded"), e.headers)
    except msgspec.DecodeError:
        return UpstreamRefused(e.status, error_body(e.message, "invalid_request_error", "context_length_exceeded"), e.headers)
    return e

def _status_of(error
: object) -> int:
    code = error.get("code") or error.get("status") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502


def _worth_retrying(error: GatewayError) -> bool:
    hint = next((v for k, v in error.headers if k == b"x-should-retry"), None)
    if hint is not None:
        return hint == b"true"
    return error.status in RETRIED if isinstance(error, UpstreamRefused) else error.status in (502, 503, 504) and not isinstance(error, UpstreamAuthError)


def _pause(error: GatewayError, tries: int) -> float:
    """Seconds to wait: what the upstream asks for, else full jitter over a doubling half second."""
    for name, scale in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = next((v for k, v in error.headers if k == name), None)
        if value is not None and re.fullmatch(rb"\d+(\.\d+)?", value):
            return float(value) * scale
        if value is not None and scale == 1.0:
            with contextlib.suppress(ValueError):
                return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - time.time())
    return random.random() * 0.5 * 2.0 ** (tries - 1)


async def chunks_of(incoming: Incoming) -> AsyncGenerator[Chunk, None]:
    """The chunks of an event stream, up to `[DONE]`. Raises StreamIncomplete for what is no chunk, GatewayError from the body."""
    framer = Framer()
    async for data in incoming.body:
        for event in framer.feed(data):
            if event.data == DONE:
                return
            if event.data:
                yield _read(event.data)
    last = framer.close()
    if last is not None and last.data and last.data != DONE:
        yield _read(last.data)


def _read(data: bytes) -> Chunk:
    try:
        return read(data)
    except Malformed as e:
        raise StreamIncomplete(f"The stream broke off: {e}. Try again.") from e


async def _chained(first: Chunk, rest: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    yield first
    async for item in rest:
        yield item


async def _one(item: Chunk) -> AsyncIterator[Chunk]:
    yield item


async def _none() -> AsyncIterator[Chunk]:
    return
    yield
