"""The newest requests that the memory took no part in, or only a part, and why.

The store may never have seen them, so they are held in this process: a bounded number, none of
their text, and gone with it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

MAX_HELD = 200
# Users and hours; then the oldest go.
MAX_COUNTS = 20_000
HOUR_SECONDS = 3600.0
# Of a model; clients choose it.
MAX_NAME_CHARACTERS = 200
# No request lasts longer.
ERASED_SECONDS = 86_400.0


class EndedRequest(Protocol):
    """What a usage record tells of whose request it was; see `gateway.usage.log`."""

    request_id: str
    created_at: float
    tenant: str
    user: str | None
    model: str


@dataclass(frozen=True, slots=True)
class DegradedTurn:
    """One such request. began_at, ended_at: Unix times."""

    request_id: str
    tenant: str
    user: str | None
    model: str
    began_at: float
    ended_at: float
    reason: str

    @property
    def mark(self) -> str:
        """A name of the turn, as `RecentTurn` has one."""
        return self.request_id

    @property
    def end_mark(self) -> str:
        """A name of the turn; those of turns that end later are later."""
        return f"{int(self.ended_at * 1_000_000):016x}-{self.mark}"


class DegradedTurns:
    """The newest degraded turns, and how many there were. Erasures come from the writer's thread.

    _counts: by tenant, user and hour in which the turns began.
    """

    def __init__(self) -> None:
        self._held_turns: deque[DegradedTurn] = deque(maxlen=MAX_HELD)
        self._counts: dict[tuple[str, str | None, int], int] = {}
        self._erasure_times: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def note(self, request: EndedRequest, reason: str) -> None:
        """Hold a request that ended now."""
        user = request.user
        now = time.time()
        with self._lock:
            if user is not None and request.created_at <= self._erasure_times.get(
                (request.tenant, user), 0.0
            ):
                user = None
            self._count(request.tenant, user, int(request.created_at // HOUR_SECONDS), 1)
            self._held_turns.append(
                DegradedTurn(
                    request.request_id,
                    request.tenant,
                    user,
                    request.model[:MAX_NAME_CHARACTERS],
                    request.created_at,
                    now,
                    reason,
                )
            )

    def _count(self, tenant: str, user: str | None, hour: int, turns: int) -> None:
        name = (tenant, user, hour)
        self._counts[name] = self._counts.get(name, 0) + turns
        while len(self._counts) > MAX_COUNTS:
            del self._counts[next(iter(self._counts))]

    def forget(self, tenant: str, user: str) -> None:
        """Remove an erased user's name, from requests under way too."""
        now = time.time()
        with self._lock:
            self._erasure_times = {
                k: at for k, at in self._erasure_times.items() if at > now - ERASED_SECONDS
            }
            self._erasure_times[tenant, user] = now
            anonymous_turns = (
                replace(turn, user=None) if (turn.tenant, turn.user) == (tenant, user) else turn
                for turn in self._held_turns
            )
            self._held_turns = deque(anonymous_turns, maxlen=MAX_HELD)
            for name in [name for name in self._counts if name[:2] == (tenant, user)]:
                self._count(tenant, None, name[2], self._counts.pop(name))

    def count_since(
        self, since: float, tenant: str | None = None, users: Collection[str] | None = None
    ) -> int:
        """Return how many there were, those that are no longer held too.

        since: a Unix time; the whole of its hour is counted. tenant, users: None for all.
        """
        first_hour = int(since // HOUR_SECONDS)
        with self._lock:
            return sum(
                turns
                for (owner, user, hour), turns in self._counts.items()
                if hour >= first_hour
                and tenant in (None, owner)
                and (users is None or user in users)
            )

    def list_since(
        self, since: float, may_see: Callable[[DegradedTurn], bool]
    ) -> Sequence[DegradedTurn]:
        """Return those that began since a Unix time and may be seen, newest first."""
        with self._lock:
            held_turns = list(self._held_turns)
        return [turn for turn in reversed(held_turns) if turn.began_at >= since and may_see(turn)]
