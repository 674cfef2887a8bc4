"""What a SQLite file tells before anything is opened: whether keys were made in it. The standard library alone, and nothing is changed.

Who may call is to be known before the port is bound (and by commands that open no store), so this does not wait for the database.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUSY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Made:
    """Keys made at run time. ever: all of them, revoked ones counted. live: those not revoked. admins: those of them that are an admin's."""

    ever: int = 0
    live: int = 0
    admins: int = 0


NONE = Made()


def glance(path: Path) -> Made | None:
    """The keys in this file: none where there is no file or no table, None where it cannot be read."""
    if not path.is_file():
        return NONE
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        ) as connection:
            if not connection.execute(
                "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'keys'"
            ).fetchone():
                return NONE
            rows = connection.execute("SELECT spec, revoked_at IS NULL FROM keys").fetchall()
    except sqlite3.Error:
        return None
    live = [spec for spec, living in rows if living]
    return Made(len(rows), len(live), sum(map(_admin, live)))


def remembered(path: Path) -> dict[str, tuple[int, str]]:
    """The tenants with memory of named users: how many those are, and one of them. Nothing where it cannot be read."""
    rows = _asked(
        path,
        "SELECT tenant, count(DISTINCT user), min(user) FROM scopes WHERE user IS NOT NULL GROUP BY tenant ORDER BY tenant",
    )
    return {tenant: (count, one) for tenant, count, one in rows}


def tenants_of(path: Path, user: str) -> list[str]:
    """The tenants that know a user of this name. Nothing where it cannot be read."""
    return [
        row[0]
        for row in _asked(
            path, "SELECT DISTINCT tenant FROM scopes WHERE user = ? ORDER BY tenant", user
        )
    ]


def tenants_of_keys(path: Path) -> set[str]:
    """The tenants of the keys made at run time that are not revoked."""
    return {
        row[0] for row in _asked(path, "SELECT DISTINCT tenant FROM keys WHERE revoked_at IS NULL")
    }


def _asked(path: Path, query: str, *values: str) -> list[tuple[Any, ...]]:
    if not path.is_file():
        return []
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        ) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.Error:  # told by whoever opens it
        return []


def _admin(spec: str) -> bool:
    try:
        return bool(json.loads(spec)["admin"])
    except (ValueError, TypeError, KeyError):
        return False
