"""Copies of two memories, made before one is added to the other at the start. They can be imported.

They are removed after 30 days, and where one of their users is erased.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from memory.conversation.foreign_json import decode_foreign
from memory.export_format import ExportLine, encode_line

FOLDER = "merged"
KEPT_SECONDS = 30 * 86400.0


def make_folder(data: Path, user: str) -> Path:
    """Make the folder of a user's copies: a name from outside is no part of a path."""
    folder = data / FOLDER / hashlib.sha256(user.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


async def write_copy(path: Path, lines: AsyncIterator[ExportLine]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        async for line in lines:
            file.write(encode_line(line))
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())


def remove_copies(data: Path, user: str | None = None) -> None:
    """Remove the copies that hold this user's memory; of all users, those that are too old."""
    for folder in (data / FOLDER).glob("*"):
        copies = list(folder.glob("*.ndjson"))
        if user is None:
            is_due = all(time.time() - path.stat().st_mtime > KEPT_SECONDS for path in copies)
        else:
            is_due = any(_user_of(path) == user for path in copies)
        if is_due:
            shutil.rmtree(folder, ignore_errors=True)


def _user_of(path: Path) -> str | None:
    """Return whose memory a copy holds."""
    with path.open("rb") as file:
        try:
            return str(decode_foreign(file.readline()).get("user"))
        except (msgspec.DecodeError, RecursionError):
            return None
