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
from sqlalchemy import Connection, delete, select

from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from memory.stores.sql.statements import put_row

c = t.responses.c
DAY = 86400.0
KEPT_DAYS = 30  # as long as the provider keeps them
READ_SECONDS = 2.0
BATCH = 1000
ITEMS = 256  # of one response that are found again by their ids
LOOKED_UP = 500  # ids of one request
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
    for name in _item_ids(found.shown or {}):
        put_row(
            conn,
            t.response_items,
            ("tenant", "id"),
            tenant=found.tenant,
            id=name,
            response=found.id,
        )


def _item_ids(shown: dict[str, Any]) -> list[str]:
    ids = [i.get("id") for i in shown.get("output") or () if isinstance(i, dict)]
    return [i for i in ids if isinstance(i, str)][:ITEMS]


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


async def items_of(
    db: Database, tenant: str, user: str | None, ids: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return a user's items by their ids, as the client was shown them. Raises StoreUnavailable."""
    x = t.response_items.c
    named = select(x.response).where(x.tenant == tenant, x.id.in_(ids[-LOOKED_UP:]))
    query = select(c.shown).where(c.tenant == tenant, c.user == user, c.id.in_(named))
    shown = await db.read(lambda conn: conn.execute(query).scalars().all(), READ_SECONDS)
    items = (i for text in shown if text for i in decode(text).get("output") or ())
    return {i["id"]: i for i in items if isinstance(i, dict) and "id" in i}


async def remove(db: Database, tenant: str, name: str) -> None:
    """Remove a response. Raises StoreUnavailable."""
    await db.write(lambda conn: _delete(conn, tenant, [name]), small=True)


def _delete(conn: Connection, tenant: str, names: Sequence[str]) -> int:
    """Remove responses and what is known of their items. Returns how many responses."""
    x = t.response_items.c
    conn.execute(delete(t.response_items).where(x.tenant == tenant, x.response.in_(names)))
    return conn.execute(delete(t.responses).where(c.tenant == tenant, c.id.in_(names))).rowcount


class ResponseTables:
    """The table as the memory's hook on erasure and on age."""

    counted = "responses"

    def forget_batch(self, conn: Connection, tenant: str, user: str, most: int) -> int:
        """Remove at most so many responses of an erased user. Returns how many."""
        mine = select(c.id).where(c.tenant == tenant, c.user == user).limit(min(most, BATCH))
        return _delete(conn, tenant, conn.execute(mine).scalars().all())

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Remove what is left of an erased user's responses."""
        while self.forget_batch(conn, tenant, user, BATCH):
            pass

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of responses older than `KEPT_DAYS`. Returns how many."""
        oldest = select(c.tenant, c.id).where(c.created_at < now - KEPT_DAYS * DAY).limit(BATCH)
        found = conn.execute(oldest).all()
        for tenant in {row.tenant for row in found}:
            _delete(conn, tenant, [row.id for row in found if row.tenant == tenant])
        return len(found)
