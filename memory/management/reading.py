"""Reads on behalf of a waiting caller, with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from memory.service import Memory

T = TypeVar("T")
READ_SECONDS = 10.0


async def read(memory: Memory, work: Callable[[Connection], T]) -> T:
    """Run `work` in a read transaction. Raises StoreUnavailable past the deadline."""
    return await memory.db.read(work, READ_SECONDS)
