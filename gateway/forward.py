"""One round's upstream call: targets in order, retries before the first event only, then a stream of events.

A whole completion is lifted to the one chunk of such a stream. Nothing of an answer was used when this raises, so the caller may
compose the request anew.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from gateway.choice import Candidate, Choice, Trial
from gateway.endings import error_of
from gateway.errors import (
    BadRequest,
    GatewayError,
    StreamIncomplete,
    Unavailable,
    UpstreamAuthError,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.headers import Pairs, client_headers, header_value, rekeyed, upstream_headers
from gateway.identity import LOCAL
from gateway.metering import Meter
from gateway.pace import Paced
from gateway.refusals import (
    LOGGED,
    blames,
    code_of,
    error_json,
    forbids_retry,
    pause,
    reason,
    status_of,
    worth_retrying,
)
from gateway.routing import Route, Target
from gateway.slots import Held
from gateway.sse import DONE, Event, EventTooLarge, Framer
from gateway.upstream.base import ANSWER_BYTES, ERROR_BYTES, Incoming, Outgoing
from gateway.weighing import MOST_VALUES, is_light, is_readable, weighed
from gateway.wire.chat import Chunk, Json, Malformed, chunk, decode, encode, lift, read
from gateway.wire.place import Piece, native, pieces, written
from memory.prefix import Messages

log = logging.getLogger("mnemogate")
SHORTEST_SECRET = 8  # bytes; what is set for a server that takes any key ("x", "none", "EMPTY") is a word that texts may hold
LONGEST_PAUSE = 10.0  # seconds; a client told to wait longer is told so at once


@dataclass(slots=True)
class Reply:
    """An upstream's accepted answer. events: those that came up to the first with data, where it is a stream; the rest is the incoming
    body's. chunk: what the completion is, where it came whole, and `plain`, its bytes. messages: what
    it was asked."""

    target: Target
    attempts: int
    headers: Pairs
    incoming: Incoming
    framer: Framer = field(default_factory=Framer)
    events: list[Event] = field(default_factory=list)
    chunk: Chunk | None = None
    plain: bytes | None = None
    messages: Sequence[Piece] = ()


@dataclass(slots=True)
class Passed:
    """An upstream's answer to pass on. first: the events that came up to the first with data; more: the rest, as they arrive.

    Both are empty where the answer is no event stream: its bytes are the incoming body's."""

    target: Target
    incoming: Incoming
    first: list[Event] = field(default_factory=list)
    more: Events | None = None
    framer: Framer = field(default_factory=Framer)


Composed = tuple[
    Json, Sequence[Piece], Messages | None
]  # a request, what went for the messages before its own, and where those came from
Answered = TypeVar("Answered", Reply, Passed)


@dataclass(slots=True)
class Forwarder:
    """Sends one client request's rounds. client: its headers that may go upstream. authorization: its own, in own-key mode.

    managed: provider keys are ours, so an upstream's 401 is about us. account: whose quota it is, where it is not ours.
    conversation: what stays the same in it, to stay with its target. request: its name, for the log. retries: tries after the first,
    over all targets and rounds. deadline: the loop's time by which all of it ends.
    """

    route: Route
    choice: Choice
    client: Pairs = field(default_factory=list)
    authorization: bytes | None = None
    managed: bool = True
    account: str = ""
    conversation: bytes = b""
    retries: int = 0
    deadline: float = float("inf")
    meter: Meter = field(default_factory=Meter)
    attempts: int = 0
    failures: int = 0
    served: Target | None = None
    tried: Target | None = None
    waited: float = 0.0
    request: str = ""
    _written: bool = False
    _candidates: list[Candidate] = field(default_factory=list)

    async def chosen(self) -> Target:
        """The target that is tried first. Raises Unavailable."""
        if not self._candidates:
            self._candidates = await self.choice.candidates(
                self.route, self.account, self.conversation
            )
        return self._candidates[0].target

    async def open(
        self, compose: Callable[[Target], Composed], *, another: bool = False, frozen: bool = False
    ) -> Reply:
        """Tries targets until one answers with a completion. Raises GatewayError: the last refusal or fault.

        compose: the request for a target. another: not the body that the client's Idempotency-Key stands for, so it goes under a key of its own: under the same,
        an upstream would refuse it or give the answer to the first again. frozen: see `Outgoing`."""
        found: list[Piece] = []

        def outgoing(target: Target) -> Outgoing:
            nonlocal found
            body, sent, client = compose(target)
            found = pieces(
                native(
                    body["messages"], target.label, thoughts=target.settings.kind == "anthropic"
                ),
                client,
                sent,
            )
            content = written({**body, "model": target.model}, found, client)
            return Outgoing(
                "/chat/completions", content, frozen=frozen, stream=bool(body.get("stream"))
            )

        reply = await self._tried(lambda target: self._sent(target, outgoing(target), another))
        reply.messages = found
        self.meter.began(reply.target, reply.framer, len(reply.plain or b""))
        return reply

    async def message(self, body: Json) -> Json:
        """The assistant's message of a completion that no client sees; its usage is told to the meter. Raises GatewayError, and
        LookupError, TypeError or DecodeError for what is no such message."""
        reply = await self.open(lambda _: (body, (), None))
        await reply.incoming.close()
        found = decode(reply.plain or b"{}")
        self.meter.told(found.get("usage"))
        message = found["choices"][0]["message"]
        if not isinstance(message, dict):
            raise TypeError("the completion's message is no object")
        return message

    async def pass_on(self, make: Callable[[Target, Pairs], Awaitable[Outgoing]]) -> Passed:
        """The same for an answer that is passed on. make: the request for a target, from it and its headers (no content type)."""
        passed = await self._tried(lambda target: self._passed(target, make))
        self.meter.began(passed.target, passed.framer)
        return passed

    @property
    def alias(self) -> str | None:
        """The name to show as `model`, where the one that serves has another."""
        target = self.served or (
            self._candidates[0].target if self._candidates else self.route.tiers[0][0]
        )
        return self.route.name if target.model != self.route.name else None

    def named(self, started: float) -> Pairs:
        """Headers that tell who answered, or failed last, at which attempt, and what was not spent waiting since `started` (perf_counter)."""
        who = (
            [(b"x-mnemogate-upstream", header_value(target.label))]
            if (target := self.served or self.tried)
            else []
        )
        overhead = max(0.0, time.perf_counter() - started - self.waited) * 1000
        return [
            *who,
            (b"x-mnemogate-attempts", b"%d" % self.attempts),
            (b"x-mnemogate-overhead-ms", b"%.2f" % overhead),
        ]

    async def _tried(self, send: Callable[[Target], Awaitable[Answered]]) -> Answered:
        """One loop for every call: another target first, else the same after a pause."""
        await self.chosen()
        loop = asyncio.get_running_loop()
        ready: dict[str, float] = {}  # the loop's time at which what was tried may be tried again
        while True:
            # Looked at again: its places may be taken since it was chosen.
            candidate = (
                self._candidates[0]
                if len(self._candidates) == 1
                else min(
                    self._candidates,
                    key=lambda c: (ready.get(c.target.label, 0.0), self.choice.against(c)),
                )
            )
            label = candidate.target.label
            if (left := ready.get(label, 0.0) - loop.time()) > 0:
                self.waited += left
                await asyncio.sleep(left)
            alone = all(c.target.label in ready for c in self._candidates if c is not candidate)
            trial = await self.choice.begun(candidate, self.account, alone=alone)
            if trial is None:
                ready[label] = loop.time()
                continue
            try:
                answered = await self._judged(trial, send)
            except GatewayError as e:
                ready[label] = self._again(e)
                soonest = min(ready.get(c.target.label, 0.0) for c in self._candidates)
                if self.failures > self.retries or soonest > min(
                    loop.time() + LONGEST_PAUSE, self.deadline
                ):
                    raise
            else:
                self._stay(candidate.target)
                return answered

    async def _judged(
        self, trial: Trial, send: Callable[[Target], Awaitable[Answered]]
    ) -> Answered:
        """One try, and what it tells of its target. A caller who leaves tells nothing, and pays for what was begun for it."""
        started, target = time.perf_counter(), trial.candidate.target
        self._written = False
        try:
            answered = await send(target)
        except GatewayError as e:
            if self._written and isinstance(e, UpstreamTimeout | StreamIncomplete):
                self.meter.began(target, Framer())
            self.noted(e, target)
            await trial.failed(e)
            raise
        except BaseException:
            if self._written:
                self.meter.began(target, Framer())
            await trial.left()
            raise
        finally:
            self.waited += time.perf_counter() - started
        try:
            await trial.succeeded()
        except BaseException:
            await answered.incoming.close()  # nobody else knows of it yet
            raise
        return answered

    def _again(self, error: GatewayError) -> float:
        """When the target that failed so may be tried again, by the loop's time. Raises the error where nobody else is to be asked either."""
        elsewhere = (
            isinstance(error, UpstreamRefused)
            and not forbids_retry(error)
            and code_of(error) in self.choice.rules.failover_codes
        )
        if not worth_retrying(error) and not elsewhere:
            raise error
        self.failures += 1
        return (
            math.inf
            if elsewhere
            else asyncio.get_running_loop().time() + pause(error, self.failures)
        )

    def _stay(self, target: Target) -> None:
        """Later rounds begin with the target that served."""
        if self.served is not target:
            self.served = target
            self._candidates = [
                Candidate(target, {}),
                *(c for c in self._candidates if c.target is not target),
            ]

    async def _dispatched(self, target: Target, outgoing: Outgoing) -> Incoming:
        """The target's answer, which holds one of its places where those are limited. Raises Unavailable where none was free in time."""
        outgoing.until, outgoing.model, outgoing.written = self.deadline, target.model, self._leaves
        places = await self._placed(target) if target.concurrent or self.among_many else None
        try:
            self.attempts, self.tried = self.attempts + 1, target
            incoming = await target.upstream.send(outgoing)
        except BaseException:
            if places is not None:
                places.close()
            raise
        if places is not None:
            incoming.body = Held(incoming.body, places.close)
        if incoming.is_events:
            incoming.body = Paced(incoming.body)
        return incoming

    @property
    def among_many(self) -> bool:
        """Whether the caller's account is one of many that anybody may bring."""
        return self.account not in ("", LOCAL)

    async def _placed(self, target: Target) -> ExitStack:
        """What gives back the places that the call has, of its account and at its target. Raises Unavailable."""
        left, choice = self.deadline - asyncio.get_running_loop().time(), self.choice
        with ExitStack() as places:
            if self.among_many:
                patience = min(target.settings.timeouts.connect, left)
                await choice.shares.take(
                    target.provider, self.account, target.settings.max_connections, patience
                )
                places.callback(choice.shares.give, target.provider, self.account)
            if target.concurrent:
                await choice.slots.take(target, min(choice.rules.queue_seconds, left))
                places.callback(choice.slots.give, target.label)
            return places.pop_all()

    def _leaves(self) -> None:
        """A request has begun to leave: from now on it costs something, whoever waits for its answer."""
        self._written = True

    def noted(self, error: GatewayError, target: Target) -> None:
        """Tells the operator of a call that failed. What is the request's own fault, or a full pool's, is no warning."""
        own = isinstance(error, UpstreamRefused | BadRequest | Unavailable) and not blames(error)
        level = logging.INFO if own else logging.WARNING
        log.log(
            level,
            "upstream call failed: %s at %s, attempt %d%s: %s",
            target.label,
            target.address,
            self.attempts,
            f" of {self.request}" if self.request else "",
            reason(error),
        )

    async def broke(self, error: GatewayError) -> None:
        """An answer that had begun broke off: that too speaks against its target."""
        if self.served is None:
            return
        self.noted(error, self.served)
        if blames(error):
            await self.choice.cooldowns.failed(self.served.label, None)

    async def _passed(
        self, target: Target, make: Callable[[Target, Pairs], Awaitable[Outgoing]]
    ) -> Passed:
        headers = upstream_headers(self.client, self.credential(target), None)
        incoming = await self._dispatched(target, await make(target, headers))
        try:
            if not 200 <= incoming.status < 300:
                raise await self._refusal(target, incoming)
            passed = Passed(target, incoming)
            if incoming.is_events:
                await self._begun(passed)
            return passed
        except BaseException:
            await incoming.close()
            raise

    async def _begun(self, passed: Passed) -> None:
        """Waits for the first event with data. One that reports an error counts as a failure while there are tries left."""
        passed.more = Events(passed.incoming, passed.framer)
        async for batch in passed.more:
            passed.first += batch
            if found := next((e for e in batch if e.data), None):
                if (
                    self.failures < self.retries
                    and found.data
                    and (error := await weighed(found.data, _error, found.data))
                ):
                    failure = UpstreamRefused(
                        status_of(error),
                        self.scrubbed(found.data, passed.target),
                        client_headers(passed.incoming.headers),
                    )
                    if worth_retrying(failure):
                        raise failure
                return

    def scrubbed(self, data: bytes, target: Target | None = None) -> bytes:
        """An upstream's text without the key it was called with."""
        target = target or self.served
        key = target.settings.api_key if target else None
        secret = key.get_secret_value().encode() if key is not None else b""
        return data.replace(secret, b"[key]") if len(secret) >= SHORTEST_SECRET else data

    def _loggable(self, data: bytes) -> str:
        """The beginning of an upstream's text on one line, without the key that the client itself brought."""
        key = (self.authorization or b"").rpartition(b" ")[2]
        data = data.replace(key, b"[key]") if key else data
        return " ".join(data[: 4 * LOGGED].decode("utf-8", "replace").split())[:LOGGED]

    async def _sent(self, target: Target, outgoing: Outgoing, another: bool) -> Reply:
        client = rekeyed(self.client, outgoing.body or b"") if another else self.client
        outgoing.headers = upstream_headers(client, self.credential(target))
        incoming = await self._dispatched(target, outgoing)
        try:
            if not 200 <= incoming.status < 300:
                raise await self._refusal(target, incoming)
            reply = Reply(target, self.attempts, client_headers(incoming.headers), incoming)
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
        """Waits for the first event with data: until then another target may still be tried."""
        async for batch in Events(reply.incoming, reply.framer):
            if (first := next((e for e in batch if e.data), None)) is None:
                continue
            if first.data == DONE:
                break
            if (error := (await chunk_of(first)).error) is not None:
                raise UpstreamRefused(
                    status_of(error),
                    self.scrubbed(encode({"error": error}), reply.target),
                    reply.headers,
                )
            reply.events = batch
            return
        raise StreamIncomplete("The upstream's stream ended before its first event. Try again.")

    async def _whole(self, reply: Reply) -> None:
        data = await reply.incoming.read(ANSWER_BYTES)
        if len(data) >= ANSWER_BYTES:
            raise UpstreamUnreachable(
                f"The upstream's answer is longer than {ANSWER_BYTES} bytes. Try again, or ask for less."
            )
        try:
            body, found = await weighed(data, completion, data)
            if body.get("error"):
                raise UpstreamRefused(
                    status_of(body["error"]), self.scrubbed(data, reply.target), reply.headers
                )
            reply.chunk = found
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Malformed) as e:
            raise UpstreamUnreachable(
                f"The upstream answered 200 with something that is no chat completion ({type(e).__name__}). Try again, or check its base_url."
            ) from e
        reply.plain = data

    async def _refusal(self, target: Target, incoming: Incoming) -> GatewayError:
        data = self.scrubbed(await incoming.read(ERROR_BYTES), target)
        headers = client_headers(incoming.headers)
        if incoming.status == 401 and self.managed:
            keyless = self.credential(target) is None
            fault = (
                "has no api_key here, and wants one"
                if keyless
                else "refused the gateway's own credentials"
            )
            return UpstreamAuthError(
                f"The provider {target.provider!r} {fault}. The gateway's operator must {'set' if keyless else 'check'} providers.{target.provider}.api_key."
            )
        if incoming.status < 200 or incoming.status > 599:
            return UpstreamUnreachable(
                f"The provider {target.provider!r} answered {incoming.status}, which nobody asked for. Check its base_url."
            )
        if 300 <= incoming.status < 400:
            return UpstreamUnreachable(
                f"The provider {target.provider!r} answered with a redirect ({incoming.status}), which is not followed. Check its base_url.",
                headers=[(b"x-should-retry", b"false")],
            )
        content, told = error_json(incoming.status, data, headers)
        said = "" if content is data else self._loggable(data)
        return UpstreamRefused(
            incoming.status, content, told, incoming.header(b"date") or b"", said
        )


def _error(data: bytes) -> Any:
    """The error that a stream's first event reports, if any."""
    return error_of(data) if b'"error"' in data and is_readable(data) else None


def completion(data: bytes) -> tuple[Json, Chunk | None]:
    """Read a whole answer: its object, and the chunk it is unless it reports an error.

    Raises Malformed, DecodeError, UnicodeDecodeError, RecursionError.
    """
    if not is_readable(data):
        raise Malformed(f"more than {MOST_VALUES} values")
    body = decode(data)
    if not isinstance(body, dict):
        raise Malformed("not an object")
    return body, None if body.get("error") else chunk(lift(body), b"")


class Events:
    """The events of a stream, those together that arrived together. Raises GatewayError from the body.

    What follows the last blank line when the stream ends is one event more; when it breaks, it is nothing. An object, not a
    generator: a stream pays for it with every event, and who leaves it has nothing to close."""

    __slots__ = ("_body", "_framer")

    def __init__(self, incoming: Incoming, framer: Framer) -> None:
        self._body, self._framer = incoming.body, framer

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> list[Event]:
        try:
            while True:
                if events := fed(self._framer, await self._body.__anext__()):
                    return events
        except StopAsyncIteration:
            if last := fed(self._framer, None):
                return last
            raise


def fed(framer: Framer, data: bytes | None) -> list[Event]:
    """Frame the next bytes, None at their end. Raises StreamIncomplete for an event without end."""
    try:
        if data is not None:
            return framer.feed(data)
        return [last] if (last := framer.close()) else []
    except EventTooLarge as e:
        raise StreamIncomplete(f"The stream broke off: the upstream sent {e}. Try again.") from e


async def chunk_of(event: Event) -> Chunk:
    """Read the event's data as a chunk, off the event loop where it is long.

    Raises StreamIncomplete for what is none.
    """
    data = event.data or b""
    try:
        return read(data) if is_light(data) else await asyncio.to_thread(_read_heavy, data)
    except Malformed as e:
        raise StreamIncomplete(f"The stream broke off: {e}. Try again.") from e


def _read_heavy(data: bytes) -> Chunk:
    if not is_readable(data):
        raise Malformed(f"the upstream sent an event of more than {MOST_VALUES} values")
    return read(data)
