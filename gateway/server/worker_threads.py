"""The threads for work that would hold the event loop; while one works, all give way sooner."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A request takes some twenty turns of the event loop, and waits in each until a busy thread gives
# up the interpreter. Without a busy thread the usual interval costs fewer switches.
BUSY_SWITCH_SECONDS = 0.0002


class WorkerThreads(ThreadPoolExecutor):
    """The executor of an event loop. Its threads ask for the interpreter in turn while they work.

    switch_seconds: the switch interval of the interpreter while none of them works.
    """

    def __init__(self, switch_seconds: float) -> None:
        super().__init__(thread_name_prefix="worker")
        self._switch_seconds = switch_seconds
        self._lock = threading.Lock()
        self._working = 0

    def submit(
        self,
        fn: Callable[Arguments, Result],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Future[Result]:
        return super().submit(self._work, fn, *args, **kwargs)

    def _work(
        self,
        fn: Callable[Arguments, Result],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        self._count(1)
        try:
            return fn(*args, **kwargs)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._working += change
            sys.setswitchinterval(BUSY_SWITCH_SECONDS if self._working else self._switch_seconds)
