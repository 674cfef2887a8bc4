"""The time limits of one upstream call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType

from gateway.errors import UpstreamTimeout

TICK = 0.001  # seconds; some loops' timers go off that much early

CODES = {
    "first_token": "first_token_timeout",
    "idle": "stream_idle_timeout",
    "total": "total_timeout",
}


@dataclass(slots=True)
class Timeouts:
    """Seconds.

    connect: to a usable connection; first_token: to the first body byte; idle: between bytes;
    total: all.

    first_token and idle hold for streams alone.
    """

    connect: float = 5
    first_token: float = 120
    idle: float = 60
    total: float = 600


class Deadlines:
    """The limits of one call: whichever runs out while something is waited for names the error, an
    UpstreamTimeout.

    Use: `with clock: await ...` around a wait of any kind; `limit` before a wait for one future and
    `over` after it, which costs less than half; and `heard` when a piece of the body came. until:
    the loop's time by which the caller's own limit ends it. stream: events were asked for; else
    only the total counts, since who answers at once is silent until then.
    """

    __slots__ = (
        "_alarm",
        "_cancelling",
        "_ends",
        "_limit",
        "_next",
        "_phase",
        "_rang",
        "_task",
        "_waiter",
        "timeouts",
        "until",
    )

    def __init__(
        self,
        alarm: DeadlineTimer,
        timeouts: Timeouts,
        until: float = float("inf"),
        *,
        stream: bool = True,
    ) -> None:
        self.timeouts = timeouts
        self._alarm = alarm
        start = alarm.now()
        self._phase = "first_token"
        self._next = "idle" if stream else "first_token"
        self._ends = min(start + timeouts.total, until)
        self._limit = start + timeouts.first_token if stream else float("inf")  # the phase's own
        self.until = min(
            self._limit, self._ends
        )  # by the loop's time: when the wait has to be over
        self._task: asyncio.Task[object] | None = None  # who waits
        self._waiter: asyncio.Future[None] | None = None  # or what for
        self._cancelling = 0
        self._rang = False

    def start_idle(self) -> None:
        """From now on silence is what is limited."""
        self._phase = self._next

    def limit(self, waiter: asyncio.Future[None]) -> None:
        """A wait for this future begins. It raises UpstreamTimeout when the time is up."""
        self._waiter = waiter
        self._begin()

    def end_wait(self) -> None:
        """The wait has ended."""
        self._waiter = None
        self._alarm.waiting.discard(self)

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task(self._alarm.loop)
        self._cancelling = task.cancelling() if task is not None else 0
        self._begin()

    def _begin(self) -> None:
        if self._phase == "idle":
            self._limit = limit = self._alarm.now() + self.timeouts.idle
            self.until = limit if limit < self._ends else self._ends
        self._alarm.watch(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        self._alarm.waiting.discard(self)
        if (
            self._rang
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            # As asyncio.timeout does: where somebody else cancelled as well, the caller is the one
            # who left.
            raise self._timeout_error() from error

    def ring(self) -> None:
        """The time is up."""
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_exception(self._timeout_error())
            return
        self._rang = True
        if self._task is not None:
            self._task.cancel()

    def _timeout_error(self) -> UpstreamTimeout:
        phase = self._phase if self._limit <= self._ends else "total"
        limit = getattr(self.timeouts, phase)
        return UpstreamTimeout(
            f"The upstream was silent past its {phase} limit of {limit:g} s. Try again, or "
            f"raise `timeouts.{phase}` of its provider.",
            code=CODES[phase],
        )


class DeadlineTimer:
    """One timer for the waits of many calls: a stream waits for every piece, and a timer of the
    loop costs as much as the piece.

    It stands at the soonest end among the waits it knew when it was set, most of which are long
    over when it goes off; then it looks which are not. waiting: the clocks that are waited under.
    """

    def __init__(self) -> None:
        self.waiting: set[Deadlines] = set()
        self.loop: asyncio.AbstractEventLoop | None = None  # from the first look at the time on
        self._timer: asyncio.TimerHandle | None = None
        self._when = float("inf")  # by the loop's time

    def now(self) -> float:
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        return self.loop.time()

    def watch(self, clock: Deadlines) -> None:
        self.waiting.add(clock)
        if clock.until < self._when:
            self._set(clock.until)

    def _set(self, when: float) -> None:
        assert self.loop is not None  # noqa: S101 - every clock has looked at the time
        if self._timer is not None:
            self._timer.cancel()
        self._when = when
        self._timer = self.loop.call_at(when, self._off)

    def _off(self) -> None:
        now = self.now()
        self._timer, self._when = None, float("inf")
        for clock in [c for c in self.waiting if c.until - now <= TICK]:
            self.waiting.discard(clock)
            clock.ring()
        if self.waiting:
            self._set(min(c.until for c in self.waiting))
