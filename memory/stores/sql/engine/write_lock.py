"""What a write keeps other writes from, on a server that runs many at once.

SQLite has one writer, and ignores it. On Postgres a write locks its owner first, so that what it
looked at does not change before it writes; a write that names no lock has the memory to itself, as
on SQLite. Locks are always taken in this order: the owner, the scope's row, the conversation's row.
"""

from __future__ import annotations

from enum import Enum


class Withdrawn(Exception):
    """The caller gave up, or may write no more, before the write was committed."""


class Extent(Enum):
    """What is locked, if not one owner.

    EVERYTHING: nobody else writes. NOTHING: rows that no look before the write depends on.
    """

    EVERYTHING = "everything"
    NOTHING = "nothing"


EVERYTHING = Extent.EVERYTHING
NOTHING = Extent.NOTHING
# Postgres' number of the lock that every write shares, and that EVERYTHING has to itself.
EVERY_WRITE = 7_205_601
# Or an owner, as `owner_lock` names it, or the row id of one of their scopes.
WriteLock = Extent | str | int


def owner_lock(tenant: str, user: str | None, conversation: int | None = None) -> WriteLock:
    """Return the lock of an owner; where nobody is named, of one conversation.

    A tenant's unnamed calls must not wait for each other.
    """
    if user is not None:
        return f"{len(tenant)}:{tenant}:{user}"
    if conversation is None:
        return EVERYTHING
    return f"conversation {conversation}"
