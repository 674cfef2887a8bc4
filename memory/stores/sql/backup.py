"""A copy of a SQLite database as it is at one moment, made while others read and write it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from memory.errors import StoreUnavailable

BUSY_SECONDS = 10.0


def backup(source: Path, target: Path) -> int:
    """Copy the database, what still stands in its log included. Returns the copy's bytes.

    SQLite's own backup, in one step: a reader's view, which holds no writer up. The copy is whole
    and on the disk before it has its name. Raises FileExistsError, nothing being changed, for a
    name that is taken; OSError; StoreUnavailable.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    os.close(
        os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    )  # whose memories they are may read them
    try:
        _copy(source, part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.link(part, target)  # unlike a rename, it never takes the place of another file
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
            ) as old,
            contextlib.closing(sqlite3.connect(part)) as new,
        ):
            old.backup(new)
            if (told := new.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise StoreUnavailable(
                    f"the copy is not sound, and neither may the database be: {told}"
                )
    except sqlite3.Error as e:
        raise StoreUnavailable(f"the database could not be copied: {e}") from e
