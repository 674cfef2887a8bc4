"""What the memory may do for a user, where that is less than everything, and their time zone.

A user who has no row has no policy of their own: `full`, in the zone of the memory.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from memory.core.layers import LAYER_KINDS
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import Query, execute, execute_sql
from memory.stores.sql.rows import shared_blocks
from memory.stores.sql.rows.scopes import UserName

p = t.user_policies.c
OF_USER = select(p.memory, p.timezone, p.tools, p.layers).where(
    p.tenant == bindparam("tenant"), p.user == bindparam("user")
)
ONE = select(p.tenant).limit(1)
FULL = "full"
CHANGES = "policies"
CHANGED = select(t.meta.c.value).where(t.meta.c.name == bindparam("name"))


class StoredPolicy(NamedTuple):
    """A user's policy.

    timezone: by its IANA name, "" for that of the memory. tools: patterns of the operator's tools
    that the user may have, as JSON; "" for all. layers: the kinds of layers that the user's
    requests read beside their own memory.
    """

    memory: str = FULL
    timezone: str = ""
    tools: str = ""
    layers: tuple[str, ...] = LAYER_KINDS


class PolicyEdit(NamedTuple):
    """What changes of a policy, see `StoredPolicy`; a member that is None stays as it is."""

    memory: str | None = None
    timezone: str | None = None
    tools: str | None = None
    layers: tuple[str, ...] | None = None


NO_POLICY = StoredPolicy()


def find(conn: Connection, who: UserName) -> StoredPolicy:
    """Return the policy of a user."""
    row = execute(conn, OF_USER, _name(who)).first()
    if row is None:
        return NO_POLICY
    return StoredPolicy(
        row.memory or FULL, row.timezone or "", row.tools or "", _read_layers(row.layers)
    )


def _read_layers(stored_layers: str | None) -> tuple[str, ...]:
    if stored_layers is None:
        return LAYER_KINDS
    return tuple(kind for kind in LAYER_KINDS if kind in stored_layers.split(","))


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


def put(conn: Connection, who: UserName, edit: PolicyEdit) -> StoredPolicy:
    """Set the policy of a user, and return it."""
    old_policy = find(conn, who)
    changes = {name: value for name, value in edit._asdict().items() if value is not None}
    if edit.layers is not None:
        changes["layers"] = tuple(kind for kind in LAYER_KINDS if kind in edit.layers)
    policy = old_policy._replace(**changes)
    values = {**policy._asdict(), "updated_at": clock.now()}
    values["layers"] = None if policy.layers == LAYER_KINDS else ",".join(policy.layers)
    is_owned = (p.tenant == who[0]) & (p.user == who[1])
    if policy == NO_POLICY:
        remove(conn, who)
    elif not conn.execute(update(t.user_policies).where(is_owned).values(**values)).rowcount:
        conn.execute(insert(t.user_policies).values(**_name(who), **values))
    # What is kept of the user's blocks is outdated.
    if policy.layers != old_policy.layers:
        shared_blocks.raise_changes(conn, who[0])
    _tell_others(conn)
    return policy


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give the policy of a user, if there is one, to another name."""
    if (policy := find(conn, source)) != NO_POLICY:
        remove(conn, source)
        put(conn, target, PolicyEdit(*policy))


def remove(conn: Connection, user_name: UserName) -> None:
    """Remove the policy of a user."""
    conn.execute(delete(t.user_policies).where(p.tenant == user_name[0], p.user == user_name[1]))
    _tell_others(conn)


def _name(user_name: UserName) -> dict[str, str]:
    return {"tenant": user_name[0], "user": user_name[1]}
