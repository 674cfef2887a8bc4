"""A request's books: admitted under its key's limits before it begins, settled on what it really used when it is over, written down.

The record is only queued, so that no store holds an answer up. Nothing is written of a request whose own credentials its upstream
refused, and no user's name of one with memory off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from gateway.accesslog import LEFT, current
from gateway.answer import ClientLeft, Head, Prepare, Work, shielded
from gateway.errors import Forbidden, GatewayError, UpstreamRefused
from gateway.forward import Forwarder
from gateway.headers import Pairs
from gateway.limits import Allowance, Limits, Ticket
from gateway.metering import Bill
from gateway.prices import Tokens, cost_of
from gateway.refusals import code_of
from gateway.routing import Route
from gateway.usage import Record, UsageLog

USUAL_OUTPUT = 1024  # tokens reserved for an answer whose request names no maximum
LEASE_MARGIN = 60.0  # seconds


@dataclass(slots=True)
class Booked:
    """A work with its books. record: what is known of the request so far. output: tokens its answer may have, None where nothing says so.

    make: what begins the work."""

    forward: Forwarder
    record: Record
    started: float
    limits: Limits
    usage: UsageLog
    allowance: Allowance
    make: Prepare
    output: int | None = None
    stream: bool = False
    _ticket: Ticket | None = None
    _work: Work | None = None
    _status: int = 0

    async def prepare(self) -> Booked:
        """Raises RateLimited, Forbidden, and what the work's own beginning raises."""
        try:
            if self.allowance.limited:
                await self._admitted()
            self._work = await self.make()
            self.stream = self._work.stream
        except BaseException as e:
            await shielded(self._closed(e))
            raise
        return self

    async def _admitted(self) -> None:
        guess = self.forward.meter.guess or 0
        output = (
            0
            if self.forward.meter.guess is None
            else USUAL_OUTPUT
            if self.output is None
            else self.output
        )
        if self.allowance.usd:
            self.forward.route = _priced(self.forward.route, self.allowance.key)
        most = max(
            (
                cost_of(Tokens(input=guess, output=output), t.price) or 0.0
                for t in self.forward.route.targets
            ),
            default=0.0,
        )
        lease = self.forward.deadline - asyncio.get_running_loop().time() + LEASE_MARGIN
        self._ticket = await self.limits.admit(self.allowance, guess + output, most, lease)

    @property
    def work(self) -> Work:
        assert self._work is not None  # noqa: S101 - prepared
        return self._work

    @property
    def memory(self) -> str:
        return self.work.memory

    def parts(self) -> AsyncGenerator[bytes, None]:
        return self.work.parts()

    def head(self, *, committed: bool) -> Head:
        head = self.work.head(committed=committed)
        self._status = head.status
        if not committed:
            self.record.first_token_ms = (time.perf_counter() - self.started) * 1000
        mine = {k for k, _ in self._standing()}
        return (
            replace(head, headers=[(k, v) for k, v in head.headers if k not in mine])
            if mine
            else head
        )

    def named(self) -> Pairs:
        return [*self.work.named(), *self._standing()]

    def _standing(self) -> Pairs:
        """What is left of the key's own limits: its client can act upon that, not upon those of an account that many share."""
        return self._ticket.headers() if self._ticket is not None else []

    def told(self, error: GatewayError) -> bytes:
        return self.work.told(error)

    def comment(self) -> bytes:
        return self.work.comment()

    def over(self, error: BaseException | None) -> Coroutine[Any, Any, None] | None:
        rest = self.work.over(error)
        if rest is not None or self._ticket is not None:
            return self._settled(rest, error)
        self._noted(self.forward.meter.bill(), error)
        return None

    async def _settled(
        self, rest: Coroutine[Any, Any, None] | None, error: BaseException | None
    ) -> None:
        try:
            if rest is not None:
                await rest
        finally:
            await self._closed(error)

    async def _closed(self, error: BaseException | None) -> None:
        bill = self.forward.meter.bill()
        if self._ticket is not None:
            await self.limits.settle(
                self._ticket, bill.tokens.input + bill.tokens.output, bill.known
            )
        self._noted(bill, error)

    def _noted(self, bill: Bill, error: BaseException | None) -> None:
        record = billed(self.record, self.forward, bill, self.started)
        record.status, record.code = _outcome(error, self._status)
        current().booked(record, self._work.memory if self._work is not None else "")
        if isinstance(error, GatewayError):
            current().refused(error)
        if not (
            self.forward.account
            and isinstance(error, UpstreamRefused)
            and error.status in (401, 403)
        ):
            self.usage.add(record)


def billed(record: Record, forward: Forwarder, bill: Bill, started: float) -> Record:
    """The record with what its calls tell: who served, what was used, what that costs, how long it took since `started` (perf_counter)."""
    last, tokens = forward.served or forward.tried, bill.tokens
    record.latency_ms = (time.perf_counter() - started) * 1000
    record.target = last.label if last is not None else ""
    record.attempts, record.rounds, record.cost, record.estimated = (
        forward.attempts,
        bill.rounds,
        bill.cost,
        bill.estimated,
    )
    record.input, record.cached_input, record.cache_write = (
        tokens.input,
        tokens.cached_input,
        tokens.cache_write,
    )
    record.output, record.reasoning = tokens.output, tokens.reasoning
    record.hidden_input, record.hidden_output = bill.hidden.input, bill.hidden.output
    return record


def _outcome(error: BaseException | None, status: int) -> tuple[int, str | None]:
    if isinstance(error, GatewayError):
        return error.status, error.code or code_of(error)
    if isinstance(error, asyncio.CancelledError | ClientLeft):
        return LEFT, "client_left"
    return (status or 200, None) if error is None else (500, "internal_error")


def _priced(route: Route, key: str) -> Route:
    """The route without the targets whose price is unknown: what cannot be counted cannot be kept within a budget."""
    tiers = tuple(
        known
        for tier in route.tiers
        if (known := tuple(t for t in tier if t.price is not None or not t.model))
    )
    if not tiers:
        raise Forbidden(
            f"The key {key!r} has a budget and the price of {route.name!r} is unknown, so its cost cannot be counted. The operator can set "
            f'`price` in [models."{route.name}"].',
            code="price_unknown",
            param="model",
        )
    return replace(route, tiers=tiers)
