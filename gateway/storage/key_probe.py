"""Read from a SQLite file, before the database is opened, whether it has API keys.

Who may call must be known before the port is bound (and by commands that open no store), so this
does not wait for the database. Uses only the standard library and changes nothing.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from memory.stores.sql.scope_probe import query_file


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Numbers of keys created at run time.

    ever: including revoked ones. live: not revoked. admins: the live ones that are admin keys.
    """

    ever: int = 0
    live: int = 0
    admins: int = 0


NONE = KeyCounts()


def read_key_counts(path: Path) -> KeyCounts | None:
    """Count the keys in this file; None if it cannot be read.

    A missing file or table has no keys.
    """
    if not path.is_file():
        return NONE
    try:
        if not query_file(
            path, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'keys'"
        ):
            return NONE
        rows = query_file(path, "SELECT spec, revoked_at IS NULL FROM keys")
    except sqlite3.Error:
        return None
    live = [spec for spec, living in rows if living]
    return KeyCounts(len(rows), len(live), sum(map(_admin, live)))


def tenants_of_keys(path: Path) -> set[str]:
    """Return the tenants of the unrevoked keys created at run time."""
    if not path.is_file():
        return set()
    try:
        rows = query_file(path, "SELECT DISTINCT tenant FROM keys WHERE revoked_at IS NULL")
    except sqlite3.Error:  # reported by whoever opens it
        return set()
    return {row[0] for row in rows}


def _admin(spec: str) -> bool:
    try:
        return bool(json.loads(spec)["admin"])
    except (ValueError, TypeError, KeyError):
        return False
