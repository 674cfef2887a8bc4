"""What keys use, counted: the port under `limits`, and the counters of this process (`shared` has
the fleet's).

- A window of 60 s made of one-second buckets: a bucket counts until it has left the window wholly,
  so that no 60 seconds ever hold
  more than the limit; what is free again may be noticed up to a second late.
- What a key spent in a calendar period, as one integer of nano-USD: no drift. It includes what is
  reserved.
- The tickets of admitted requests: places among the concurrent, and what they reserved of the
  budget. A ticket whose lease is over
  gives both back by itself.
- A verb is atomic. A refused claim changes nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import accumulate, count
from operator import itemgetter
from typing import NamedTuple, Protocol

SPAN = 61  # seconds from a bucket's beginning until it has left the window wholly
SOON = 1.0  # seconds after which to ask again where nobody knows when a request will end


class ReservationRequest(NamedTuple):
    """What one request asks of its key. Limits and a budget of 0 are none; money is in nano-USD."""

    key: str
    rpm: int
    tpm: int
    concurrent: int
    budget: int
    tokens: int  # at most tpm
    nano: int  # at most budget
    lease: float  # seconds
    period: str  # names the period of the budget
    left: float  # seconds of that period to come
    begin: bool  # a period nobody counted yet begins at 0; else the claim is refused as `unknown`


class Reservation(NamedTuple):
    """An admitted claim, as settling needs it. shared: which of two stores holds it."""

    id: str
    key: str
    second: int
    tokens: int
    nano: int
    period: str
    shared: bool = False


class ReservationResult(NamedTuple):
    """The answer to a claim, and the window after it.

    refused: "" | rpm | tpm | concurrent | held (what others reserved of the budget is in the way) |
    budget | unknown. wait: seconds until there is room for this claim. reset: seconds until the
    window would be empty.
    """

    refused: str
    wait: float
    requests: int
    tokens: int
    reset: float
    hold: Reservation | None


class Counters(Protocol):
    """No verb raises, nor waits for a store that does not answer."""

    async def reserve(self, claim: ReservationRequest) -> ReservationResult:
        """Admits the claim and books all of it, or refuses it and books nothing, naming what it
        must wait for longest.
        """

    async def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        """Put what was used in place of what was reserved, once a hold.

        A bucket or period that is over is left alone.
        """

    async def balance(self, claim: ReservationRequest, first: int | None) -> int | None:
        """Return the nano-USD booked in the claim's period.

        One that nobody counted yet begins with `first`; None begins none.
        """


class LocalCounters:
    """The counters of one process. clock: seconds, never going back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._books: dict[str, _KeyWindow] = {}
        self._ids = count()

    async def reserve(self, claim: ReservationRequest) -> ReservationResult:
        now = self._clock()
        book = self._book(claim.key)
        book.forget(now)
        if claim.budget and book.period != claim.period:
            if not claim.begin:
                return ReservationResult("unknown", 0, 0, 0, 0, None)
            book.begin(claim.period, 0)
        wait, refused = max(book.waits(claim, now), key=itemgetter(0), default=(0.0, ""))
        hold = None if refused else book.book(claim, now, str(next(self._ids)))
        reset = book.buckets[-1][0] + SPAN - now if book.buckets else 0.0
        return ReservationResult(refused, wait, book.requests, book.tokens, reset, hold)

    async def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        self._book(hold.key).settle(hold, tokens, nano)

    async def balance(self, claim: ReservationRequest, first: int | None) -> int | None:
        book = self._book(claim.key)
        book.forget(self._clock())
        if book.period != claim.period:
            if first is None:
                return None
            book.begin(claim.period, first)
        return book.nano

    def close_periods(self) -> None:
        """What was spent is counted elsewhere from now on: whoever asks here again begins anew.

        Windows and tickets stay.
        """
        for book in self._books.values():
            book.begin("", 0)

    def _book(self, key: str) -> _KeyWindow:
        return self._books.get(key) or self._books.setdefault(key, _KeyWindow())


class _KeyWindow:
    """What one key uses. Its one period is the latest that was claimed."""

    __slots__ = ("buckets", "holds", "nano", "period", "requests", "soonest", "tokens")

    def __init__(self) -> None:
        self.buckets: deque[list[int]] = deque()  # [second, requests, tokens], oldest first
        self.requests = self.tokens = self.nano = 0
        self.period = ""
        self.holds: dict[str, tuple[float, Reservation]] = {}  # with the end of its lease
        self.soonest = float("inf")  # no lease ends before

    def forget(self, now: float) -> None:
        """Let go of buckets that have left the window and of tickets whose lease is over."""
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
        self.period, self.nano = period, nano

    def waits(self, claim: ReservationRequest, now: float) -> list[tuple[float, str]]:
        """Return what is in the way of a claim, and for how many seconds.

        A request counts as one at least, whatever its estimate.
        """
        out: list[tuple[float, str]] = []
        if claim.rpm and (excess := self.requests + 1 - claim.rpm) > 0:
            out.append((self._seconds_until_freed(1, excess, now), "rpm"))
        if claim.tpm and (excess := self.tokens + max(1, claim.tokens) - claim.tpm) > 0:
            out.append((self._seconds_until_freed(2, excess, now), "tpm"))
        if claim.concurrent and len(self.holds) >= claim.concurrent:
            out.append((SOON, "concurrent"))
        if claim.budget and (excess := self.nano + max(1, claim.nano) - claim.budget) > 0:
            held = sum(h.nano for _, h in self.holds.values() if h.period == claim.period)
            out.append((SOON, "held") if excess <= held else (claim.left, "budget"))
        return out

    def book(self, claim: ReservationRequest, now: float, id: str) -> Reservation:
        second = int(now)
        if not self.buckets or self.buckets[-1][0] != second:
            self.buckets.append([second, 0, 0])
        hold = Reservation(id, claim.key, second, claim.tokens, claim.nano, claim.period)
        self._use(1, claim.tokens, self.buckets[-1])
        self._pay(hold, hold.nano)
        end = now + claim.lease
        self.holds[id] = (end, hold)
        self.soonest = min(self.soonest, end)
        return hold

    def settle(self, hold: Reservation, tokens: int, nano: int) -> None:
        bucket = next((b for b in reversed(self.buckets) if b[0] == hold.second), None)
        if bucket:
            self._use(0, tokens - hold.tokens, bucket)
        self._pay(hold, nano - hold.nano if self.holds.pop(hold.id, None) else nano)

    def _seconds_until_freed(self, column: int, excess: int, now: float) -> float:
        """Return seconds until so many have left the window, the oldest first."""
        gone = accumulate(b[column] for b in self.buckets)
        return (
            next(b[0] for b, n in zip(self.buckets, gone, strict=True) if n >= excess) + SPAN - now
        )

    def _use(self, requests: int, tokens: int, bucket: list[int]) -> None:
        bucket[1] += requests
        bucket[2] += tokens
        self.requests += requests
        self.tokens += tokens

    def _pay(self, hold: Reservation, nano: int) -> None:
        if hold.period == self.period:
            self.nano += nano
