"""Turns with an agent that keeps one conversation follow each other over all workers."""

from __future__ import annotations

from functools import partial

from memory.management.reading import read
from memory.scope import home_of
from memory.service import Memory
from memory.stores.sql.engine.write_lock import WriteLock, owner_lock
from memory.stores.sql.rows import agent_turns as rows
from memory.stores.sql.rows.agent_turns import LinePlace

__all__ = ["LinePlace", "enter_line", "is_first", "leave_line", "place_in_line"]


def place_in_line(memory: Memory, tenant: str, agent: str) -> LinePlace | None:
    """Return this worker's place at an agent; None where no other worker can serve it."""
    holder = memory.db.holder
    if holder is not None:
        return LinePlace(tenant, agent, holder)
    return None


async def enter_line(memory: Memory, place: LinePlace) -> bool:
    """Stand in line; tell whether it is this worker's turn. Raises StoreUnavailable."""
    return await memory.db.write(partial(rows.enter, place=place), lock=_lock_of(place))


async def is_first(memory: Memory, place: LinePlace) -> bool | None:
    """Tell whether it is this worker's turn now; None if it must enter again.

    Raises StoreUnavailable.
    """
    return await read(memory, partial(rows.is_first, place=place))


async def leave_line(memory: Memory, place: LinePlace) -> None:
    """Let the next worker have the turn. Raises StoreUnavailable."""
    await memory.db.write(partial(rows.leave, place=place), lock=_lock_of(place))


def _lock_of(place: LinePlace) -> WriteLock:
    return owner_lock(place.tenant, home_of(place.agent))
