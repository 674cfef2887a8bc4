"""The stored summaries of one scope, as a turn reads and writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import Connection

from memory.errors import ErasedMeanwhile, StoreUnavailable
from memory.ids import clock
from memory.jobs import summarization
from memory.session.store_deadline import StoreDeadline
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.statements import put_row
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows.jobs import under_way
from memory.stores.sql.rows.scopes import ScopeOwner, get_or_create
from memory.stores.sql.turns import turn_reader

READ_SECONDS = 0.5
SAVE_SECONDS = 0.25


class KeptSummaries(msgspec.Struct):
    """The stored summaries of one scope, as the compaction uses them.

    continued_conversation: the conversation this turn continues, None for none. into: the
    conversation of new summaries, None if nothing is stored. notes: collects failures.
    earlier_summary: link of the part before the request's messages, with its summary, which need
    not be stored.
    """

    db: Database
    owner: ScopeOwner
    scope_id: int | None
    continued_conversation: int | None
    into: int | None
    notes: list[str]
    patience: StoreDeadline = msgspec.field(default_factory=StoreDeadline)
    earlier_summary: tuple[bytes, str] | None = None

    async def load(self, links: Sequence[bytes]) -> list[tuple[bytes, str]]:
        """Return the summaries of histories that end in one of these links, with the link.

        Raises StoreUnavailable.
        """
        if (scope_id := self.scope_id) is None:
            return []
        with self.patience.of(READ_SECONDS) as seconds:
            summaries = list(
                await self.db.read(
                    lambda conn: turn_reader.summaries(conn, scope_id, links), seconds
                )
            )
        if (
            self.earlier_summary is not None
            and self.earlier_summary[0] in links
            and all(link != self.earlier_summary[0] for link, _ in summaries)
        ):
            summaries.append(self.earlier_summary)
        return summaries

    async def is_coming(self) -> bool:
        """Tell whether a summary is being made in the background. Raises StoreUnavailable."""
        if (conversation := self.continued_conversation) is None:
            return False
        with self.patience.of(READ_SECONDS) as seconds:
            return await self.db.read(
                lambda conn: under_way(conn, summarization.KIND, conversation), seconds, small=True
            )

    async def save(self, link: bytes, text: str, count: int) -> None:
        """Store a summary of `count` messages for the histories that continue this link."""
        if self.into is None:
            return

        def work(conn: Connection) -> None:
            scope_id = get_or_create(conn, self.owner)
            put_row(
                conn,
                t.summaries,
                ("scope_id", "chain"),
                scope_id=scope_id,
                conversation=self.into,
                chain=link,
                content=text,
                count=count,
                created_at=clock.now(),
            )

        # A late write completes by itself.
        keeping = asyncio.ensure_future(self._write_kept(work))
        with self.patience.of(SAVE_SECONDS) as seconds:
            await asyncio.wait([keeping], timeout=seconds)

    async def _write_kept(self, work: Callable[[Connection], None]) -> None:
        try:
            scope = self.owner.scope
            lock = owner_lock(scope.tenant, scope.user, self.into)
            await self.db.write(work, lock=lock)
        except (StoreUnavailable, ErasedMeanwhile):
            self.notes.append("the summary could not be stored")
