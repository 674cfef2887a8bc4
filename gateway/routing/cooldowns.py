"""Cooldowns of targets: the port, and the implementation of one process.

`redis_cooldowns` shares them between gateways. A target's record is open during its cooldown;
half-open from `until` on, when one request at a time may probe it; and removed after the first
success. A half-open record that nobody probes is dropped after an hour. A cooldown only ever grows
longer: a second failure never shortens it.
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

# How long a record stays half-open.
KEPT_SECONDS = 3600.0
# Bounds the records: with `*`, clients choose the model names.
BYTES, EACH = 1 << 20, 1050


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Why a target should not be tried now.

    until: by time.monotonic, which no clock change affects. asked: the upstream itself gave a time
    (Retry-After), which has not passed; otherwise it failed too often. probing: the cooldown is
    over and one request is probing the target.
    """

    until: float
    asked: bool
    probing: bool


@dataclass(frozen=True, slots=True)
class CooldownPolicy:
    """When failures start a cooldown.

    So many `failures` within `window` seconds start one of `seconds`; with 0 failures, only an
    upstream's Retry-After does.
    """

    failures: int
    window: float
    seconds: float


class Cooldowns(Protocol):
    """Cooldowns of targets by name.

    No method raises, nor waits for a store that does not answer. rules: may be replaced.
    """

    rules: CooldownPolicy

    async def find(self, names: Sequence[str]) -> dict[str, Cooldown]:
        """Return the cooldowns on record, half-open ones too.

        Targets without one are left out. One round trip for all names.
        """

    async def record_failure(self, name: str, asked_seconds: float | None) -> None:
        """Record a failure, which ends a probe.

        asked_seconds: seconds that the upstream asked for (Retry-After), if it did. These alone
        then decide, and do not count as a failure. Otherwise enough failures start a cooldown, and
        so does one failure when half-open.
        """

    async def record_success(self, name: str) -> None:
        """Remove the record of a target and its failures."""

    async def probe(self, name: str, lease: float) -> bool:
        """Claim the right to probe a target after its cooldown, for at most `lease` seconds.

        Returns False during the cooldown and while another request holds the right; True as well if
        there is no record any more.
        """

    async def release_probe(self, name: str) -> None:
        """Give up the right to probe, without a result: the caller has left."""


@dataclass(slots=True)
class _FailureRecord:
    # End of a cooldown that the upstream asked for, by the clock.
    asked_until: float = -math.inf
    # End of a cooldown after too many failures.
    failed_until: float = -math.inf
    # Until when the right to probe is held.
    probe: float = -math.inf
    failures: deque[float] = field(default_factory=deque)

    @property
    def until(self) -> float:
        return max(self.asked_until, self.failed_until)


class LocalCooldowns:
    """The cooldowns of one process. clock: seconds, never going back."""

    def __init__(self, rules: CooldownPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self.rules = rules
        self._clock = clock
        self.records: Cache[str, _FailureRecord] = Cache(
            BYTES, EACH, lambda name, _: getsizeof(name)
        )

    async def find(self, names: Sequence[str]) -> dict[str, Cooldown]:
        if not self.records.byte_count:
            return {}
        now = self._clock()
        records_by_name = {
            n: record
            for n in names
            if (record := self.records.get(n)) is not None and record.until + KEPT_SECONDS > now
        }
        return {
            n: Cooldown(record.until, record.asked_until > now, record.probe > now)
            for n, record in records_by_name.items()
        }

    async def record_failure(self, name: str, asked_seconds: float | None) -> None:
        now = self._clock()
        rules = self.rules
        record = self.records.get(name) or _FailureRecord()
        self.records.put(name, record)
        half_open = record.until <= now < record.until + KEPT_SECONDS
        record.probe = -math.inf
        if asked_seconds:
            record.asked_until = max(record.asked_until, now + asked_seconds)
        elif rules.failures:
            record.failures.append(now)
            while len(record.failures) > rules.failures or record.failures[0] <= now - rules.window:
                record.failures.popleft()
            if half_open or len(record.failures) == rules.failures:
                record.failed_until = max(record.failed_until, now + rules.seconds)

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
