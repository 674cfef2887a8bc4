"""The line of workers at an agent whose conversation is kept here: one turn after the other.

A worker has at most one row for an agent: its own requests follow each other already. Who is first
and lives has the turn. Who is no longer alive (see `postgres_lease`) is passed over, and writes
nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select

from memory.stores.sql.engine.agent_tables import agent_turns
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import execute

x = agent_turns.c
LINE = (
    select(x.holder, x.position)
    .where(x.tenant == bindparam("tenant"), x.agent == bindparam("agent"))
    .order_by(x.position, x.holder)
)
LEAVE = delete(agent_turns).where(
    x.tenant == bindparam("tenant"),
    x.agent == bindparam("agent"),
    x.holder == bindparam("holder"),
)


class LinePlace(NamedTuple):
    """A worker's place at an agent. holder: the worker."""

    tenant: str
    agent: str
    holder: int


def enter(conn: Connection, place: LinePlace) -> bool:
    """Stand in line, and tell whether it is this worker's turn.

    The caller holds the lock of the agent, so that positions are in the order of the commits.
    """
    rows = _read_line(conn, place)
    living = [row for row in rows if row.holder == place.holder or _is_alive(conn, row.holder)]
    for row in rows:
        if row not in living:
            leave(conn, place._replace(holder=row.holder))
    if not any(row.holder == place.holder for row in living):
        last = max((row.position for row in living), default=0)
        conn.execute(insert(agent_turns).values(**place._asdict(), position=last + 1))
    return not living or living[0].holder == place.holder


def is_first(conn: Connection, place: LinePlace) -> bool | None:
    """Tell whether it is this worker's turn; None if others took it for dead."""
    for row in _read_line(conn, place):
        if row.holder == place.holder:
            return True
        if _is_alive(conn, row.holder):
            return False
    return None


def leave(conn: Connection, place: LinePlace) -> None:
    """Let the next one have the turn."""
    execute(conn, LEAVE, place._asdict())


def _read_line(conn: Connection, place: LinePlace) -> Sequence[Any]:
    rows: Sequence[Any] = execute(conn, LINE, {"tenant": place.tenant, "agent": place.agent})
    return rows


def _is_alive(conn: Connection, holder: int) -> bool:
    return sql_driver(conn).is_worker_alive(conn, holder)
