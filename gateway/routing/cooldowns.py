"""Which targets rest: the port behind routing, and the one of this process (`shared_cooldowns` is
the fleet's).

A target's record: open while it rests, half-open from `until` on, when one request at a time may
probe it, and gone after the first success. A half-open record that nobody tries is forgotten after
an hour. Rests only ever grow longer: a second failure never shortens one.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Protocol

from memory import Cache

KEPT_SECONDS = 3600.0  # seconds a record stays half-open
BYTES, EACH = 1 << 20, 1050  # of records in one process: with `*` it is clients that name models


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Why a target is not tried now.

    until: by time.monotonic, which no change of the clock moves. asked: the upstream itself named a
    time (Retry-After) and that time is not over; else it failed too often. probing: its rest is
    over and one request is trying it now.
    """

    until: float
    asked: bool
    probing: bool


@dataclass(frozen=True, slots=True)
class CooldownPolicy:
    """failures within `window` seconds rest a target for `seconds`; 0 failures: only what an
    upstream asks for does.
    """

    failures: int
    window: float
    seconds: float


class Cooldowns(Protocol):
    """Rests of targets by name.

    No verb raises, nor waits for a store that does not answer. rules: may be replaced.
    """

    rules: CooldownPolicy

    async def find(self, names: Sequence[str]) -> dict[str, Cooldown]:
        """Return the rests on record, half-open ones too; targets without one are left out.

        One round trip for all.
        """

    async def record_failure(self, name: str, asked: float | None) -> None:
        """One failure, which ends a probe. asked: the seconds the upstream asked for, if it did.

        Those decide alone, and are no sign of illness; else enough failures rest the target, and so
        does one when half-open.
        """

    async def record_success(self, name: str) -> None:
        """A try after a rest succeeded: the record and its failures are gone."""

    async def probe(self, name: str, lease: float) -> bool:
        """Take the right to be the one that tries a target whose rest is over, for `lease` seconds
        at most.

        False while it rests and while another has that right; True as well where nothing is on
        record any more.
        """

    async def release_probe(self, name: str) -> None:
        """Give that right back without a verdict: the caller left."""


@dataclass(slots=True)
class _FailureRecord:
    asked: float = -math.inf  # rests until, by the clock, because the upstream asked
    tired: float = -math.inf  # the same, because it failed too often
    probe: float = -math.inf  # the right to try it is taken until then
    failures: deque[float] = field(default_factory=deque)

    @property
    def until(self) -> float:
        return max(self.asked, self.tired)


class LocalCooldowns:
    """The rests of one process. clock: seconds, never going back."""

    def __init__(self, rules: CooldownPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._clock = clock
        self.records: Cache[str, _FailureRecord] = Cache(
            BYTES, EACH, lambda name, _: getsizeof(name)
        )

    async def find(self, names: Sequence[str]) -> dict[str, Cooldown]:
        if not self.records.held:
            return {}
        now = self._clock()
        found = {
            n: r
            for n in names
            if (r := self.records.get(n)) is not None and r.until + KEPT_SECONDS > now
        }
        return {n: Cooldown(r.until, r.asked > now, r.probe > now) for n, r in found.items()}

    async def record_failure(self, name: str, asked: float | None) -> None:
        now, rules = self._clock(), self.rules
        record = self.records.get(name) or _FailureRecord()
        self.records.put(name, record)
        half_open = record.until <= now < record.until + KEPT_SECONDS
        record.probe = -math.inf
        if asked:
            record.asked = max(record.asked, now + asked)
        elif rules.failures:
            record.failures.append(now)
            while len(record.failures) > rules.failures or record.failures[0] <= now - rules.window:
                record.failures.popleft()
            if half_open or len(record.failures) == rules.failures:
                record.tired = max(record.tired, now + rules.seconds)

    async def record_success(self, name: str) -> None:
        self.records.pop(name)

    async def probe(self, name: str, lease: float) -> bool:
        now = self._clock()
        record = self.records.get(name)
        if record is None:
            return True
        if max(record.until, record.probe) > now:
            return False
        record.probe = now + lease
        return True

    async def release_probe(self, name: str) -> None:
        if record := self.records.get(name):
            record.probe = -math.inf
