"""The writes of one turn, within the time that it may wait for its store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection

from memory.conversation.messages import Json
from memory.errors import MemoryFault, StoreUnavailable
from memory.session.recovery_log import RecoveryLog
from memory.session.store_deadline import StoreDeadline
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.shortcut import Shortcut
from memory.stores.sql.engine.waiting import limit_from_connection
from memory.stores.sql.engine.write_lock import EVERYTHING, WriteLock, owner_lock
from memory.stores.sql.rows import message_pieces, scopes
from memory.stores.sql.rows.message_pieces import LargeBody
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns import turn_writer
from memory.stores.sql.turns.journal import BehindJournal
from memory.stores.sql.turns.turn_rows import TurnRecord

T = TypeVar("T")
log = logging.getLogger("mnemogate")

# characters of answers and blocks, bytes of a request, that may be inspected on the event loop
LIGHT = 1 << 18
# That are written on it: each takes several statements.
LIGHT_ANSWERS = LIGHT_CALLS = 16
# More for a turn with bodies of many MiB, which a busy disk takes in that time.
LARGE_SECONDS = 3.0
# Characters that any other value of an answer takes as long as.
ITEM_WEIGHT = 200


def are_heavy(answers: Sequence[Json]) -> bool:
    """Tell whether answers take long to look at, or to write."""
    # As those of most turns.
    if len(answers) == 1 and len(answers[0]) == 2:
        content = answers[0].get("content")
        if type(content) is str:
            return len(content) + 2 * ITEM_WEIGHT > LIGHT
    return len(answers) > LIGHT_ANSWERS or weight_of(answers) > LIGHT


def weight_of(answers: Sequence[Json]) -> int:
    """Return how long answers take to look at, in characters; past LIGHT it does not count on."""
    total = 0
    values = list[object](answers)
    while values and total <= LIGHT:
        value = values.pop()
        total += len(value) if isinstance(value, str) else ITEM_WEIGHT
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
    return total


class TurnStore(msgspec.Struct):
    """The writes of one turn.

    owner: whose memory. patience: what it may wait for that, in all. heavy: it takes long to look
    at, and to write. lock: what its writes keep others from.
    """

    db: Database
    recovery_log: RecoveryLog
    owner: ScopeOwner
    patience: StoreDeadline
    lock: WriteLock = EVERYTHING
    heavy: bool = False

    async def look(self, work: Callable[..., T], *args: object) -> T:
        """Run work that inspects everything written, in a thread if that takes long."""
        if self.heavy:
            return await asyncio.to_thread(work, *args)
        return work(*args)

    async def write(
        self,
        work: Callable[[Connection], T],
        max_seconds: float | None = None,
        large_bodies: Sequence[LargeBody] = (),
        shortcut: Shortcut[T] | None = None,
    ) -> T:
        """Write a few rows, within `max_seconds` seconds of the patience.

        None: begun beside the upstream's work, and whoever waits for it counts. large_bodies:
        bodies that the rows name. shortcut: see `Database.write`. Raises ErasedMeanwhile, and
        StoreUnavailable whatever else the store did: no answer of an upstream's is lost by it.
        """
        if not (large_bodies or self.heavy) and isinstance(work, BehindJournal):
            results = self.db.write_now(work)
            if results is not None:
                out: T = results[0]
                return out
        try:
            if max_seconds is None:
                return await self._write(work, large_bodies, shortcut)
            if large_bodies:
                max_seconds += LARGE_SECONDS
                self.patience.seconds_left += LARGE_SECONDS
            with self.patience.of(max_seconds) as seconds:
                shared = self.db.is_shared
                async with limit_from_connection(seconds) if shared else asyncio.timeout(seconds):
                    return await self._write(work, large_bodies, shortcut)
        except MemoryFault:
            raise
        except TimeoutError as e:
            raise StoreUnavailable("the store did not take a write in time") from e
        except Exception as e:
            log.exception("unexpected failure of the store")
            raise StoreUnavailable(f"the store failed: {type(e).__name__}") from e

    async def _write(
        self,
        work: Callable[[Connection], T],
        large_bodies: Sequence[LargeBody],
        shortcut: Shortcut[T] | None,
    ) -> T:
        if not large_bodies:
            is_small = not self.heavy
            return await self.db.write(work, small=is_small, lock=self.lock, shortcut=shortcut)
        try:
            scope = partial(scopes.get_or_create, owner=self.owner)
            await message_pieces.write(self.db, scope, large_bodies, self.lock)
            return await self.db.write(work, lock=self.lock)
        except BaseException:
            # Behind the row, should it be under way after all. It may remove the scope, which the
            # unnamed of a tenant share.
            # Without their texts, since this may wait for long.
            keys = [body.key for body in large_bodies]
            drop = partial(turn_writer.drop_pieces, owner=self.owner, bodies=keys)
            lock = owner_lock(self.owner.scope.tenant, self.owner.scope.user)
            dropping = asyncio.ensure_future(self.db.write(drop, lock=lock))
            dropping.add_done_callback(log_failed_drop)
            raise

    async def log_unwritten(self, record: TurnRecord) -> bool:
        """Write a record that the store did not take to the recovery log.

        Returns False if only memory has it, or nothing: the answer is sent all the same.
        """
        try:
            is_in_memory_alone = await self.recovery_log.keep(record)
        except Exception:
            # The client has its answer, and no other place is left to write to.
            log.exception("an answer is not recorded: both the store and the recovery log failed")
            return False
        if is_in_memory_alone:
            log.error(
                "an answer is not recorded yet: both the store and the recovery log failed. It "
                "stays in memory until one of them takes it"
            )
        return not is_in_memory_alone


def log_failed_drop(task: asyncio.Task[Any]) -> None:
    """Log why rows that nobody needs were not removed; nobody may wait for it any more."""
    if not task.cancelled() and (error := task.exception()) is not None:
        # without its message, which may quote a row
        log.warning("rows of a turn that was given up stay behind: %s", type(error).__name__)
