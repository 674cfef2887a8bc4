"""What a SQLite file tells before anything is opened: whether keys were made in it.

The standard library alone, and nothing is changed.

Who may call is to be known before the port is bound (and by commands that open no store), so this
does not wait for the database.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from memory.stores.sql.scope_probe import query_file


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Keys made at run time.

    ever: all of them, revoked ones counted. live: those not revoked. admins: those of them that are
    an admin's.
    """

    ever: int = 0
    live: int = 0
    admins: int = 0


NONE = KeyCounts()


def read_key_counts(path: Path) -> KeyCounts | None:
    """Return the keys in this file: none where there is no file or no table, None where it cannot
    be read.
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
    """Return the tenants of the keys made at run time that are not revoked."""
    if not path.is_file():
        return set()
    try:
        rows = query_file(path, "SELECT DISTINCT tenant FROM keys WHERE revoked_at IS NULL")
    except sqlite3.Error:  # told by whoever opens it
        return set()
    return {row[0] for row in rows}


def _admin(spec: str) -> bool:
    try:
        return bool(json.loads(spec)["admin"])
    except (ValueError, TypeError, KeyError):
        return False
