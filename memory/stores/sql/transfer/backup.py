"""Copies a SQLite database, consistently, while others read and write it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from memory.errors import StoreUnavailable

BUSY_SECONDS = 10.0


def backup(source: Path, target: Path) -> int:
    """Copy the database, including its write-ahead log, and return the size of the copy.

    Uses SQLite's own backup in one step: a reader's view, which blocks no writer. The copy is
    complete and on disk before it gets its name. Raises FileExistsError, having changed nothing;
    OSError; StoreUnavailable.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    # Readable by their owner only.
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        _copy(source, part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        # Unlike a rename, it never replaces another file.
        os.link(part, target)
        return target.stat().st_size
    finally:
        part.unlink()


def _copy(source: Path, part: Path) -> None:
    try:
        with (
            contextlib.closing(
                sqlite3.connect(
                    f"file:{quote(str(source))}?mode=ro", uri=True, timeout=BUSY_SECONDS
                )
            ) as source_file,
            contextlib.closing(sqlite3.connect(part)) as copy_file,
        ):
            source_file.backup(copy_file)
            if (check_result := copy_file.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise StoreUnavailable(
                    f"the copy is not sound, and neither may the database be: {check_result}"
                )
    except sqlite3.Error as e:
        raise StoreUnavailable(f"the database could not be copied: {e}") from e
