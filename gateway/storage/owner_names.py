"""Finds users by their keyed hash in the log, in all tables that contain user names."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select, union

from memory.scope import owner_key
from memory.stores.sql.engine import schema as t

TABLES = (t.scopes, t.user_policies, t.usage, t.responses)
ALL = union(
    *(select(table.c.tenant, table.c.user).where(table.c.user.is_not(None)) for table in TABLES)
)


def find_owners(
    conn: Connection, secret: bytes, hashes: Collection[bytes]
) -> list[tuple[str, str]]:
    """Return tenant and name of those with these hashes. secret: the server's, which keys them."""
    return [
        (tenant, user)
        for tenant, user in conn.execute(ALL)
        if owner_key(secret, tenant, user) in hashes
    ]
