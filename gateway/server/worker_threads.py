"""The threads for work that would hold the event loop.

While one works, all give up the interpreter sooner, and it pauses between the steps of its work.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from memory import pausing_with

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# A request takes some twenty turns of the event loop, and waits in each until a busy thread gives
# up the interpreter. Without a busy thread the usual interval costs fewer switches.
BUSY_SWITCH_SECONDS = 0.0002
# So a request waits for one such stretch of work at most, and is served in the next pause or two.
# Of a thread's own time, after which it pauses.
WORK_SECONDS = 0.004
PAUSE_SECONDS = 0.005


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
            with pausing_with(WorkPause()):
                return fn(*args, **kwargs)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._working += change
            sys.setswitchinterval(BUSY_SWITCH_SECONDS if self._working else self._switch_seconds)


class WorkPause:
    """The pause between two steps of a thread, once it has worked for `WORK_SECONDS`.

    The processor's time counts: while a thread waits for the interpreter, others run already.
    """

    __slots__ = ("_begun_at",)

    def __init__(self) -> None:
        self._begun_at = time.thread_time()

    def __call__(self) -> None:
        if time.thread_time() - self._begun_at >= WORK_SECONDS:
            if not gc.isenabled():
                # What this work made so far is aged in small portions. Else the first search for
                # garbage after it looks at all of it at once, on whatever thread that falls.
                gc.collect(1)
            time.sleep(PAUSE_SECONDS)
            self._begun_at = time.thread_time()
