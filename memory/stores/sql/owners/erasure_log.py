"""What the log says of erasures, so that they can be repeated in a database that was restored."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from sqlalchemy import Connection

from memory.stores.sql.rows import scopes

log = logging.getLogger("mnemogate")
LINE = re.compile(r"erased owner=([0-9a-f]{32}) at=(\d+(?:\.\d+)?)")


def note(owner: bytes, at: float) -> None:
    """Log an erasure, without a name. at: Unix time."""
    log.info("erased owner=%s at=%.3f", owner.hex(), at)


def parse_lines(lines: Iterable[str]) -> dict[bytes, float]:
    """Return the owners that a log says were erased, and when last."""
    found: dict[bytes, float] = {}
    for line in lines:
        for owner, at in LINE.findall(line):
            key = bytes.fromhex(owner)
            found[key] = max(float(at), found.get(key, 0.0))
    return found


def find_undone(conn: Connection, logged: dict[bytes, float]) -> list[bytes]:
    """Return the owners whose erasure this database does not know of."""
    known = scopes.erased_at(conn, list(logged))
    # The log's time is taken before the database's, and has three digits after the point.
    return [owner for owner, at in logged.items() if known.get(owner, 0.0) < at - 0.001]
