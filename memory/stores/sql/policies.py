"""What the memory may do for a user, where that is less than everything.

A user who has no row has no policy of their own: `full`.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from memory.ids import clock
from memory.stores.sql import schema as t
from memory.stores.sql.scopes import UserName
from memory.stores.sql.sql_driver import sql_driver
from memory.stores.sql.statements import Query, execute_sql

p = t.user_policies.c
OF_USER = select(p.memory).where(p.tenant == bindparam("tenant"), p.user == bindparam("user"))
ONE = select(p.tenant).limit(1)
FULL = "full"
CHANGES = "policies"
CHANGED = select(t.meta.c.value).where(t.meta.c.name == bindparam("name"))


def find(conn: Connection, who: UserName) -> str:
    """Return the policy of a user."""
    return conn.execute(OF_USER, _name(who)).scalar() or FULL


def any_set(conn: Connection) -> bool:
    """Tell whether any user has a policy of their own."""
    return conn.execute(ONE).first() is not None


def changes() -> Query:
    """Return the query for what differs after each change that any worker made."""
    return Query(CHANGED, {"name": CHANGES})


def _tell_others(conn: Connection) -> None:
    """Let other workers notice a change."""
    if sql_driver(conn).is_shared:
        execute_sql(
            conn,
            f"INSERT INTO meta (name, value) VALUES ('{CHANGES}', '1') ON CONFLICT (name) DO "
            "UPDATE SET value = (meta.value::bigint + 1)::text",
        )


def put(conn: Connection, who: UserName, memory: str) -> None:
    """Set the policy of a user."""
    values = {"memory": memory, "updated_at": clock.now()}
    own = (p.tenant == who[0]) & (p.user == who[1])
    if memory == FULL:
        remove(conn, who)
    elif not conn.execute(update(t.user_policies).where(own).values(**values)).rowcount:
        conn.execute(insert(t.user_policies).values(**_name(who), **values))
    _tell_others(conn)


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give the policy of a user, if there is one, to another name."""
    if (memory := find(conn, source)) != FULL:
        remove(conn, source)
        put(conn, target, memory)


def remove(conn: Connection, who: UserName) -> None:
    """Remove the policy of a user."""
    conn.execute(delete(t.user_policies).where(p.tenant == who[0], p.user == who[1]))
    _tell_others(conn)


def _name(who: UserName) -> dict[str, str]:
    return {"tenant": who[0], "user": who[1]}
