"""What a turn's session needs of the memory it belongs to."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from memory.blocks import Block
from memory.errors import Erased, MemoryFault, StoreUnavailable
from memory.jobs import summaries
from memory.jobs.queue import under_way
from memory.lines import Lines, Shelf
from memory.messages import Seen
from memory.patience import Patience
from memory.retrieval import Retrieval
from memory.spill import Spill
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import schema as t
from memory.stores.sql import turns
from memory.stores.sql.engine import Database
from memory.stores.sql.owners import Owner, ensure
from memory.stores.sql.rows import put_row
from memory.tokens import Counter

T = TypeVar("T")
log = logging.getLogger("mnemogate")
READ_SECONDS, SAVE_SECONDS = 0.5, 0.25  # for the kept summaries, and for a new one


@dataclass(slots=True)
class Attempt:
    """key: what names the request among its retries. first: no other attempt at it is in flight. shelf: where the next turn finds what
    this one leaves. edited: its tools wrote. patience: what it may still wait for the store."""

    key: bytes | None
    first: bool
    shelf: Shelf | None = None
    edited: bool = False
    patience: Patience = field(default_factory=Patience)

    def edits(self, lines: Lines, scope: bytes, done: bool) -> None:
        """Others must read what its tools wrote, and so must the next turn, unless all of it is `done`: what is late may come at any time.
        So must it where somebody else wrote since this turn began: of what that changed, the blocks alone are read again."""
        alone = self.shelf is not None and lines.shelf(scope) is self.shelf
        lines.forget(scope)
        self.shelf = lines.shelf(scope) if done and alone else None
        self.edited = True

    def blocks(
        self, conn: Connection, shelf: block_rows.Shelf, before: dict[str, Block]
    ) -> dict[str, Block]:
        """Those of a user as the turn leaves them. before: as it found them."""
        return block_rows.all_of(conn, shelf) if self.edited and self.shelf is not None else before


class Keeper(Protocol):
    """What a session needs of the memory it belongs to."""

    db: Database
    lines: Lines
    seen: Seen
    retrieval: Retrieval
    spill: Spill
    busy_nodes: set[int]  # open nodes of turns under way
    continued: dict[int, bytes]  # nodes that a turn under way continues, and by which history

    def counter(self, family: str) -> Counter: ...

    def land(self, flight: bytes | None) -> None: ...


@dataclass(slots=True)
class Writes:
    """What one turn writes. patience: what it may wait for that, in all. heavy: it takes long to look at, and to write."""

    memory: Keeper
    patience: Patience
    heavy: bool = False

    async def look(self, work: Callable[..., T], *args: object) -> T:
        """Do what looks at all that is written: off the event loop where that takes long."""
        return await asyncio.to_thread(work, *args) if self.heavy else work(*args)

    async def write(self, work: Callable[[Connection], T], most: float | None = None) -> T:
        """Writes a few rows, within `most` seconds of the patience; None: begun beside the upstream's work, and whoever waits for it
        counts. Raises Erased, and StoreUnavailable whatever else the store did: no answer of an upstream's is lost by it."""
        try:
            if most is None:
                return await self.memory.db.write(work, small=not self.heavy)
            with self.patience.of(most) as seconds:
                async with asyncio.timeout(seconds):
                    return await self.memory.db.write(work, small=not self.heavy)
        except MemoryFault:
            raise
        except TimeoutError as e:
            raise StoreUnavailable("the store did not take a write in time") from e
        except Exception as e:
            log.exception("the store failed in a way that nobody foresaw")
            raise StoreUnavailable(f"the store failed: {type(e).__name__}") from e

    async def spilled(self, record: turns.Record) -> bool:
        """Keeps in a file what the store did not take. False where that fails too: then it is lost, and the answer goes out all the
        same."""
        try:
            await self.memory.spill.keep(record)
        except Exception:
            log.exception(
                "an answer is lost to the memory: neither the store nor the spill file took it"
            )
            return False
        return True


@dataclass(slots=True)
class Summaries:
    """The kept summaries of one scope, as `fit` asks for them. found: the conversation this turn goes on, None for none. into: the one
    that new ones belong to, None where nothing is stored. notes: told what went wrong. behind: the link of what was said before the
    request's messages, and what stands for it: a summary that need not be kept."""

    db: Database
    owner: Owner
    scope_id: int | None
    found: int | None
    into: int | None
    notes: list[str]
    patience: Patience = field(default_factory=Patience)
    behind: tuple[bytes, str] | None = None

    async def load(self, links: Sequence[bytes]) -> list[tuple[bytes, str]]:
        """Those of histories that end in one of these links, each with its link. Raises StoreUnavailable."""
        if (scope_id := self.scope_id) is None:
            return []
        with self.patience.of(READ_SECONDS) as seconds:
            found = list(
                await self.db.read(lambda conn: turns.summaries(conn, scope_id, links), seconds)
            )
        if (
            self.behind is not None
            and self.behind[0] in links
            and all(link != self.behind[0] for link, _ in found)
        ):
            found.append(self.behind)
        return found

    async def coming(self) -> bool:
        """Whether one is being made. Raises StoreUnavailable."""
        if (found := self.found) is None:
            return False
        with self.patience.of(READ_SECONDS) as seconds:
            return await self.db.read(
                lambda conn: under_way(conn, summaries.KIND, found), seconds, small=True
            )

    async def save(self, link: bytes, text: str, count: int) -> None:
        """Keeps one, of `count` messages, for the histories that go on from this link."""
        if self.into is None:
            return

        def work(conn: Connection) -> None:
            scope_id = ensure(conn, self.owner)
            put_row(
                conn,
                t.summaries,
                ("scope_id", "chain"),
                scope_id=scope_id,
                conversation=self.into,
                chain=link,
                content=text,
                count=count,
                created_at=time.time(),
            )

        keeping = asyncio.ensure_future(
            self._kept(work)
        )  # a store that is late goes on with it by itself
        with self.patience.of(SAVE_SECONDS) as seconds:
            await asyncio.wait([keeping], timeout=seconds)

    async def _kept(self, work: Callable[[Connection], None]) -> None:
        try:
            await self.db.write(work)
        except (StoreUnavailable, Erased):
            self.notes.append("the summary could not be kept")
