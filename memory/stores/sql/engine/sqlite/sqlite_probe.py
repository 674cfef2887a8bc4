"""Reads a SQLite file before a store is opened, with the standard library alone."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUSY_SECONDS = 1.0


def query(url: str, sql: str, *values: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query; none if its table, or the file, does not exist.

    url: with the file's whole path. Raises OSError if the database cannot be read.
    """
    path = url.partition(":///")[2]
    if not Path(path).is_file():
        return []
    try:
        with contextlib.closing(
            sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        ) as connection:
            return connection.execute(sql, values).fetchall()
    except sqlite3.Error as e:
        if str(e).startswith("no such table"):
            return []
        raise OSError(f"{type(e).__name__}: {e}") from e
