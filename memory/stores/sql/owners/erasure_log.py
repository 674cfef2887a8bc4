"""What the log says of erasures, so that they can be repeated in a database that was restored."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from sqlalchemy import Connection

from memory.stores.sql.rows import scopes

log = logging.getLogger("mnemogate")
LINE = re.compile(r"erased owner=([0-9a-f]{32}) at=(\d+(?:\.\d+)?)")


def note(owner: bytes, erased_at: float) -> None:
    """Log an erasure, without a name. erased_at: Unix time."""
    log.info("erased owner=%s at=%.3f", owner.hex(), erased_at)


def parse_lines(lines: Iterable[str]) -> dict[bytes, float]:
    """Return the owners that a log says were erased, and when last."""
    erased_owners: dict[bytes, float] = {}
    for line in lines:
        for owner, erased_at in LINE.findall(line):
            key = bytes.fromhex(owner)
            erased_owners[key] = max(float(erased_at), erased_owners.get(key, 0.0))
    return erased_owners


def find_undone(conn: Connection, logged_owners: dict[bytes, float]) -> list[bytes]:
    """Return the owners whose erasure this database does not know of."""
    erased_in_database = scopes.erased_at(conn, list(logged_owners))
    # The log's time is taken before the database's, and has three digits after the point.
    return [
        owner
        for owner, erased_at in logged_owners.items()
        if erased_in_database.get(owner, 0.0) < erased_at - 0.001
    ]
