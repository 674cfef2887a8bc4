"""What a SQLite file tells of whose memory it holds, before anything is opened.

The standard library alone, and nothing is changed: for commands that open no store.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUSY_SECONDS = 1.0


def query_file(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query. Raises sqlite3.Error where the file cannot be read."""
    with contextlib.closing(
        sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
    ) as connection:
        return connection.execute(query, values).fetchall()


def tenants_with_memory(path: Path) -> dict[str, tuple[int, str]]:
    """Return the tenants with memory of named users: how many those are, and one of them.

    Nothing where it cannot be read.
    """
    rows = _query(
        path,
        "SELECT tenant, count(DISTINCT user), min(user) FROM scopes WHERE user IS NOT NULL "
        "GROUP BY tenant ORDER BY tenant",
    )
    return {tenant: (count, one) for tenant, count, one in rows}


def tenants_of(path: Path, user: str) -> list[str]:
    """Return the tenants that know a user of this name. Nothing where it cannot be read."""
    query = "SELECT DISTINCT tenant FROM scopes WHERE user = ? ORDER BY tenant"
    return [row[0] for row in _query(path, query, user)]


def _query(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    if not path.is_file():
        return []
    try:
        return query_file(path, query, *values)
    except sqlite3.Error:  # told by whoever opens it
        return []
