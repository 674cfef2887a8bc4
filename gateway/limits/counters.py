"""Counters of what keys use: the port, and the implementation of one process.

`redis_counters` shares them between gateways.

- A window of 60 s consists of one-second buckets. A bucket counts until it has left the window
  completely, so that no 60 seconds ever exceed the limit; free capacity may be noticed up to a
  second late.
- The spending of a calendar period is one integer of nano-USD, so it does not drift. It includes
  reservations.
- Reservations of admitted requests: their concurrency slots and reserved budget. A reservation
  whose lease expires returns both by itself.
- Methods are atomic. A refused reservation changes nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import accumulate, count
from operator import itemgetter
from typing import NamedTuple, Protocol

# Seconds from a bucket's start until it has left the window.
SPAN = 61
# Suggested retry, if it is unknown when a request will end.
SOON = 1.0


class ReservationRequest(NamedTuple):
    """What one request asks of its key.

    A limit or budget of 0 means none; money is in nano-USD.
    """

    key: str
    rpm: int
    tpm: int
    concurrent: int
    budget: int
    # At most tpm.
    tokens: int
    # At most budget.
    nano: int
    # Seconds.
    lease: float
    # Name of the budget's period.
    period: str
    # Remaining seconds of that period.
    seconds_left: float
    # A new period starts at 0; otherwise the claim is refused as `unknown`.
    begin: bool


class Reservation(NamedTuple):
    """An admitted claim, as needed to settle it. shared: it is held in Redis."""

    id: str
    key: str
    window_second: int
    tokens: int
    nano: int
    period: str
    shared: bool = False


class ReservationResult(NamedTuple):
    """The result of a claim, and the window after it.

    refusal: "" | rpm | tpm | concurrent | held (others' reservations exhaust the budget) | budget |
    unknown. wait: seconds until the claim would fit. reset: seconds until the window would be
    empty.
    """

    refusal: str
    wait: float
    requests: int
    tokens: int
    reset: float
    hold: Reservation | None


class Counters(Protocol):
    """Counts what keys use.

    No method raises, nor waits for a store that does not answer.
    """

    async def reserve(self, claim: ReservationRequest) -> ReservationResult:
        """Admit the claim and count all of it, or refuse it and count nothing.

        A refusal names the limit that takes longest to wait for.
        """

    async def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        """Replace the reserved amounts by the used ones; once for each reservation.

        A bucket or period that is over is not changed.
        """

    async def balance(self, claim: ReservationRequest, first_nano: int | None) -> int | None:
        """Return the nano-USD counted in the claim's period.

        first_nano: value at which a new period starts; None starts none.
        """


class LocalCounters:
    """The counters of one process. clock: seconds, never going back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, _KeyWindow] = {}
        self._ids = count()

    async def reserve(self, claim: ReservationRequest) -> ReservationResult:
        now = self._clock()
        window = self._window(claim.key)
        window.forget(now)
        if claim.budget and window.period != claim.period:
            if not claim.begin:
                return ReservationResult("unknown", 0, 0, 0, 0, None)
            window.begin(claim.period, 0)
        wait, refusal = max(window.waits(claim, now), key=itemgetter(0), default=(0.0, ""))
        hold = None
        if not refusal:
            hold = window.book(claim, now, str(next(self._ids)))
        reset = 0.0
        if window.buckets:
            reset = window.buckets[-1][0] + SPAN - now
        return ReservationResult(refusal, wait, window.requests, window.tokens, reset, hold)

    async def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        self._window(hold.key).settle(hold, tokens, nano)

    async def balance(self, claim: ReservationRequest, first_nano: int | None) -> int | None:
        window = self._window(claim.key)
        window.forget(self._clock())
        if window.period != claim.period:
            if first_nano is None:
                return None
            window.begin(claim.period, first_nano)
        return window.nano

    def close_periods(self) -> None:
        """Forget the spending of all keys, which is counted elsewhere from now on.

        Windows and reservations stay.
        """
        for window in self._windows.values():
            window.begin("", 0)

    def _window(self, key: str) -> _KeyWindow:
        return self._windows.get(key) or self._windows.setdefault(key, _KeyWindow())


class _KeyWindow:
    """What one key uses. Its only period is the latest one claimed."""

    __slots__ = ("buckets", "holds", "nano", "period", "requests", "soonest", "tokens")

    def __init__(self) -> None:
        # [second, requests, tokens], oldest first.
        self.buckets: deque[list[int]] = deque()
        self.requests = self.tokens = self.nano = 0
        self.period = ""
        # With the end of the lease.
        self.holds: dict[str, tuple[float, Reservation]] = {}
        # Earliest end of a lease.
        self.soonest = float("inf")

    def forget(self, now: float) -> None:
        """Remove buckets that have left the window, and reservations whose lease expired."""
        while self.buckets and self.buckets[0][0] + SPAN <= now:
            _, requests, tokens = self.buckets.popleft()
            self.requests -= requests
            self.tokens -= tokens
        if self.soonest <= now:
            for id, (end, hold) in list(self.holds.items()):
                if end <= now:
                    del self.holds[id]
                    self._pay(hold, -hold.nano)
            self.soonest = min((end for end, _ in self.holds.values()), default=float("inf"))

    def begin(self, period: str, nano: int) -> None:
        self.period = period
        self.nano = nano

    def waits(self, claim: ReservationRequest, now: float) -> list[tuple[float, str]]:
        """Return which limits refuse a claim, and for how many seconds each.

        A request counts at least one token, whatever its estimate.
        """
        out: list[tuple[float, str]] = []
        if claim.rpm and (excess := self.requests + 1 - claim.rpm) > 0:
            out.append((self._seconds_until_freed(1, excess, now), "rpm"))
        if claim.tpm and (excess := self.tokens + max(1, claim.tokens) - claim.tpm) > 0:
            out.append((self._seconds_until_freed(2, excess, now), "tpm"))
        if claim.concurrent and len(self.holds) >= claim.concurrent:
            out.append((SOON, "concurrent"))
        if claim.budget and (excess := self.nano + max(1, claim.nano) - claim.budget) > 0:
            held_nano = sum(h.nano for _, h in self.holds.values() if h.period == claim.period)
            out.append((SOON, "held") if excess <= held_nano else (claim.seconds_left, "budget"))
        return out

    def book(self, claim: ReservationRequest, now: float, id: str) -> Reservation:
        window_second = int(now)
        if not self.buckets or self.buckets[-1][0] != window_second:
            self.buckets.append([window_second, 0, 0])
        hold = Reservation(id, claim.key, window_second, claim.tokens, claim.nano, claim.period)
        self._use(1, claim.tokens, self.buckets[-1])
        self._pay(hold, hold.nano)
        end = now + claim.lease
        self.holds[id] = (end, hold)
        self.soonest = min(self.soonest, end)
        return hold

    def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        bucket = next((b for b in reversed(self.buckets) if b[0] == hold.window_second), None)
        if bucket:
            # Another process may have counted what is taken away.
            self._use(0, max(tokens - hold.tokens, -bucket[2]), bucket)
        self._pay(hold, nano - hold.nano if self.holds.pop(hold.id, None) else nano)

    def _seconds_until_freed(self, column: int, excess: int, now: float) -> float:
        """Return the seconds until `excess` have left the window, the oldest first."""
        freed_counts = accumulate(b[column] for b in self.buckets)
        return (
            next(b[0] for b, n in zip(self.buckets, freed_counts, strict=True) if n >= excess)
            + SPAN
            - now
        )

    def _use(self, requests: int, tokens: int, bucket: list[int]) -> None:
        bucket[1] += requests
        bucket[2] += tokens
        self.requests += requests
        self.tokens += tokens

    def _pay(self, hold: Reservation, nano: int) -> None:
        if hold.period == self.period:
            self.nano += nano
