"""The table of responses that a provider stores and that went through here: whose they are, under
which ids the provider knows their rounds, and what their client was shown.

A response with hidden rounds has one id for its client, that of its first round, and goes on at the
provider from its last. Without its row a response is nobody's here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, func, select

from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from memory.stores.sql.statements import put_row

c = t.responses.c
DAY = 86400.0
KEPT_DAYS = 30  # as long as the provider keeps them
READ_SECONDS = 2.0
BATCH = 1000
encode, decode = msgspec.json.encode, msgspec.json.decode


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response.

    rounds: the provider's ids, first to last. pending: outputs of ours that the provider has not
    been sent yet: they go with the client's own. shown: what the client was shown, None while it is
    not finished. echo: members of the request, as the client sent them. target: who stores it.
    """

    id: str
    tenant: str
    user: str | None
    rounds: Sequence[str]
    target: str
    model: str
    conversation: str = ""
    pending: Sequence[dict[str, Any]] = ()
    shown: dict[str, Any] | None = None
    echo: dict[str, Any] = field(default_factory=dict)
    created_at: float = 0.0


def put(conn: Connection, found: StoredResponse) -> None:
    """Write a response, in place of an older one of its id."""
    put_row(
        conn,
        t.responses,
        ("tenant", "id"),
        id=found.id,
        tenant=found.tenant,
        user=found.user,
        created_at=found.created_at,
        target=found.target,
        model=found.model,
        conversation=found.conversation,
        rounds=encode(found.rounds).decode(),
        pending=encode(found.pending).decode(),
        shown=None if found.shown is None else encode(found.shown).decode(),
        echo=encode(found.echo).decode(),
    )


def writer(found: StoredResponse) -> Callable[[Connection], None]:
    """Return what writes a response in a transaction of somebody else's."""
    return lambda conn: put(conn, found)


async def save(db: Database, found: StoredResponse) -> None:
    """Write a response by itself. Raises StoreUnavailable."""
    await db.write(lambda conn: put(conn, found), small=True)


async def find(db: Database, tenant: str, name: str) -> StoredResponse | None:
    """Return a tenant's response. Raises StoreUnavailable."""
    query = select(t.responses).where(c.tenant == tenant, c.id == name)
    row = await db.read(lambda conn: conn.execute(query).mappings().first(), READ_SECONDS)
    if row is None:
        return None
    plain = ("id", "tenant", "user", "target", "model", "conversation", "created_at")
    return StoredResponse(
        **{name: row[name] for name in plain},
        rounds=decode(row["rounds"]),
        pending=decode(row["pending"]),
        shown=decode(row["shown"]) if row["shown"] is not None else None,
        echo=decode(row["echo"]),
    )


async def remove(db: Database, tenant: str, name: str) -> None:
    """Remove a response. Raises StoreUnavailable."""
    mine = delete(t.responses).where(c.tenant == tenant, c.id == name)
    await db.write(lambda conn: conn.execute(mine), small=True)


class ResponseTables:
    """The table as the memory's hook on erasure and on age."""

    counted = "responses"

    def forget_batch(self, conn: Connection, tenant: str, user: str, most: int) -> int:
        """Remove at most so many responses of an erased user. Returns how many."""
        mine = select(c.id).where(c.tenant == tenant, c.user == user).limit(most)
        gone = delete(t.responses).where(c.tenant == tenant, c.id.in_(mine))
        return conn.execute(gone).rowcount

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Remove what is left of an erased user's responses."""
        conn.execute(delete(t.responses).where(c.tenant == tenant, c.user == user))

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of responses older than `KEPT_DAYS`. Returns how many."""
        old = select(c.created_at).order_by(c.created_at).limit(BATCH).subquery()
        last = conn.execute(select(func.max(old.c.created_at))).scalar()
        limit = now - KEPT_DAYS * DAY
        if last is None:
            return 0
        gone = delete(t.responses).where(c.created_at <= last, c.created_at < limit)
        return conn.execute(gone).rowcount
