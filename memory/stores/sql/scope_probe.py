"""Reads from a SQLite file, before it is opened, whose memory it contains.

For commands that open no store. Uses only the standard library and changes nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUSY_SECONDS = 1.0


def query_file(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query. Raises sqlite3.Error if the file cannot be read."""
    with contextlib.closing(
        sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    ) as connection:
        return connection.execute(query, values).fetchall()


def tenants_with_memory(path: Path) -> dict[str, tuple[int, str]]:
    """Return tenants with named users' memory: the number of users, and one of them.

    Empty if the file cannot be read.
    """
    rows = _query(
        path,
        "SELECT tenant, count(DISTINCT user), min(user) FROM scopes WHERE user IS NOT NULL "
        "GROUP BY tenant ORDER BY tenant",
    )
    return {tenant: (count, one) for tenant, count, one in rows}


def tenants_of(path: Path, user: str) -> list[str]:
    """Return the tenants with a user of this name; empty if the file cannot be read."""
    query = "SELECT DISTINCT tenant FROM scopes WHERE user = ? ORDER BY tenant"
    return [row[0] for row in _query(path, query, user)]


def _query(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    if not path.is_file():
        return []
    try:
        return query_file(path, query, *values)
    except sqlite3.Error:  # reported by whoever opens it
        return []
