"""Reads from a database, before it is opened, whose memory it contains.

For commands that open no store. Of a SQLite file it uses only the standard library. Changes
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.stores.sql.engine.database_kinds import load_probe


def query_database(url: str, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, whose parameters are `?`; none of a table that is not there.

    url: of `storage.database`, a file's with its whole path. Raises OSError if the database cannot
    be read.
    """
    rows: list[tuple[Any, ...]] = load_probe(url).query(url, query, *values)
    return rows


def why_not_shared(url: str, secret: bytes) -> str:
    """Return why a worker with this secret and version cannot serve a server's database.

    Empty if it can, or if the database cannot be read now.
    """
    from memory.errors import NotUpgraded
    from memory.stores.sql.engine.preparation import ANOTHERS, fingerprint_of

    probe = load_probe(url)
    try:
        revision = probe.look(url)[1]
    except NotUpgraded as e:
        return str(e)
    except OSError:
        return ""
    if revision is not None and (why := probe.why_not_readable(url, revision)):
        return str(why)
    stored_secret = _query(url, "SELECT value FROM meta WHERE name = 'secret'")
    if stored_secret and stored_secret[0][0] != fingerprint_of(secret):
        return ANOTHERS
    return ""


def tenants_with_memory(url: str) -> dict[str, tuple[int, str]]:
    """Return tenants with named users' memory: the number of users, and one of them.

    Empty if the database cannot be read.
    """
    rows = _query(
        url,
        'SELECT tenant, count(DISTINCT "user"), min("user") FROM scopes WHERE "user" IS NOT NULL '
        "GROUP BY tenant ORDER BY tenant",
    )
    return {tenant: (count, user_name) for tenant, count, user_name in rows}


def tenants_of(url: str, user: str) -> list[str]:
    """Return the tenants with a user of this name; empty if the database cannot be read."""
    query = 'SELECT DISTINCT tenant FROM scopes WHERE "user" = ? ORDER BY tenant'
    return [row[0] for row in _query(url, query, user)]


def users_beginning(url: str, beginnings: Sequence[str], limit: int) -> list[str]:
    """Return names of users that begin so, at most `limit`; none if the database cannot be read."""
    alike = " OR ".join('"user" LIKE ?' for _ in beginnings)
    query = f'SELECT DISTINCT "user" FROM scopes WHERE {alike} ORDER BY "user" LIMIT {limit}'
    return [row[0] for row in _query(url, query, *(f"{text}%" for text in beginnings))]


def _query(url: str, query: str, *values: str) -> list[tuple[Any, ...]]:
    try:
        return query_database(url, query, *values)
    except OSError:
        # Reported by whoever opens it.
        return []
