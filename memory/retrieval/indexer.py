"""Adds recorded messages to the search index: when idle, and before a search of their scope.

Indexing a message costs more than everything else its turn writes, and few are ever searched for. A
message is durable with its turn, and the progress of the index is stored with the index, so none is
lost, and a search finds what was said a moment ago. A bug stops neither: it is logged, without any
text of a user, and retried later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Collection
from functools import partial

from msgspec.structs import replace
from sqlalchemy import Connection

from memory.cache import Cache
from memory.errors import StoreUnavailable
from memory.search.lexicon import load_shared_lists
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.sql_driver import ScopeBacklog
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.index import message_index as rows

log = logging.getLogger("mnemogate")
# Messages a write, seconds between writes: at most 2 % of one core.
BATCH = 16
PAUSE_SECONDS = 0.1
# Seconds between checks for running turns, and idle seconds before it starts.
GATHER = 1.0
# Checks after which it starts anyway.
LOOKS = 60
# Longest pause after a failure; it doubles each time.
MAX_PAUSE_SECONDS = 300.0
# Before a search.
SEARCH_BATCH, SEARCH_SECONDS = 32, 4.0
# How long a search waits for a batch, and does not wait after one was late.
STUCK_SECONDS = 0.2
REST_SECONDS = 5.0
# Of scopes with nothing left to index up to a row key, and of one.
KNOWN_BYTES, KNOWN_EACH = 1 << 18, 256
# Characters indexed on the event loop's thread; more are indexed on the writer's.
SMALL_TEXT_BYTES = 1 << 16


class Indexer:
    """Indexes the messages of one memory. busy: open nodes of running turns."""

    def __init__(self, db: Database, busy_scopes: Collection[int] = ()) -> None:
        self._db = db
        self._busy_scopes = busy_scopes
        self._some_waiting = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # When the last turn was recorded.
        self._latest_sent = 0.0
        # Searches do not wait for the store before that time.
        self._rests_until = 0.0
        # By scope, the row key up to which its messages were indexed before a search. The store's
        # mark follows slowly, and to look at all behind it held the event loop.
        self.indexed_up_to: Cache[int, int] = Cache(KNOWN_BYTES, KNOWN_EACH)

    def start(self) -> None:
        if self._task is None:
            # An earlier process may have left messages.
            self._some_waiting.set()
            self._task = asyncio.create_task(self._work_on(), name="memory-indexing")

    def notify_added(self) -> None:
        """Note that messages were recorded."""
        self._latest_sent = time.monotonic()
        self._some_waiting.set()

    async def ensure_indexed(
        self, scope_id: int, sent_id: int | None = None, journal_key: bytes | None = None
    ) -> None:
        """Index a scope's pending messages, newest first, for a few seconds at most.

        sent_id: a conversation whose messages alone are not worth it. journal_key: whose turns are
        filed before, see `Database.read`. If the store is busy for longer, or fails, the search
        uses what is there.
        """
        if time.monotonic() < self._rests_until:
            return
        indexed_up_to = self.indexed_up_to.get(scope_id) or 0
        try:
            waits = await self._db.read(
                lambda conn: rows.index_waits(conn, scope_id, sent_id, after=indexed_up_to),
                small=True,
                single=True,
                of=journal_key,
            )
            if not waits:
                return
            async with asyncio.timeout(SEARCH_SECONDS):
                await self._batches(scope_id)
        except (StoreUnavailable, TimeoutError):
            pass
        except Exception as e:
            # The search needs the index as it is, not its newest part.
            log.warning("a search continues without the newest messages: %s", _describe_defect(e))

    async def stop(self) -> None:
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _batches(self, scope_id: int) -> None:
        """Index until nothing of a scope is pending, in small steps."""
        backlog = ScopeBacklog(scope_id, self.indexed_up_to.get(scope_id) or 0)
        has_more = True
        while has_more:
            try:
                async with asyncio.timeout(STUCK_SECONDS):
                    has_more = await self._batch(SEARCH_BATCH, backlog)
            except TimeoutError as e:
                self._rests_until = time.monotonic() + REST_SECONDS
                raise StoreUnavailable("the store does not accept index updates now") from e
            await asyncio.sleep(0)
        if backlog.newest:
            self.indexed_up_to.put(scope_id, backlog.newest)

    async def _batch(self, max_messages: int, backlog: ScopeBacklog | None = None) -> bool:
        """Index the next messages, a long one alone; return whether more may be pending."""
        look = partial(rows.waiting_size, max_messages=max_messages, backlog=backlog)
        is_long = await self._db.read(look, of=NO_TURNS) > SMALL_TEXT_BYTES
        if is_long:
            max_messages = 1
        reached = backlog

        def index(conn: Connection) -> int:
            # Each attempt begins where the last committed batch ended.
            nonlocal reached
            reached = None if backlog is None else replace(backlog)
            return rows.index_pending(conn, max_messages, reached)

        # What is not filed yet is not read: turns are filed many at a time.
        indexed_count = await self._db.write(
            self._db.apart_from_turns(index), small=not is_long, piece=is_long, lock=NOTHING
        )
        if backlog is not None and reached is not None:
            backlog.before, backlog.newest = reached.before, reached.newest
        return indexed_count == max_messages

    async def _work_on(self) -> None:
        # The first text that needs them would hold everybody up meanwhile.
        try:
            await asyncio.to_thread(load_shared_lists)
        except OSError as e:
            log.warning("the lists of common words cannot be read: %s", e)
        pause = GATHER
        while True:
            await self._some_waiting.wait()
            self._some_waiting.clear()
            patience = LOOKS
            has_more = True
            while has_more:
                patience = await self._wait_until_idle(patience)
                try:
                    has_more = await self._batch(BATCH)
                    pause = GATHER
                except StoreUnavailable:
                    await asyncio.sleep(GATHER)
                except Exception as e:
                    # The task must not end: nothing else would index new messages.
                    log.warning(
                        "indexing of new messages pauses for %.0f s: %s",
                        pause,
                        _describe_defect(e),
                    )
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _wait_until_idle(self, patience: int) -> int:
        """Wait until no turn is running or ended a moment ago, for at most `patience` checks.

        Returns the checks that are left for the next batch, so that constant traffic does not delay
        indexing for ever.
        """
        await asyncio.sleep(PAUSE_SECONDS)
        while self._busy_scopes or time.monotonic() - self._latest_sent < GATHER:
            if patience <= 0:
                return 0
            await asyncio.sleep(GATHER)
            patience -= 1
        return LOOKS


def _describe_defect(error: Exception) -> str:
    """Describe a bug and its location, without its message, which may quote a user."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {where.name}, line {where.lineno}"
