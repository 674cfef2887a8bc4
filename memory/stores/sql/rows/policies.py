"""What the memory may do for a user, where that is less than everything, and their time zone.

A user who has no row has no policy of their own: `full`, in the zone of the memory.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import Query, execute_sql
from memory.stores.sql.rows.scopes import UserName

p = t.user_policies.c
OF_USER = select(p.memory, p.timezone, p.tools).where(
    p.tenant == bindparam("tenant"), p.user == bindparam("user")
)
ONE = select(p.tenant).limit(1)
FULL = "full"
CHANGES = "policies"
CHANGED = select(t.meta.c.value).where(t.meta.c.name == bindparam("name"))


class StoredPolicy(NamedTuple):
    """A user's policy.

    timezone: by its IANA name, "" for that of the memory. tools: patterns of the operator's tools
    that the user may have, as JSON; "" for all.
    """

    memory: str = FULL
    timezone: str = ""
    tools: str = ""


NO_POLICY = StoredPolicy()


def find(conn: Connection, who: UserName) -> StoredPolicy:
    """Return the policy of a user."""
    row = conn.execute(OF_USER, _name(who)).first()
    return (
        NO_POLICY
        if row is None
        else StoredPolicy(row.memory or FULL, row.timezone or "", row.tools or "")
    )


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


def put(
    conn: Connection,
    who: UserName,
    memory: str | None = None,
    timezone: str | None = None,
    tools: str | None = None,
) -> StoredPolicy:
    """Set the policy of a user, and return it. A member that is None stays as it is."""
    before = find(conn, who)
    policy = StoredPolicy(
        before.memory if memory is None else memory,
        before.timezone if timezone is None else timezone,
        before.tools if tools is None else tools,
    )
    values = {**policy._asdict(), "updated_at": clock.now()}
    own = (p.tenant == who[0]) & (p.user == who[1])
    if policy == NO_POLICY:
        remove(conn, who)
    elif not conn.execute(update(t.user_policies).where(own).values(**values)).rowcount:
        conn.execute(insert(t.user_policies).values(**_name(who), **values))
    _tell_others(conn)
    return policy


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give the policy of a user, if there is one, to another name."""
    if (policy := find(conn, source)) != NO_POLICY:
        remove(conn, source)
        put(conn, target, *policy)


def remove(conn: Connection, who: UserName) -> None:
    """Remove the policy of a user."""
    conn.execute(delete(t.user_policies).where(p.tenant == who[0], p.user == who[1]))
    _tell_others(conn)


def _name(who: UserName) -> dict[str, str]:
    return {"tenant": who[0], "user": who[1]}
