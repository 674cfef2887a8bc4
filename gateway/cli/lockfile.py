"""Which gateway serves a data folder: a file in it, locked while the gateway lives.

So a dead gateway never misleads.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

NOTE = "running"


def _try_lock(fd: int) -> bool:
    """Take the file's lock; False if a living gateway holds it.

    Always True on systems without such locks.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_locked(fd: int) -> bool:
    # A command that checks holds the lock for a moment.
    for _ in range(5):
        if _try_lock(fd):
            return True
        time.sleep(0.05)
    return False


@contextlib.contextmanager
def hold_lock(data: Path, url: str) -> Iterator[str | None]:
    """Record that `url` serves this data folder; yield the gateway that already does, if any."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(data / NOTE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _is_locked(fd):
            yield _read_note(data) or "another gateway"
            return
        os.ftruncate(fd, 0)
        os.write(fd, json.dumps({"url": url, "pid": os.getpid()}).encode())
        try:
            yield None
        finally:
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def running_url(data: Path) -> str | None:
    """Return the URL of the gateway that serves this data folder; None if there is none."""
    try:
        fd = os.open(data / NOTE, os.O_RDWR)
    except OSError:
        return None
    try:
        if _try_lock(fd):
            return None
        return _read_note(data)
    finally:
        os.close(fd)


def _read_note(data: Path) -> str | None:
    try:
        return str(json.loads((data / NOTE).read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
