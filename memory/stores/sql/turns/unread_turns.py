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

from sqlalchemy import Connection, bindparam, case, func, literal_column, null, or_, select, update

from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.statements import execute, key_list
from memory.stores.sql.turns.replaced_turns import NAMED_CHARACTERS, read_name

n, m = t.nodes.c, t.messages.c
# Spelled as in the partial index, without a parameter.
_CONTINUED = select(n.id).where(
    n.scope_id == bindparam("scope"),
    n.unread.is_not(None),
    n.parent > 0,
    literal_column("unread = 1"),
)
FIRST = _CONTINUED.limit(bindparam("most"))
UNREAD = 1  # of a turn; one more for each time that it was set aside
MAX_NAMED = 200  # messages of a conversation that are looked at for names
MAX_SET_ASIDE = 5  # times, after which a turn is not read any more


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


def count(conn: Connection, scope_id: int, most: int) -> int:
    """Return the number of unread turns, counted up to `most`, without first ones."""
    return len(list(execute(conn, FIRST, {"scope": scope_id, "most": most})))


def oldest(conn: Connection, scope_id: int, limit: int, *, first: bool = False) -> list[int]:
    """Return the oldest unread turns, in order, each first one before the one that follows it.

    first: also first turns that nothing followed.
    """
    waiting = (n.scope_id == scope_id, n.unread.is_not(None), n.unread == UNREAD)
    if first:
        every = select(n.id).where(*waiting).order_by(n.id).limit(limit)
        return list(conn.execute(every).scalars())
    query = select(n.id, n.parent, n.conversation).where(*waiting, n.parent > 0)
    found = conn.execute(query.order_by(n.id).limit(limit)).all()
    # A fork begins behind the first turn of another conversation.
    begun = select(n.id).where(
        *waiting,
        n.parent.is_(None),
        or_(
            n.conversation.in_({row.conversation for row in found}),
            n.id.in_({row.parent for row in found}),
        ),
    )
    return sorted({*conn.execute(begun).scalars(), *(row.id for row in found)})


def messages_of(conn: Connection, scope_id: int, nodes: Sequence[int]) -> list[TurnMessage]:
    """Return what users and assistants said in these turns, in order, without tool results."""
    query = (
        select(
            m.public_id,
            m.node,
            m.role,
            m.content,
            m.created_at,
            case((func.length(m.body) <= NAMED_CHARACTERS, m.body), else_="").label("body"),
            m.conversation,
        )
        .where(
            m.scope_id + 0 == scope_id,
            m.node.in_(nodes),
            m.role.in_(("user", "assistant")),
            m.source.in_(("chat", "answer")),
            m.content != "",
        )
        .order_by(m.id)
    )
    return [
        TurnMessage(
            r.public_id, r.node, r.role, r.content, r.created_at, read_name(r.body), r.conversation
        )
        for r in conn.execute(query)
    ]


def names_in(conn: Connection, conversation: int) -> set[str]:
    """Return the names of users in a conversation, "" for none, among its newest messages."""
    query = (
        select(case((func.length(m.body) <= NAMED_CHARACTERS, m.body), else_=""))
        .where(m.conversation == conversation, m.role == "user")
        .order_by(m.id.desc())
        .limit(MAX_NAMED)
    )
    return {read_name(body) for body in conn.execute(query).scalars()}


@cache
def _read(driver: SqlDriver) -> Any:
    mine = (n.scope_id == bindparam("scope"), driver.is_listed(n.id))
    return update(t.nodes).where(*mine).values(unread=null())


def mark_read(conn: Connection, scope_id: int, nodes: Sequence[int]) -> None:
    """Mark these turns as read."""
    execute(conn, _read(sql_driver(conn)), {"scope": scope_id, **key_list(conn, nodes)})


def put_aside(conn: Connection, scope_id: int, nodes: Sequence[int]) -> int:
    """Set turns aside that could not be read; return how often the first of them was before.

    Those that were set aside too often are marked as read.
    """
    turns = (n.scope_id == scope_id, n.id.in_(nodes), n.unread.is_not(None))
    before = conn.execute(select(func.min(n.unread)).where(*turns)).scalar() or UNREAD
    conn.execute(update(t.nodes).where(*turns, n.unread > MAX_SET_ASIDE).values(unread=null()))
    conn.execute(update(t.nodes).where(*turns).values(unread=n.unread + 1))
    return int(before) - UNREAD


def oldest_aside(conn: Connection, scope_id: int, limit: int) -> list[int]:
    """Return the oldest turns that were set aside, in order."""
    aside = (n.scope_id == scope_id, n.unread.is_not(None), n.unread > UNREAD)
    return list(conn.execute(select(n.id).where(*aside).order_by(n.id).limit(limit)).scalars())
