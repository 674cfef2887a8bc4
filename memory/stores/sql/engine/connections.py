"""The port for the connections of a database, where works run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sqlalchemy import Connection

from memory.stores.sql.engine.shortcut import Shortcut
from memory.stores.sql.engine.write_lock import WriteLock
from memory.stores.sql.index.index_changes import IndexChanges

if TYPE_CHECKING:
    from memory.stores.sql.engine.postgres.postgres_lease import SlotLease

T = TypeVar("T")
Work = Callable[[Connection], T]


class Connections(Protocol):
    """Where work runs: reads in parallel, groups of writes one after the other.

    Each group is one transaction. pause: small writes wait for it. checkpoint: pieces of long work
    wait for it, which would write more than it brings in. lease: without it nothing is
    written; None where none is needed.
    """

    pause: asyncio.Future[None] | None
    checkpoint: asyncio.Task[None] | None
    # Of small writes, none where nothing runs `at_once`.
    index_changes: IndexChanges
    # Writes run side by side, each in its own transaction (`write_one`).
    parallel: bool

    @property
    def lease(self) -> SlotLease | None: ...

    def need_lease(self) -> None: ...

    async def open(self) -> None: ...

    async def fill(self) -> None: ...

    async def read(self, work: Work[T], *, single: bool = False) -> T: ...

    async def write(self, works: Sequence[Work[Any]]) -> list[Any]: ...

    async def write_one(
        self,
        work: Work[T],
        lock: WriteLock,
        *,
        once: bool,
        is_wanted: Callable[[], bool],
        shortcut: Shortcut[T] | None,
    ) -> T: ...

    def at_once(self, works: Sequence[Work[Any]], *, reading: bool = False) -> list[Any] | None:
        """Run small writes, or reads, at once in one transaction; None if they must wait."""
        ...

    def version(self) -> int | None:
        """Return a number that only changes if somebody writes other than by `at_once`.

        None if that is unknown.
        """
        ...

    async def close(self) -> None: ...
