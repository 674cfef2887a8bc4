"""The runs of a turn as a timeline: what ran beside what, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

MAX_RUNS = 200
# Of a bar, in per cent, so that a short run is seen too.
MIN_WIDTH = 0.6
# Names that are listed.
MAX_BESIDE = 6


@dataclass(frozen=True, slots=True)
class TimelineRun:
    """One run. begin_ms: since the first run came. x, wait, width: of its bar, in per cent.

    beside: the runs whose time overlaps.
    """

    name: str
    round: int
    status: str
    begin_ms: float
    queued_ms: float
    ms: float
    cost_usd: float
    x: float
    wait: float
    width: float
    beside: Sequence[str]


@dataclass(frozen=True, slots=True)
class _TimedCall:
    """A call with the times between which it waited and ran, in milliseconds."""

    call: Mapping[str, Any]
    came: float
    began: float
    ended: float

    def overlaps(self, call: _TimedCall) -> bool:
        return self.began < call.ended and call.began < self.ended


def lay_out_runs(calls: Sequence[Mapping[str, Any]]) -> list[TimelineRun]:
    """Return the runs of an explain record that say when they started, in that order."""
    timed = [run for call in calls[:MAX_RUNS] if (run := _time_of(call)) is not None]
    if not timed:
        return []
    timed.sort(key=lambda run: run.came)
    first_came = timed[0].came
    span = max(max(run.ended for run in timed) - first_came, 1.0)
    return [_draw(run, timed, first_came, span) for run in timed]


def _time_of(call: Mapping[str, Any]) -> _TimedCall | None:
    """Return a call with its times; None of one that did not start, or says nothing of it."""
    try:
        came = datetime.fromisoformat(call["started_at"]).timestamp() * 1000
    except (KeyError, TypeError, ValueError):
        return None
    began = came + float(call.get("queued_ms") or 0.0)
    return _TimedCall(call, came, began, began + float(call.get("ms") or 0.0))


def _draw(
    run: _TimedCall, timed: Sequence[_TimedCall], first_came: float, span: float
) -> TimelineRun:
    call = run.call
    overlapping = [
        str(timed_run.call.get("name", "?"))
        for timed_run in timed
        if timed_run is not run and run.overlaps(timed_run)
    ]
    return TimelineRun(
        str(call.get("name", "?")),
        int(call.get("round") or 1),
        str(call.get("status") or ""),
        round(run.came - first_came, 2),
        round(run.began - run.came, 2),
        round(run.ended - run.began, 2),
        float(call.get("cost_usd") or 0.0),
        round(100 * (run.came - first_came) / span, 3),
        round(100 * (run.began - run.came) / span, 3),
        round(max(100 * (run.ended - run.began) / span, MIN_WIDTH), 3),
        overlapping[:MAX_BESIDE],
    )
