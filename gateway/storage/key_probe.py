"""Read from the database, before it is opened, whether it has API keys.

Who may call must be known before the port is bound (and by commands that open no store), so this
does not wait for the store. Changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from memory.stores.sql.rows.scope_probe import query_database


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Numbers of keys created at run time.

    ever: including revoked ones. live: not revoked. admins: the live ones that are admin keys.
    """

    ever: int = 0
    live: int = 0
    admins: int = 0


NONE = KeyCounts()


def read_key_counts(url: str) -> KeyCounts | None:
    """Count the keys in this database; None if it cannot be read.

    A missing file or table has no keys.
    """
    try:
        rows = query_database(url, "SELECT spec, revoked_at IS NULL FROM keys")
    except OSError:
        return None
    live = [spec for spec, living in rows if living]
    return KeyCounts(len(rows), len(live), sum(map(_admin, live)))


def tenants_of_keys(url: str) -> set[str]:
    """Return the tenants of the unrevoked keys created at run time."""
    try:
        rows = query_database(url, "SELECT DISTINCT tenant FROM keys WHERE revoked_at IS NULL")
    except OSError:
        # Reported by whoever opens it.
        return set()
    return {row[0] for row in rows}


def _admin(spec: str) -> bool:
    try:
        return bool(json.loads(spec)["admin"])
    except (ValueError, TypeError, KeyError):
        return False
