"""A call of one of the operator's tools while it lasts."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gateway.tools.kind import ToolCaller


class RunTiming:
    """When a run came, and when it had its slot. is_charged: its tool was asked."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self.is_charged = False
        self._came = time.perf_counter()
        self._began: float | None = None

    def begin(self) -> None:
        """Take note that the run has its slot."""
        self._began = time.perf_counter()

    @property
    def has_begun(self) -> bool:
        """Whether the run had its slot."""
        return self._began is not None

    @property
    def queued_ms(self) -> float:
        if self._began is None:
            began = time.perf_counter()
        else:
            began = self._began
        return round((began - self._came) * 1000, 2)

    @property
    def seconds(self) -> float:
        """Seconds since it had its slot; 0 if it never had one."""
        if self._began is None:
            return 0.0
        return time.perf_counter() - self._began


@dataclass(frozen=True, slots=True, eq=False)
class RunningCall:
    """One call that waits for its slot, or runs."""

    name: str
    caller: ToolCaller
    timing: RunTiming
