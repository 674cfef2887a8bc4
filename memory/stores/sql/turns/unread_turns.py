"""Turns of a scope that extraction has not read yet.

A conversation's first turn is read together with its second one; one that is never continued is
read when the user is idle. Turns of which no model made anything are set aside: what follows is
read without them, and they are read again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, func, literal_column, null, select, update

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.statements import execute, key_list
from memory.stores.sql.turns.replaced_turns import NAMED_BODY, read_name

n = t.nodes.c
m = t.messages.c
# Spelled as in the partial index, without a parameter.
_CONTINUED = select(n.id).where(
    n.scope_id == bindparam("scope"),
    n.unread.is_not(None),
    n.parent > 0,
    literal_column("unread = 1"),
)
FIRST = _CONTINUED.limit(bindparam("most"))
# Of a turn; one more for each time that it was set aside.
UNREAD = 1
# Messages of a conversation that are looked at for names.
MAX_NAMED = 200
# Times, after which a turn is not read any more.
MAX_SET_ASIDE = 5


@dataclass(frozen=True, slots=True)
class TurnMessage:
    """A message of a turn.

    id: its public id. node: the turn. name: of who said it, "" for none.
    """

    id: str
    node: int
    role: str
    content: str
    at: float
    name: str = ""
    conversation: int = 0


def count(conn: Connection, scope_id: int, max_count: int) -> int:
    """Return the number of unread turns, counted up to `max_count`, without first ones."""
    return len(list(execute(conn, FIRST, {"scope": scope_id, "most": max_count})))


_WAITING = (n.scope_id == bindparam("scope"), n.unread.is_not(None), n.unread == UNREAD)
_OLDEST = (
    select(n.id, n.parent, n.conversation).where(*_WAITING).order_by(n.id).limit(bindparam("most"))
)
_OLDEST_CONTINUED = _OLDEST.where(n.parent > 0)


@cache
def _first_waiting(driver: SqlDriver, column: Any) -> Any:
    return select(n.id).where(*_WAITING, n.parent.is_(None), driver.is_listed(column))


def oldest(conn: Connection, scope_id: int, limit: int, *, first: bool = False) -> list[int]:
    """Return the oldest unread turns, in order, each first one before the one that follows it.

    first: also first turns that nothing followed.
    """
    where = {"scope": scope_id, "most": limit}
    if first:
        return [row.id for row in execute(conn, _OLDEST, where)]
    continued = list(execute(conn, _OLDEST_CONTINUED, where))
    # A fork begins behind the first turn of another conversation.
    before = {
        n.conversation: {x.conversation for x in continued},
        n.id: {x.parent for x in continued},
    }
    first_turns = [
        row.id
        for column, keys in before.items()
        for row in execute(
            conn,
            _first_waiting(sql_driver(conn), column),
            {"scope": scope_id, **key_list(conn, [*keys])},
        )
    ]
    return sorted({*first_turns, *(row.id for row in continued)})


@cache
def _said_in(driver: SqlDriver) -> Any:
    columns = (m.public_id, m.node, m.role, m.content, m.created_at, m.conversation)
    return (
        select(*columns, NAMED_BODY.label("body"))
        .where(
            m.scope_id + 0 == bindparam("scope"),
            driver.is_listed(m.node),
            m.role.in_([literal_column("'user'"), literal_column("'assistant'")]),
            m.source.in_([literal_column("'chat'"), literal_column("'answer'")]),
            m.content != literal_column("''"),
        )
        .order_by(m.node, m.id)
    )


def messages_of(conn: Connection, scope_id: int, nodes: Sequence[int]) -> list[TurnMessage]:
    """Return what users and assistants said in these turns, in their order, no tool results."""
    where = {"scope": scope_id, **key_list(conn, nodes)}
    return [
        TurnMessage(
            r.public_id, r.node, r.role, r.content, r.created_at, read_name(r.body), r.conversation
        )
        for r in execute(conn, _said_in(sql_driver(conn)), where)
    ]


def names_in(conn: Connection, conversation: int) -> set[str]:
    """Return the names of users in a conversation, "" for none, among its newest messages."""
    query = (
        select(NAMED_BODY)
        .where(m.conversation == conversation, m.role == "user")
        .order_by(m.id.desc())
        .limit(MAX_NAMED)
    )
    return {read_name(body) for body in conn.execute(query).scalars()}


@cache
def _read(driver: SqlDriver) -> Any:
    conditions = (n.scope_id == bindparam("scope"), driver.is_listed(n.id))
    return update(t.nodes).where(*conditions).values(unread=null())


def mark_read(conn: Connection, scope_id: int, nodes: Sequence[int]) -> None:
    """Mark these turns as read."""
    execute(conn, _read(sql_driver(conn)), {"scope": scope_id, **key_list(conn, nodes)})


def put_aside(conn: Connection, scope_id: int, nodes: Sequence[int]) -> int:
    """Set turns aside that could not be read; return how often the first of them was before.

    Those that were set aside too often are marked as read.
    """
    driver = sql_driver(conn)
    where = {"scope": scope_id, **key_list(conn, nodes)}
    before = execute(conn, _fewest(driver), where).scalar() or UNREAD
    give_up, count_again = _aside(driver)
    execute(conn, give_up, where)
    execute(conn, count_again, where)
    return int(before) - UNREAD


def _listed_unread(driver: SqlDriver) -> tuple[Any, ...]:
    return (n.scope_id == bindparam("scope"), driver.is_listed(n.id), n.unread.is_not(None))


@cache
def _fewest(driver: SqlDriver) -> Any:
    return select(func.min(n.unread)).where(*_listed_unread(driver))


@cache
def _aside(driver: SqlDriver) -> tuple[Any, Any]:
    """Return what marks turns as read that were set aside too often, and counts once more."""
    unread = _listed_unread(driver)
    give_up = update(t.nodes).where(*unread, n.unread > MAX_SET_ASIDE).values(unread=null())
    return give_up, update(t.nodes).where(*unread).values(unread=n.unread + 1)


def oldest_aside(conn: Connection, scope_id: int, limit: int) -> list[int]:
    """Return the oldest turns that were set aside, in order."""
    aside = (n.scope_id == scope_id, n.unread.is_not(None), n.unread > UNREAD)
    return list(conn.execute(select(n.id).where(*aside).order_by(n.id).limit(limit)).scalars())
