"""The table of responses that a provider stores and that went through here: whose they are, under
which ids the provider knows their rounds, and what their client was shown.

A response with hidden rounds has one id for its client, that of its first round, and goes on at the
provider from its last. Without its row a response is nobody's here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select

from memory import StoreUnavailable
from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from memory.stores.sql.statements import put_row

c = t.responses.c
DAY = 86400.0
KEPT_DAYS = 30  # as long as the provider keeps them
READ_SECONDS = 2.0
BATCH = 1000
MOST_HELD, HELD_BYTES = 64, 1 << 20  # rows that the store has not taken yet, and the largest
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


def _delete(conn: Connection, tenant: str, names: Sequence[str]) -> int:
    """Remove responses and what is known of their items. Returns how many responses."""
    x = t.response_items.c
    conn.execute(delete(t.response_items).where(x.tenant == tenant, x.response.in_(names)))
    return conn.execute(delete(t.responses).where(c.tenant == tenant, c.id.in_(names))).rowcount


class ResponseTable:
    """The table: as the gateway uses it, and as the memory's hook on turns, erasure and age.

    Rows that the store has not taken yet are held, and found as if it had.
    """

    counted = "responses"

    def __init__(self, db: Database) -> None:
        self._db = db
        self._held: dict[tuple[str, str], StoredResponse] = {}
        self._writing: asyncio.Task[None] | None = None

    async def find(self, tenant: str, name: str) -> StoredResponse | None:
        """Return a tenant's response. Raises StoreUnavailable."""
        query = select(t.responses).where(c.tenant == tenant, c.id == name)
        row = await self._db.read(lambda conn: conn.execute(query).mappings().first(), READ_SECONDS)
        return None if row is None else _response_of(row)

    def find_held(self, tenant: str, name: str) -> StoredResponse | None:
        """Return a tenant's response that the store has not taken yet."""
        return self._held.get((tenant, name))

    async def items_of(
        self, tenant: str, user: str | None, ids: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Return a user's items by their ids, as the client was shown them.

        Raises StoreUnavailable.
        """
        x = t.response_items.c
        named = select(x.response).where(x.tenant == tenant, x.id.in_(ids[-LOOKED_UP:]))
        query = select(c.shown).where(c.tenant == tenant, c.user == user, c.id.in_(named))
        shown = await self._db.read(lambda conn: conn.execute(query).scalars().all(), READ_SECONDS)
        items = (i for text in shown if text for i in decode(text).get("output") or ())
        return {i["id"]: i for i in items if isinstance(i, dict) and "id" in i}

    def save(self, found: StoredResponse) -> None:
        """Write a response by itself, in the background."""
        if len(encode(found.shown)) > HELD_BYTES:
            found = replace(found, shown=None)  # the provider is asked for it
        self._held[found.tenant, found.id] = found
        while len(self._held) > MOST_HELD:
            self._held.pop(next(iter(self._held)))
        self.write_held()

    def write_held(self) -> None:
        """Write what is held, if anything is; what the store does not take stays."""
        if self._held and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name="stored-responses")

    async def close(self) -> None:
        """Wait until what is held was written, or the store failed."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=READ_SECONDS)

    async def remove(self, tenant: str, name: str) -> None:
        """Remove a response. Raises StoreUnavailable."""
        self._held.pop((tenant, name), None)
        await self._db.write(lambda conn: _delete(conn, tenant, [name]), small=True)

    def keep(self, conn: Connection, row: dict[str, Any]) -> None:
        """Write a turn's response. row: as `plain` gives it."""
        put(conn, StoredResponse(**row))

    def forget_batch(self, conn: Connection, tenant: str, user: str, most: int) -> int:
        """Remove at most so many responses of an erased user. Returns how many."""
        self._drop_held(tenant, user)
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

    async def _write(self) -> None:
        while rows := list(self._held.values()):
            try:
                await self._db.write(partial(self._put_held, rows=rows))
            except StoreUnavailable:
                return
            for row in rows:
                if self._held.get((row.tenant, row.id)) is row:
                    del self._held[row.tenant, row.id]

    def _put_held(self, conn: Connection, rows: Sequence[StoredResponse]) -> None:
        """Write rows, but for those that were removed meanwhile."""
        for row in rows:
            if self._held.get((row.tenant, row.id)) is row:
                put(conn, row)

    def _drop_held(self, tenant: str, user: str) -> None:
        """Forget an erased user's rows. It may run on the writer's thread."""
        for key, row in list(self._held.items()):
            if (row.tenant, row.user) == (tenant, user):
                self._held.pop(key, None)


def plain(found: StoredResponse) -> dict[str, Any]:
    """Return a response as plain data."""
    return asdict(found)


def _response_of(row: Any) -> StoredResponse:
    plain = ("id", "tenant", "user", "target", "model", "conversation", "created_at")
    return StoredResponse(
        **{name: row[name] for name in plain},
        rounds=decode(row["rounds"]),
        pending=decode(row["pending"]),
        shown=decode(row["shown"]) if row["shown"] is not None else None,
        echo=decode(row["echo"]),
    )
