"""Writes long works in pieces, each a short transaction, so that other writes wait only a moment.

The size of a piece is measured, not guessed: it ends after `ROWS` rows or `SECONDS`, whichever
comes first. So it is as short on a slow machine, or with large rows, as on a fast one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from memory.stores.sql.engine.write_lock import EVERYTHING, WriteLock

T = TypeVar("T")
ROWS = 200
BATCH_SECONDS = 0.04
# Rows removed by one statement, between two checks of the time.
ROWS_PER_STATEMENT = 20
# Seconds of work on the event loop before others may run.
GLANCE = 0.002


class WriterShare:
    """What one piece may take, in rows and in time since its creation."""

    def __init__(self, rows: int = ROWS, seconds: float = BATCH_SECONDS) -> None:
        self.rows = rows
        self._until = time.monotonic() + seconds

    def count_row(self, rows: int = 1) -> bool:
        """Count rows as done; return whether the piece has to end."""
        self.rows -= rows
        return self.rows <= 0 or time.monotonic() >= self._until


class BatchedWork(Protocol):
    """Where pieces are written; see `database.Database`."""

    async def write(
        self, work: Callable[[Connection], T], *, piece: bool = False, lock: WriteLock = EVERYTHING
    ) -> T: ...


async def write_batches(
    db: BatchedWork,
    write_piece: Callable[[Connection, WriterShare], T | None],
    lock: WriteLock = EVERYTHING,
) -> Sequence[T]:
    """Write pieces until one returns None; return their results.

    lock: see `write_lock`, for each piece.
    Raises what a piece raised; earlier ones stay written.
    """
    results: list[T] = []
    while (
        piece_result := await db.write(
            lambda conn: write_piece(conn, WriterShare()), piece=True, lock=lock
        )
    ) is not None:
        results.append(piece_result)
        await asyncio.sleep(0)
    return results


async def run_generator(
    db: BatchedWork,
    steps: Iterator[int],
    opening: Callable[[Connection], None],
    lock: WriteLock = EVERYTHING,
) -> None:
    """Write the work of a generator, which yields the number of rows after each step.

    Every piece continues where the previous one ended. opening: called first in each piece, with
    its connection.
    """

    def piece(conn: Connection, share: WriterShare) -> bool | None:
        opening(conn)
        if any(share.count_row(rows) for rows in steps):
            return True
        return None

    await write_batches(db, piece, lock)


class QuickRead:
    """Work on the event loop in steps: `rest` lets others run once a step took long enough."""

    def __init__(self) -> None:
        self._until = time.monotonic() + GLANCE

    async def rest(self) -> None:
        if time.monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = time.monotonic() + GLANCE
