"""The time limits of one upstream call."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType

from gateway.errors import UpstreamTimeout

TICK = 0.001  # seconds; some loops' timers go off that much early


@dataclass(slots=True)
class Timeouts:
    """Seconds. connect: to a usable connection; first_token: to the first body byte; idle: between bytes; total: all."""

    connect: float = 5
    first_token: float = 120
    idle: float = 60
    total: float = 600


class Clock:
    """The limits of one call: whichever runs out while something is waited for names the error, an UpstreamTimeout.

    Use: `with clock: await ...` around each wait; `heard` when a piece of the body came; `stop` at the end, where no wait failed.
    One timer serves all of a call's waits, since a stream waits for every piece: entering a wait notes when it has to be over; the
    timer, when it goes off, looks whether that time has come, and else sets itself anew.
    until: the loop's time by which the caller's own limit ends it.
    """

    __slots__ = ("_cancelling", "_ends", "_fired", "_limit", "_loop", "_phase", "_task", "_timer", "_until", "timeouts")

    def __init__(self, timeouts: Timeouts, until: float = float("inf")) -> None:
        self.timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        start = self._loop.time()
        self._phase = "first_token"
        self._ends = min(start + timeouts.total, until)
        self._limit = start + timeouts.first_token  # the phase's own
        self._until = min(self._limit, self._ends)
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None  # who waits
        self._cancelling = 0
        self._fired = False

    def heard(self) -> None:
        """From now on silence is what is limited."""
        self._phase = "idle"

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        if self._phase == "idle":
            self._limit = self._loop.time() + self.timeouts.idle
            self._until = min(self._limit, self._ends)
        if self._timer is None:
            self._set()
        self._task = task = asyncio.current_task(self._loop)
        self._cancelling = task.cancelling() if task is not None else 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task, self._task = self._task, None
        if kind is None:
            return
        self.stop()
        if self._fired and task is not None and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            # As asyncio.timeout does: where somebody else cancelled as well, the caller is the one who left.
            raise self._told() from error

    def _set(self) -> None:
        # Never later than the soonest end of a wait that begins after now, so that no later one has to set it anew.
        self._timer = self._loop.call_at(min(self._until, self._loop.time() + self.timeouts.idle), self._rang)

    def _rang(self) -> None:
        self._timer = None
        if self._task is None:
            return  # nobody waits: the next who does sets it anew
        if self._until - self._loop.time() > TICK:
            self._set()
            return
        self._fired = True
        self._task.cancel()

    def _told(self) -> UpstreamTimeout:
        phase = self._phase if self._limit <= self._ends else "total"
        limit = getattr(self.timeouts, phase)
        code = "stream_idle_timeout" if phase == "idle" else f"{phase}_timeout"
        return UpstreamTimeout(
            f"The upstream was silent past its {phase} limit of {limit:g} s. Try again, or raise `timeouts.{phase}` of its provider.", code=code)
