"""One round's upstream call: targets in order, retries before the first event.

If this raises, nothing of an answer was used, so the caller may compose the request again.
`replies` has the kinds of answers, and reads them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec

from gateway.apis.base import ApiFormat, Composed, SentPieces
from gateway.apis.chat.chat_format import CHAT
from gateway.errors import (
    BadRequest,
    GatewayError,
    StreamIncomplete,
    Unavailable,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.http.pacing import PacedStream
from gateway.routing.caller import Caller
from gateway.routing.concurrency import SlotBody
from gateway.routing.failures import (
    code_of,
    forbids_retry,
    is_target_failure,
    reason,
    retry_delay,
    worth_retrying,
)
from gateway.routing.replies import (
    CompletionReply,
    RawReply,
    begin_events,
    read_completion,
    read_plain,
    read_refusal,
)
from gateway.routing.router import Route, Target
from gateway.routing.selector import Attempt, Candidate, TargetSelector
from gateway.upstream.base import Carriage, UpstreamRequest, UpstreamResponse
from gateway.usage.meter import Meter
from gateway.wire.chat import (
    Json,
)
from gateway.wire.headers import (
    Pairs,
    bridge_headers,
    client_headers,
    header_value,
    upstream_headers,
    with_body_idempotency_key,
)
from gateway.wire.sse import SseFramer

log = logging.getLogger("mnemogate")
# Seconds; a client told to wait longer is told so at once.
LONGEST_PAUSE = 10.0
Answered = TypeVar("Answered", CompletionReply, RawReply)


class Dispatcher(msgspec.Struct):
    """Sends one client request's rounds.

    caller: whom they are made for. conversation: what stays the same in it, to stay with its
    target. retries: tries after the first, over all targets and rounds. deadline: the loop's time
    by which all of it ends. request: its name, for the log. wire: the format of its rounds.
    writes_off_loop: its requests are long, and written whole.
    query: of its URL, which its rounds have too. carriage: of the newest
    round, see `UpstreamResponse`. tools_run: the memory tools between its rounds, once they have
    ended. dropped: members of the request that its agent does not let it set.
    """

    route: Route
    choice: TargetSelector
    caller: Caller = msgspec.field(default_factory=Caller)
    conversation: bytes = b""
    retries: int = 0
    deadline: float = float("inf")
    meter: Meter = msgspec.field(default_factory=Meter)
    attempts: int = 0
    failures: int = 0
    served: Target | None = None
    last_target: Target | None = None
    waited: float = 0.0
    request: str = ""
    wire: ApiFormat = CHAT
    writes_off_loop: bool = False
    query: str = ""
    carriage: Carriage | None = None
    tools_run: Sequence[Mapping[str, Any]] = ()
    dropped: Sequence[str] = ()
    _written: bool = False
    _candidates: list[Candidate] = msgspec.field(default_factory=list)

    async def first_target(self) -> Target:
        """Return the target that is tried first. Raises Unavailable."""
        if not self._candidates:
            self._candidates = await self.choice.candidates(
                self.route, self.caller.account, self.conversation
            )
        return self._candidates[0].target

    async def complete(
        self,
        compose: Callable[[Target], Composed],
        *,
        another: bool = False,
        frozen: bool = False,
        own: bool = False,
    ) -> CompletionReply:
        """Try targets until one answers with a completion.

        compose: the request for a target. another: not the body that the client's Idempotency-Key
        stands for, so it goes under a key of its own: under the same, an upstream would refuse it
        or answer as before. frozen, own: see `UpstreamRequest`. Raises GatewayError: the last one.
        """
        sent_pieces: SentPieces = ()

        def build_request(target: Target) -> UpstreamRequest:
            nonlocal sent_pieces
            request, sent_pieces = self.wire.encode(
                compose(target), target, frozen=frozen, long=self.writes_off_loop
            )
            if self.query:
                request.add_query(self.query)
            request.own = own
            return request

        def send(target: Target) -> Coroutine[Any, Any, CompletionReply]:
            if self.writes_off_loop:
                return send_long(target)
            return self._send(target, build_request(target), another)

        async def send_long(target: Target) -> CompletionReply:
            # A long request takes longer to write than others may wait.
            request = await asyncio.to_thread(build_request, target)
            return await self._send(target, request, another)

        reply = await self._with_retries(send)
        reply.messages = sent_pieces
        self.meter.record_call(reply.target, reply.framer, len(reply.plain or b""))
        return reply

    async def complete_choice(self, body: Json) -> Json:
        """Return the choice of a completion that no client sees, with the assistant's message.

        Its usage is metered. Raises GatewayError, and LookupError, TypeError or DecodeError for an
        answer without such a message.
        """
        reply = await self.complete(lambda _: self.wire.own_request(body, None), own=True)
        await reply.incoming.close()
        completion = await read_plain(reply)
        self.meter.record_usage(completion.get("usage"))
        choice: Json = completion["choices"][0]
        if not isinstance(choice["message"], dict):
            raise TypeError("the completion's message is no object")
        return choice

    async def passthrough(
        self, make: Callable[[Target, Pairs], Awaitable[UpstreamRequest]]
    ) -> RawReply:
        """Try targets until one answers, for an answer that is passed on as it is.

        make: builds the request from a target and its headers (without a content type).
        """
        raw_reply = await self._with_retries(lambda target: self._read_raw_reply(target, make))
        self.meter.record_call(raw_reply.target, raw_reply.framer)
        return raw_reply

    @property
    def alias(self) -> str | None:
        """The name to show as `model`, where the one that serves has another."""
        target = self.served or (
            self._candidates[0].target if self._candidates else self.route.tiers[0][0]
        )
        if target.model != self.route.name:
            return self.route.name
        return None

    def target_headers(self, started_at: float) -> Pairs:
        """Return the headers that name the target, the attempts and the gateway's own time.

        started_at: by perf_counter; time spent waiting for the upstream is left out.
        """
        if target := self.served or self.last_target:
            target_header = [(b"x-mnemogate-upstream", header_value(target.label))]
        else:
            target_header = []
        overhead = max(0.0, time.perf_counter() - started_at - self.waited) * 1000
        return [
            *target_header,
            *(bridge_headers(self.carriage, self.dropped) if self.carriage or self.dropped else ()),
            (b"x-mnemogate-attempts", b"%d" % self.attempts),
            (b"x-mnemogate-overhead-ms", b"%.2f" % overhead),
        ]

    async def _with_retries(self, send: Callable[[Target], Awaitable[Answered]]) -> Answered:
        """Send until a target answers: to another target first, else to the same after a pause."""
        if not self._candidates:
            await self.first_target()
        loop = asyncio.get_running_loop()
        # The loop's time at which what was tried may be tried again.
        ready: dict[str, float] = {}
        while True:
            candidates = self._candidates
            is_only = len(candidates) == 1
            if is_only:
                candidate = candidates[0]
            else:
                candidate = self._next_candidate(ready)
            label = candidate.target.label
            if (seconds_left := ready.get(label, 0.0) - loop.time()) > 0:
                self.waited += seconds_left
                await asyncio.sleep(seconds_left)
            alone = is_only or all(
                c.target.label in ready for c in candidates if c is not candidate
            )
            trial = await self.choice.start_attempt(candidate, self.caller.account, alone=alone)
            if trial is None:
                ready[label] = loop.time()
                continue
            try:
                answer = await self._attempt(trial, send)
            except GatewayError as e:
                ready[label] = self._next_try_at(e)
                if self._gives_up(ready):
                    raise
            else:
                self._prefer_target(candidate.target)
                return answer

    def _next_candidate(self, ready: dict[str, float]) -> Candidate:
        """Choose the target to try next: its places may be taken since it was listed."""
        return min(
            self._candidates,
            key=lambda c: (ready.get(c.target.label, 0.0), self.choice.penalty(c)),
        )

    def _gives_up(self, ready: dict[str, float]) -> bool:
        """Tell whether no try is left, or none soon enough."""
        soonest = min(ready.get(c.target.label, 0.0) for c in self._candidates)
        latest_try = min(asyncio.get_running_loop().time() + LONGEST_PAUSE, self.deadline)
        return self.failures > self.retries or soonest > latest_try

    async def _attempt(
        self, trial: Attempt, send: Callable[[Target], Awaitable[Answered]]
    ) -> Answered:
        """Make one attempt, and report to the selector how its target did.

        A caller who leaves says nothing about the target, but pays for a request that was sent.
        """
        started_at = time.perf_counter()
        target = trial.candidate.target
        self._written = False
        try:
            answer = await send(target)
        except GatewayError as e:
            if self._written and isinstance(e, UpstreamTimeout | StreamIncomplete):
                self.meter.record_call(target, SseFramer())
            self.log_failure(e, target)
            await trial.fail(e)
            raise
        except BaseException:
            if self._written:
                self.meter.record_call(target, SseFramer())
            await trial.abandon()
            raise
        finally:
            self.waited += time.perf_counter() - started_at
        try:
            await trial.succeed()
        except BaseException:
            # Nobody else knows of it yet.
            await answer.incoming.close()
            raise
        return answer

    def _next_try_at(self, error: GatewayError) -> float:
        """When the target that failed so may be tried again, by the loop's time.

        Raises the error where nobody else is to be asked either.
        """
        elsewhere = (
            isinstance(error, UpstreamRefused)
            and not forbids_retry(error)
            and code_of(error) in self.choice.rules.failover_codes
        )
        if not worth_retrying(error) and not elsewhere:
            raise error
        self.failures += 1
        if elsewhere:
            return math.inf
        return asyncio.get_running_loop().time() + retry_delay(error, self.failures)

    def _prefer_target(self, target: Target) -> None:
        """Later rounds begin with the target that served."""
        if self.served is target:
            return
        self.served = target
        if len(self._candidates) > 1 or self._candidates[0].rests:
            self._candidates = [
                Candidate(target, {}),
                *(c for c in self._candidates if c.target is not target),
            ]

    async def _dispatch(self, target: Target, outgoing: UpstreamRequest) -> UpstreamResponse:
        """Send a request to a target, holding a slot where its concurrency is limited.

        Raises Unavailable if no slot is free in time.
        """
        outgoing.until = self.deadline
        outgoing.model = target.model
        outgoing.on_written = self._leaves
        outgoing.tenant = self.caller.tenant
        needs_slot = target.concurrent or self.caller.shares
        places = None
        if needs_slot:
            places = await self._take_slots(target)
        try:
            self.attempts = self.attempts + 1
            self.last_target = target
            incoming = await target.upstream.send(outgoing)
        except BaseException:
            if places is not None:
                places.close()
            raise
        self.carriage = incoming.carriage
        if places is not None:
            incoming.body = SlotBody(incoming.body, places.close)
        if incoming.is_events:
            incoming.body = PacedStream(incoming.body)
        return incoming

    @property
    def among_many(self) -> bool:
        """Whether the caller's account is one of many that anybody may bring."""
        return self.caller.among_many

    async def _take_slots(self, target: Target) -> ExitStack:
        """Take the slots a call needs, of its tenant and of its target.

        Returns what gives them back. Raises Unavailable.
        """
        loop = asyncio.get_running_loop()
        choice = self.choice
        with ExitStack() as places:
            if self.caller.shares:
                seconds = target.settings.timeouts.connect
                capacity = target.settings.max_connections
                await self._take_share(places, target.provider, capacity, loop.time() + seconds)
            if target.concurrent:
                until = min(loop.time() + choice.rules.queue_seconds, self.deadline)
                if self.caller.shares:
                    capacity = choice.slots.limit_of(target)
                    places.callback(choice.shares.drop_idle, target.label)
                    await self._take_share(places, target.label, capacity, until)
                await choice.slots.take(target, until - loop.time())
                places.callback(choice.slots.give, target.label)
            return places.pop_all()

    async def _take_share(self, places: ExitStack, name: str, capacity: int, until: float) -> None:
        """Take one of the tenant's share of `capacity` slots, by the loop's time `until`."""
        shares = self.choice.shares
        tenant = self.caller.tenant
        patience = min(until, self.deadline) - asyncio.get_running_loop().time()
        await shares.take(name, tenant, capacity, patience)
        places.callback(shares.give, name, tenant)

    def _leaves(self) -> None:
        """Note that the request is being sent: from now on it may cost something."""
        self._written = True

    def log_failure(self, error: GatewayError, target: Target) -> None:
        """Tell the operator of a call that failed.

        What is the request's own fault, or a full pool's, is no warning.
        """
        is_request_fault = isinstance(
            error, UpstreamRefused | BadRequest | Unavailable
        ) and not is_target_failure(error)
        if is_request_fault:
            level = logging.INFO
        else:
            level = logging.WARNING
        log.log(
            level,
            "upstream call failed: %s at %s, attempt %d%s: %s",
            target.label,
            target.address,
            self.attempts,
            f" of {self.request}" if self.request else "",
            reason(error),
        )

    async def report_broken_stream(self, error: GatewayError) -> None:
        """An answer that had begun broke off: that too speaks against its target."""
        if self.served is None:
            return
        self.log_failure(error, self.served)
        if is_target_failure(error):
            await self.choice.cooldowns.record_failure(self.served.label, None)

    async def _read_raw_reply(
        self, target: Target, make: Callable[[Target, Pairs], Awaitable[UpstreamRequest]]
    ) -> RawReply:
        headers = upstream_headers(self.caller.headers, self.caller.credential(target), None)
        incoming = await self._dispatch(target, await make(target, headers))
        try:
            if not 200 <= incoming.status < 300:
                raise await read_refusal(self.caller, target, incoming)
            raw_reply = RawReply(target, incoming)
            if incoming.is_events:
                # an error counts as a failure while there are tries left
                await begin_events(raw_reply, refuse_errors=self.failures < self.retries)
            return raw_reply
        except BaseException:
            await incoming.close()
            raise

    async def _send(
        self, target: Target, outgoing: UpstreamRequest, another: bool
    ) -> CompletionReply:
        client = self.caller.headers
        if another:
            client = with_body_idempotency_key(client, outgoing.body or b"")
        outgoing.headers = upstream_headers(client, self.caller.credential(target))
        incoming = await self._dispatch(target, outgoing)
        try:
            if not 200 <= incoming.status < 300:
                raise await read_refusal(self.caller, target, incoming)
            reply = CompletionReply(
                target, self.attempts, client_headers(incoming.headers), incoming
            )
            await read_completion(reply, self.wire)
            return reply
        except BaseException:
            await incoming.close()
            raise
