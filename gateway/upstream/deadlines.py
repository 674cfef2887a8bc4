"""The time limits of one upstream call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType

from gateway.errors import UpstreamTimeout

# Seconds; some event loops' timers fire that much early.
TICK = 0.001
# Of a body, after which the total is looked at although nobody had to wait.
PIECES = 16

CODES = {
    "first_token": "first_token_timeout",
    "idle": "stream_idle_timeout",
    "total": "total_timeout",
}


@dataclass(slots=True)
class Timeouts:
    """Time limits of a provider, in seconds.

    connect: to a usable connection; first_token: to the first body byte; idle: between bytes;
    total: of the whole call. first_token and idle apply to streams only.
    """

    connect: float = 5
    first_token: float = 120
    idle: float = 60
    total: float = 600


class Deadlines:
    """The deadlines of one call; the one that passes during a wait raises UpstreamTimeout.

    Use `with clock: await ...` around any wait; `limit` before and `end_wait` after a wait for one
    future, which costs less than half; `start_idle` when a piece of the body arrived. until: the
    caller's own deadline, by the loop's time. stream: events were asked for; otherwise only the
    total counts, since an upstream that answers as a whole is silent until then.
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
        "_unlooked_parts",
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
        # Deadline of the phase.
        if stream:
            self._limit = start + timeouts.first_token
        else:
            self._limit = float("inf")
        # By the loop's time: when the wait must end.
        self.until = min(self._limit, self._ends)
        # The waiting task.
        self._task: asyncio.Task[object] | None = None
        # Or the awaited future.
        self._waiter: asyncio.Future[None] | None = None
        self._cancelling = 0
        self._rang = False
        # Since the total was looked at.
        self._unlooked_parts = 0

    def start_idle(self) -> None:
        """Limit the silence between bytes from now on.

        Raises UpstreamTimeout once the total is over: bytes that are always there need no wait.
        """
        self._phase = self._next
        self._unlooked_parts += 1
        if self._unlooked_parts >= PIECES:
            self._unlooked_parts = 0
            if self._alarm.now() >= self._ends:
                raise self._total_error()

    def limit(self, waiter: asyncio.Future[None]) -> None:
        """Start a wait for this future. It raises UpstreamTimeout at the deadline."""
        self._waiter = waiter
        alarm = self._alarm
        if self._phase == "idle" and alarm.loop is not None:
            # As `_begin` does, in one step: each event of a stream comes by here.
            self._limit = limit = alarm.loop.time() + self.timeouts.idle
            self.until = limit if limit < self._ends else self._ends
        if self.until < alarm.earliest_deadline:
            alarm.watch(self)
        else:
            alarm.open_waits.add(self)

    def end_wait(self) -> None:
        """End the wait."""
        self._waiter = None
        self._alarm.open_waits.discard(self)

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task(self._alarm.loop)
        if task is not None:
            self._cancelling = task.cancelling()
        else:
            self._cancelling = 0
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
        task = self._task
        self._task = None
        self._alarm.open_waits.discard(self)
        if (
            self._rang
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is asyncio.CancelledError
        ):
            # As asyncio.timeout does: if somebody else cancelled as well, the caller has left.
            raise self._timeout_error() from error

    def ring(self) -> None:
        """End the wait: the deadline has passed."""
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_exception(self._timeout_error())
            return
        self._rang = True
        if self._task is not None:
            self._task.cancel()

    def _timeout_error(self) -> UpstreamTimeout:
        if self._limit > self._ends:
            return self._total_error()
        phase = self._phase
        limit = getattr(self.timeouts, phase)
        return UpstreamTimeout(
            f"The upstream was silent past its {phase} limit of {limit:g} s. Try again, or "
            f"raise `timeouts.{phase}` of its provider.",
            code=CODES[phase],
        )

    def _total_error(self) -> UpstreamTimeout:
        return UpstreamTimeout(
            f"The upstream's answer took longer than its total limit of {self.timeouts.total:g} s. "
            "Ask for less, or raise `timeouts.total` of its provider.",
            code=CODES["total"],
        )


class DeadlineTimer:
    """One timer for the waits of many calls.

    A stream waits for every piece, and a timer of the event loop costs as much as the piece. This
    one is set to the earliest deadline known at that time. Most of these waits have ended when it
    fires; it then looks for those that have not. open_waits: deadlines of current waits.
    """

    def __init__(self) -> None:
        self.open_waits: set[Deadlines] = set()
        # Known after the first call of `now`.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        # By the loop's time.
        self.earliest_deadline = float("inf")

    def now(self) -> float:
        if self.loop is None:
            self.loop = asyncio.get_running_loop()
        return self.loop.time()

    def watch(self, clock: Deadlines) -> None:
        self.open_waits.add(clock)
        if clock.until < self.earliest_deadline:
            self._set(clock.until)

    def _set(self, when: float) -> None:
        assert self.loop is not None  # noqa: S101 - every clock has called `now`
        if self._timer is not None:
            self._timer.cancel()
        self.earliest_deadline = when
        self._timer = self.loop.call_at(when, self._off)

    def _off(self) -> None:
        now = self.now()
        self._timer = None
        self.earliest_deadline = float("inf")
        for clock in [c for c in self.open_waits if c.until - now <= TICK]:
            self.open_waits.discard(clock)
            clock.ring()
        if self.open_waits:
            self._set(min(c.until for c in self.open_waits))
