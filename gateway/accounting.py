"""Accounting of one request: reserve quota, settle actual usage, write a usage record.

The record is only queued, so that no response waits for a store. No record is written for a request
whose own credentials its upstream refused, and no user's name for one with memory off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgspec

from gateway.errors import Forbidden, GatewayError, UpstreamRefused
from gateway.http.access_log import LEFT, current_line
from gateway.http.asgi import ClientLeft, run_shielded
from gateway.http.response import Prepared, ResponseProducer
from gateway.limits.limiter import Admission, KeyQuota, Limiter
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.failures import code_of
from gateway.routing.router import Route
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.traces import TracedRequest, TracedRound, TurnTraces
from gateway.usage.log import UsageLog, UsageRecord
from gateway.usage.meter import CountedIn, UsageTotals
from gateway.usage.pricing import TokenUsage, cost_of

# Tokens reserved for an answer if the request sets no maximum.
USUAL_OUTPUT = 1024
# Seconds.
LEASE_MARGIN = 60.0


class RequestAccount(msgspec.Struct):
    """The accounting of one request: admission, then the callbacks of its response.

    record: what is known of the request so far. started_at: by perf_counter. output: most tokens
    that the answer may have; None if unknown. background: it goes on after the request, so what it
    used is not known at the end: then what was reserved counts.
    """

    forward: Dispatcher
    record: UsageRecord
    started_at: float
    limits: Limiter
    usage: UsageLog
    allowance: KeyQuota
    metrics: Metrics
    traces: TurnTraces | None = None
    output: int | None = None
    background: bool = False
    # None where nothing is limited.
    _ticket: Admission | None = None
    _status: int = 0

    async def begin(self, make: Callable[[], Awaitable[ResponseProducer]]) -> Prepared:
        """Admit the request, then start its work.

        The headers say what is left of the key's own limits: a client can act upon these, but not
        upon the limits of an account that many share.

        Raises RateLimited, BudgetSpent, Forbidden, and what `make` raises. The request is then
        settled already, and no callback follows.
        """
        try:
            quota = self.allowance
            if quota.rpm or quota.tpm or quota.concurrent or quota.usd:
                await self._admit()
            producer = await make()
            return producer, self._ticket.headers() if self._ticket is not None else []
        except BaseException as e:
            await run_shielded(self._close("", e))
            raise

    async def _admit(self) -> None:
        if self.allowance.usd:
            self.forward.route = _priced_route(self.forward.route, self.allowance.key)
        usage, usd = self._expect()
        lease = self.forward.deadline - asyncio.get_running_loop().time() + LEASE_MARGIN
        self._ticket = await self.limits.admit(
            self.allowance, usage.input + usage.output, usd, lease
        )
        if (hold := self._ticket.hold) is not None:
            self.forward.meter.counted_in = CountedIn(hold.period, hold.window_second, hold.shared)

    def _expect(self) -> tuple[TokenUsage, float]:
        """Return what the request may use, and what that may cost in USD."""
        guess = self.forward.meter.guess
        if guess is None:
            return TokenUsage(), 0.0
        if self.output is None:
            output = USUAL_OUTPUT
        else:
            output = self.output
        usage = TokenUsage(input=guess, output=output)
        costs = (cost_of(usage, t.price) or 0.0 for t in self.forward.route.targets)
        return usage, max(costs, default=0.0)

    def on_first_byte(self, status: int, *, committed: bool) -> None:
        """Note the status, and the time to the first byte unless only a comment was sent."""
        self._status = status
        if not committed:
            self.record.first_token_ms = (time.perf_counter() - self.started_at) * 1000

    def on_finish(
        self, memory: str, error: BaseException | None
    ) -> Coroutine[Any, Any, None] | None:
        """Write the usage record; return the settling of the quota, if there is one."""
        if self._ticket is not None:
            return self._close(memory, error)
        if self.background:
            bill = self._bill()
        else:
            bill = self.forward.meter.bill()
        self._record(bill, memory, error)
        return None

    async def _close(self, memory: str, error: BaseException | None) -> None:
        bill = self._bill()
        if self._ticket is not None:
            await self.limits.settle(
                self._ticket, bill.tokens.input + bill.tokens.output, bill.known_cost
            )
        self._record(bill, memory, error)

    def _bill(self) -> UsageTotals:
        """Return what the request used; what goes on after it uses all that was reserved."""
        bill = self.forward.meter.bill()
        if not (self.background and bill.estimated):
            return bill
        expected_tokens, usd = self._expect()
        before = self.forward.meter.bill_hidden()
        bill.tokens = msgspec.structs.replace(
            bill.tokens,
            input=max(bill.tokens.input, before.tokens.input + expected_tokens.input),
            output=max(bill.tokens.output, before.tokens.output + expected_tokens.output),
        )
        bill.known_cost = max(bill.known_cost, before.known_cost + usd)
        if bill.cost is not None:
            bill.cost = bill.known_cost
        return bill

    def _record(self, bill: UsageTotals, memory: str, error: BaseException | None) -> None:
        record = bill_record(self.record, self.forward, bill, self.started_at)
        record.status = self._status or 200
        record.code = None
        if error is not None:
            record.status, record.code = _outcome(error)
        line = current_line()
        line.take_usage(record, memory)
        self.metrics.observe_request(record, memory)
        if memory == "degraded":
            self.metrics.degraded.note(record, line.why_degraded)
        if self.traces is not None:
            self.traces.record(traced_request(record, self.forward, memory))
        if isinstance(error, GatewayError):
            line.note_error(error)
        if not (
            self.forward.caller.account
            and isinstance(error, UpstreamRefused)
            and error.status in (401, 403)
        ):
            self.usage.add(record)


def bill_record(
    record: UsageRecord, forward: Dispatcher, bill: UsageTotals, started_at: float
) -> UsageRecord:
    """Complete a record with the results of the request's upstream calls.

    These are the target, the usage, its cost, and the time since `started_at` (perf_counter).
    """
    last_target = forward.served or forward.last_target
    tokens = bill.tokens
    record.latency_ms = (time.perf_counter() - started_at) * 1000
    if last_target is not None:
        record.target = last_target.label
    else:
        record.target = ""
    record.attempts = forward.attempts
    record.rounds = bill.rounds
    record.cost = bill.cost
    record.estimated = bill.estimated
    record.input = tokens.input
    record.cached_input = tokens.cached_input
    record.cache_write = tokens.cache_write
    record.output = tokens.output
    record.reasoning = tokens.reasoning
    record.hidden_input = bill.hidden.input
    record.hidden_output = bill.hidden.output
    return record


def traced_request(record: UsageRecord, forward: Dispatcher, memory: str) -> TracedRequest:
    """Return what traces tell of a request that ends now."""
    meter = forward.meter
    began_at = int(record.created_at * 1e9)
    rounds = []
    for call in meter.calls:
        tokens, _ = meter.count(call)
        rounds.append(TracedRound(call.target.label, call.sent_at, tokens.input, tokens.output))
    parent = next((v for k, v in forward.caller.headers if k == b"traceparent"), b"")
    return TracedRequest(
        record.request_id,
        record.path,
        record.model,
        began_at,
        began_at + int(record.latency_ms * 1e6),
        record.status,
        record.code,
        memory,
        record.first_token_ms,
        rounds,
        forward.tools_run,
        parent.decode("latin-1"),
    )


def _outcome(error: BaseException) -> tuple[int, str | None]:
    """Return the status and the code of a request that ended early."""
    if isinstance(error, GatewayError):
        return error.status, error.code or code_of(error)
    if isinstance(error, asyncio.CancelledError | ClientLeft):
        return LEFT, "client_left"
    return 500, "internal_error"


def _priced_route(route: Route, key: str) -> Route:
    """Return the route without the targets whose price is unknown.

    A cost that cannot be counted cannot be kept within a budget. Raises Forbidden if no target is
    left.
    """
    tiers = tuple(
        priced_targets
        for tier in route.tiers
        if (priced_targets := tuple(t for t in tier if t.price is not None or not t.model))
    )
    if not tiers:
        raise Forbidden(
            f"The key {key!r} has a budget and the price of {route.name!r} is unknown, so its "
            "cost cannot be counted. The operator can set "
            f'`price` in [models."{route.name}"].',
            code="price_unknown",
            param="model",
        )
    return replace(route, tiers=tiers)
