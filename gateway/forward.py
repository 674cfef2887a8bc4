"""One round's upstream call: targets in order, retries before the first event only, then a stream of chunks.

Both modes give the same thing, an iterator of `Chunk`: a whole completion is lifted to one. Nothing of an answer was used
when this raises, so the caller may compose the request anew.
"""
from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec

from gateway.endings import error_of
from gateway.errors import (
    GatewayError,
    StreamIncomplete,
    UpstreamAuthError,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
    error_body,
)
from gateway.headers import Pairs, client_headers, header_value, rekeyed, upstream_headers
from gateway.routing import Route, Target
from gateway.sse import DONE, Event, Framer
from gateway.upstream.base import Incoming, Outgoing
from gateway.wire.chat import Chunk, Json, Malformed, chunk, decode, encode, lift, read

log = logging.getLogger("memgate")
ERROR_BYTES = 1 << 20
LONGEST_PAUSE = 10.0  # seconds; a client told to wait longer is told so at once
Answered = TypeVar("Answered")
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
class Passed:
    """An upstream's answer to pass on. first: the events that came up to the first with data; more: the rest, as they arrive.

    Both are empty where the answer is no event stream: its bytes are the incoming body's."""

    incoming: Incoming
    first: list[Event] = field(default_factory=list)
    more: AsyncGenerator[list[Event], None] | None = None
    framer: Framer = field(default_factory=Framer)


@dataclass(slots=True)
class Forwarder:
    """Sends one client request's rounds. client: its headers that may go upstream. authorization: its own, in own-key mode.

    managed: provider keys are ours, so an upstream's 401 is about us. retries: tries after the first, over all targets.
    deadline: the loop's time by which all of it ends.
    """

    route: Route
    client: Pairs
    authorization: bytes | None
    managed: bool
    retries: int
    deadline: float
    attempts: int = 0
    served: Target | None = None
    waited: float = 0.0

    async def open(self, body: Json, stream: bool, *, another: bool = False) -> Reply:
        """Tries targets until one answers with a completion. Raises GatewayError: the last refusal or fault.

        another: not the body that the client's Idempotency-Key stands for, so it goes under a key of its own: under the same,
        an upstream would refuse it or give the answer to the first again."""
        return await self._tried(lambda target, last: self._sent(target, body, stream, another))

    async def pass_on(self, make: Callable[[Target, Pairs], Outgoing]) -> Passed:
        """The same for an answer that is passed on. make: the request for a target, from it and its headers (no content type)."""
        return await self._tried(lambda target, last: self._passed(target, make, last))

    @property
    def alias(self) -> str | None:
        """The name to show as `model`, where the one that serves has another."""
        target = self.served or self.route.targets[0]
        return self.route.name if target.model != self.route.name else None

    def named(self, started: float) -> Pairs:
        """Headers that tell who answered, at which attempt, and what was not spent waiting since `started` (perf_counter)."""
        served = [(b"x-memgate-upstream", header_value(self.served.label))] if self.served else []
        overhead = max(0.0, time.perf_counter() - started - self.waited) * 1000
        return [*served, (b"x-memgate-attempts", b"%d" % self.attempts), (b"x-memgate-overhead-ms", b"%.2f" % overhead)]

    async def _tried(self, send: Callable[[Target, bool], Awaitable[Answered]]) -> Answered:
        """One loop for every call: another target first, else the same after a pause. send: told whether its try is the last."""
        targets = [self.served] if self.served else list(self.route.targets)
        tries = 0
        loop = asyncio.get_running_loop()
        while True:
            target = targets[min(tries, len(targets) - 1)]
            self.attempts += 1
            started = loop.time()
            try:
                answered = await send(target, tries >= self.retries)
                self.served = target
                return answered
            except GatewayError as e:
                tries += 1
                pause = _pause(e, tries) if tries >= len(targets) else 0.0
                if tries > self.retries or not _worth_retrying(e) or pause > LONGEST_PAUSE or loop.time() + pause > self.deadline:
                    raise
            finally:
                self.waited += loop.time() - started
            self.waited += pause
            await asyncio.sleep(pause)

    async def _passed(self, target: Target, make: Callable[[Target, Pairs], Outgoing], last: bool) -> Passed:
        outgoing = make(target, upstream_headers(self.client, self.credential(target), None))
        outgoing.until = self.deadline
        incoming = await target.upstream.send(outgoing)
        try:
            if not 200 <= incoming.status < 300:
                raise await self._refusal(target, incoming)
            passed = Passed(incoming)
            if incoming.is_events:
                await self._begun(passed, target, last)
            return passed
        except BaseException:
            await incoming.close()
            raise

    async def _begun(self, passed: Passed, target: Target, last: bool) -> None:
        """Waits for the first event with data. One that reports an error counts as a failure while there are tries left."""
        passed.more = events_of(passed.incoming, passed.framer)
        async for batch in passed.more:
            passed.first += batch
            if found := next((e for e in batch if e.data), None):
                if not last and found.data and (error := error_of(found.data)):
                    failure = UpstreamRefused(_status_of(error), self.scrubbed(found.data, target), client_headers(passed.incoming.headers))
                    if _worth_retrying(failure):
                        raise failure
                return

    def scrubbed(self, data: bytes, target: Target | None = None) -> bytes:
        """An upstream's text without the key it was called with."""
        target = target or self.served
        key = target.settings.api_key if target else None
        return data.replace(secret.encode(), b"[key]") if key is not None and (secret := key.get_secret_value()) else data

    async def _sent(self, target: Target, body: Json, stream: bool, another: bool) -> Reply:
        payload = encode({**body, "model": target.model})
        client = rekeyed(self.client, payload) if another else self.client
        headers = upstream_headers(client, self.credential(target))
        incoming = await target.upstream.send(Outgoing("/chat/completions", payload, headers, stream=stream, until=self.deadline))
        try:
            if not 200 <= incoming.status < 300:
                raise await self._refusal(target, incoming)
            reply = Reply(target, self.attempts, client_headers(incoming.headers), _none(), incoming)
            await (self._first(reply) if incoming.is_events else self._whole(reply))
            return reply
        except BaseException:
            await incoming.close()
            raise

    def credential(self, target: Target) -> bytes | None:
        """What goes upstream as Authorization: the key of ours, and the client's own only where there are no keys of ours at all."""
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
            raise UpstreamRefused(_status_of(first.error), self.scrubbed(encode({"error": first.error}), reply.target), reply.headers)
        reply.chunks = _chained(first, chunks)

    async def _whole(self, reply: Reply) -> None:
        data = await reply.incoming.read()
        try:
            body = decode(data)
            if not isinstance(body, dict):
                raise Malformed("not an object")
            if body.get("error"):
                raise UpstreamRefused(_status_of(body["error"]), self.scrubbed(data, reply.target), reply.headers)
            reply.chunks = _one(chunk(lift(body), b""))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Malformed) as e:
            raise UpstreamUnreachable(f"The upstream answered 200 with something that is no chat completion ({type(e).__name__}). Try again, or check its base_url.") from e
        reply.plain = data

    async def _refusal(self, target: Target, incoming: Incoming) -> GatewayError:
        data = self.scrubbed(await incoming.read(ERROR_BYTES), target)
        headers = client_headers(incoming.headers)
        if incoming.status == 401 and self.managed:
            missing = "has no api_key here, and wants one" if self.credential(target) is None else "refused the gateway's own credentials"
            log.error("the provider %r %s", target.provider, missing)
            return UpstreamAuthError(f"The provider {target.provider!r} {missing}. The gateway's operator must check its api_key.")
        if incoming.status < 200:
            return UpstreamUnreachable(f"The provider {target.provider!r} answered {incoming.status}, which nobody asked for. Check its base_url.")
        if 300 <= incoming.status < 400:
            return UpstreamUnreachable(f"The provider {target.provider!r} answered with a redirect ({incoming.status}), which is not followed. Check its base_url.",
                                       headers=[(b"x-should-retry", b"false")])
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


def _status_of(error: object) -> int:
    code = error.get("code") or error.get("status") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502


def _worth_retrying(error: GatewayError) -> bool:
    """What may be another's luck: 408, 429, 5xx and broken connections; not our own credentials, nor a pool that is full."""
    hint = next((v for k, v in error.headers if k == b"x-should-retry"), None)
    if hint is not None:
        return hint == b"true"
    if isinstance(error, UpstreamRefused):
        return error.status in (408, 429) or error.status >= 500
    return isinstance(error, UpstreamUnreachable | UpstreamTimeout | StreamIncomplete)


def _pause(error: GatewayError, tries: int) -> float:
    """Seconds to wait: what the upstream asks for, else full jitter over a doubling half second."""
    for name, scale in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = next((v for k, v in error.headers if k == name), None)
        if value is not None and re.fullmatch(rb"\d+(\.\d+)?", value):
            return float(value) * scale
        if value is not None and scale == 1.0:
            with contextlib.suppress(ValueError, OverflowError):
                return max(0.0, parsedate_to_datetime(value.decode("latin-1")).timestamp() - time.time())
    return random.random() * 0.5 * 2.0 ** (tries - 1)


async def events_of(incoming: Incoming, framer: Framer) -> AsyncGenerator[list[Event], None]:
    """The events of a stream, those together that arrived together. Raises GatewayError from the body.

    What follows the last blank line when the stream ends is one event more; when it breaks, it is nothing.
    """
    async for data in incoming.body:
        if events := framer.feed(data):
            yield events
    if last := framer.close():
        yield [last]


async def chunks_of(incoming: Incoming) -> AsyncGenerator[Chunk, None]:
    """The chunks of an event stream, up to `[DONE]`. Raises StreamIncomplete for what is no chunk, GatewayError from the body."""
    async for events in events_of(incoming, Framer()):
        for event in events:
            if event.data == DONE:
                await incoming.drained()
                return
            if event.data:
                yield _read(event.data)


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
