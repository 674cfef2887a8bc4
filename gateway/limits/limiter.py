"""Limits and budgets of keys: reserve estimates before a request, settle actual use after it.

A reservation is all or nothing. An estimate larger than a limit is cut to it: such a request runs
when nothing else counts. Actual use is counted in full, so that a budget is exceeded at most by
what its last requests used beyond their estimates. A failed request counts as a request; its tokens
and money are given back.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from gateway.errors import BudgetSpent, RateLimited
from gateway.limits.counters import Counters, Reservation, ReservationRequest, ReservationResult

NANO = 1_000_000_000
# Of rpm and tpm.
WINDOW_SECONDS = 60.0
Ledger = Callable[[str, float], Awaitable[float]]


class KeyQuota(msgspec.Struct, frozen=True):
    """What one key may use.

    key: its name, unique in a gateway. usd: per `period`, a calendar period in UTC. 0 means no
    limit.
    """

    key: str
    rpm: int = 0
    tpm: int = 0
    concurrent: int = 0
    usd: float = 0
    # Hour | day | week | month.
    period: str = "month"

    @property
    def limited(self) -> bool:
        return bool(self.rpm or self.tpm or self.concurrent or self.usd)


@dataclass(slots=True)
class Admission:
    """An admitted request and what it holds until it is settled."""

    allowance: KeyQuota
    standing: ReservationResult | None = None
    hold: Reservation | None = None

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return `x-ratelimit-*` headers of the limits that are set, as of the admission."""
        if self.standing:
            return _headers(self.allowance, self.standing)
        return []


class UsagePeriod(NamedTuple):
    """One calendar period. begins, ends: Unix times."""

    name: str
    begins: float
    ends: float


class Limiter:
    """Admits and settles requests.

    ledger: returns the USD that a key (by name) spent since a Unix time, according to the usage
    table. Called when a period has no counter yet: in a new process, or after the store was
    emptied. Without it, and without `seed`, a period starts at 0. clock: Unix time.
    """

    def __init__(
        self,
        counters: Counters,
        ledger: Ledger | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._counters = counters
        self._ledger = ledger
        self._clock = clock

    async def admit(self, allowance: KeyQuota, tokens: int, usd: float, lease: float) -> Admission:
        """Reserve one request, one concurrency slot, and the estimates `tokens` and `usd`.

        All or nothing. lease: seconds after which slot and money are free again even if the request
        was not settled. Raises RateLimited or BudgetSpent.
        """
        if not allowance.limited:
            return Admission(allowance)
        claim = self._claim(allowance, tokens, usd, lease)
        standing = await self._counters.reserve(claim)
        if standing.refusal == "unknown" and self._ledger:
            await self.seed(
                allowance,
                await self._ledger(allowance.key, span(allowance.period, self._clock()).begins),
            )
            standing = await self._counters.reserve(claim._replace(begin=True))
        if standing.refusal == "budget":
            raise _overdrawn(allowance, standing, await self.spent_this_period(allowance), usd)
        if standing.refusal:
            raise _refusal(allowance, standing)
        return Admission(allowance, standing, standing.hold)

    async def settle(self, ticket: Admission, tokens: int, usd: float) -> None:
        """Replace the reserved amounts by the used ones, and free the slot.

        Repeated calls do nothing. A failed request used 0 tokens and 0 USD.
        """
        hold = ticket.hold
        ticket.hold = None
        if hold:
            await self._counters.settle(hold, tokens, _nano(usd))

    async def correct(self, hold: Reservation, tokens: int, usd: float) -> None:
        """Add to what a settled request used, or take from it: what became known later.

        hold: of nothing, in its key, second and period. What is over is not changed.
        """
        await self._counters.settle(hold, tokens, _nano(usd))

    async def spent_this_period(self, allowance: KeyQuota) -> float:
        """Return the USD counted in the current period, reservations included.

        0 for a key without a budget.
        """
        return (
            allowance.usd
            and (await self._counters.balance(self._claim(allowance), None) or 0) / NANO
        )

    async def seed(self, allowance: KeyQuota, usd: float) -> None:
        """Start the current period at `usd`, unless it is counted already.

        usd: from the usage table.
        """
        if allowance.usd:
            await self._counters.balance(self._claim(allowance), _nano(usd))

    def _claim(
        self, allowance: KeyQuota, tokens: int = 0, usd: float = 0, lease: float = 0
    ) -> ReservationRequest:
        # Never 0, which would mean no budget.
        quota = allowance
        budget = math.ceil(allowance.usd * NANO)
        period = ""
        seconds_left = 0.0
        if budget:
            now = self._clock()
            budget_span = span(quota.period, now)
            period = budget_span.name
            seconds_left = budget_span.ends - now
        if quota.tpm:
            tokens = min(tokens, quota.tpm)
        return ReservationRequest(
            quota.key,
            quota.rpm,
            quota.tpm,
            quota.concurrent,
            budget,
            tokens,
            min(_nano(usd), budget),
            lease,
            period,
            seconds_left,
            self._ledger is None,
        )


def span(period: str, now: float) -> UsagePeriod:
    """Return the UTC calendar period that contains `now`.

    period: hour, day, week (from Monday) or month.
    """
    hour = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    if period == "hour":
        begins = hour
        ends = hour + timedelta(hours=1)
    elif period == "day":
        begins = day
        ends = day + timedelta(days=1)
    elif period == "week":
        begins = day - timedelta(days=day.weekday())
        ends = begins + timedelta(days=7)
    else:
        begins = day.replace(day=1)
        ends = (begins + timedelta(days=31)).replace(day=1)
    return UsagePeriod(f"{period}-{begins:%Y-%m-%dT%H}", begins.timestamp(), ends.timestamp())


def duration(seconds: float) -> str:
    """Format seconds as OpenAI's headers do: "6m0s", "1.2s", "120ms"; rounded up."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{math.ceil(seconds * 10) / 10:g}s"
    minutes, seconds_part = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds_part}s"
    return f"{minutes}m{seconds_part}s"


def _nano(usd: float) -> int:
    return round(usd * NANO)


def _headers(allowance: KeyQuota, standing: ReservationResult) -> list[tuple[bytes, bytes]]:
    out: list[tuple[bytes, bytes]] = []
    reset = duration(standing.reset).encode()
    for unit, limit, used_count in (
        (b"requests", allowance.rpm, standing.requests),
        (b"tokens", allowance.tpm, standing.tokens),
    ):
        if limit:
            left_count = max(0, limit - used_count)
            out += [
                (b"x-ratelimit-limit-" + unit, b"%d" % limit),
                (b"x-ratelimit-remaining-" + unit, b"%d" % left_count),
                (b"x-ratelimit-reset-" + unit, reset),
            ]
    return out


def _refusal(allowance: KeyQuota, standing: ReservationResult) -> RateLimited:
    exhausted = {
        "rpm": f"{allowance.rpm} requests per minute (rpm)",
        "tpm": f"{allowance.tpm} tokens per minute (tpm)",
        "concurrent": f"{allowance.concurrent} requests at the same time (concurrent)",
        "held": f"{allowance.usd:g} USD per {allowance.period}, which is reserved for requests "
        "still running",
    }[standing.refusal]
    wait, headers = _wait(allowance, standing)
    return RateLimited(
        f"The key {allowance.key!r} has reached its limit of {exhausted}. Try again in {wait}, or "
        "have the limit raised.",
        headers=headers,
    )


def _overdrawn(
    allowance: KeyQuota, standing: ReservationResult, spent_usd: float, asked_usd: float
) -> BudgetSpent:
    """Return the error for a spent budget.

    spent_usd: USD counted in the period. asked_usd: the most that the request may cost, which is
    more than what is left.
    """
    wait, headers = _wait(allowance, standing)
    spent_text = (
        f"has spent {_usd(spent_usd)} of its budget of {_usd(allowance.usd)} USD per "
        f"{allowance.period}"
    )
    advice = "have the budget raised"
    if spent_usd < allowance.usd:
        spent_text += f", and this request may cost {_usd(asked_usd)}"
        advice = f"ask for fewer tokens (max_tokens) or {advice}"
    return BudgetSpent(
        f"The key {allowance.key!r} {spent_text}. Its next period begins in {wait}; {advice} to "
        "continue now.",
        headers=[*headers, (b"x-should-retry", b"false")],
    )


def _wait(
    allowance: KeyQuota, standing: ReservationResult
) -> tuple[str, list[tuple[bytes, bytes]]]:
    # Buckets leave the window up to a second late.
    if standing.refusal in ("rpm", "tpm"):
        longest_wait = WINDOW_SECONDS
    else:
        longest_wait = math.inf
    seconds = min(standing.wait, longest_wait)
    wait = max(1, math.ceil(seconds))
    return duration(wait), [
        (b"retry-after", b"%d" % wait),
        (b"retry-after-ms", b"%d" % max(1, math.ceil(seconds * 1000))),
        *_headers(allowance, standing),
    ]


def _usd(amount: float) -> str:
    if amount >= 0.000001:
        return f"{amount:.6f}".rstrip("0").rstrip(".")
    return f"{amount:g}"
