"""The table of stored responses that went through here: whose they are, under which ids the
provider knows their rounds, what their client was shown, and the items of those kept here alone.

A response with hidden rounds has one id for its client, that of its first round, and goes on at the
provider from its last. Without its row a response is nobody's here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, func, select, update

from memory import StoreUnavailable
from memory.stores.sql import schema as t
from memory.stores.sql.database import Database
from memory.stores.sql.scopes import UserName
from memory.stores.sql.statements import put_row

log = logging.getLogger("mnemogate")
c = t.responses.c
DAY = 86400.0
KEPT_DAYS = 30  # as long as the provider keeps them
READ_SECONDS = 2.0
BATCH = 1000
# Responses, each of which goes on from the one before, and bytes of all their items.
MAX_CHAIN, MAX_CHAIN_BYTES = 1000, 32 << 20
MAX_ITEM_BYTES = 32 << 20  # of the responses whose items one request names
MOST_HELD, HELD_BYTES = 64, 1 << 20  # rows that the store has not taken yet, and the largest
KEPT_MEMBERS = ("input", "output")  # of `echo`, where a response is kept here
ITEMS = 256  # of one response that are found again by their ids
LOOKED_UP = 500  # ids of one request
encode, decode = msgspec.json.encode, msgspec.json.decode


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response.

    rounds: the provider's ids, first to last. pending: outputs of ours that the provider has not
    been sent yet: they go with the client's own. shown: what the client was shown, None while it is
    not finished. echo: members of the request, as the client sent them, and where the response is
    kept here (`gateway.chat.kept_responses`) the items of both. target: who stores it.
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
        return await self._db.read(lambda conn: _read_one(conn, tenant, name), READ_SECONDS)

    async def chain(
        self, tenant: str, name: str, is_own: Callable[[StoredResponse], bool]
    ) -> list[StoredResponse]:
        """Return a response and those it goes on from, the oldest first.

        Only up to one that is not there or not the caller's own, and at most MAX_CHAIN of
        MAX_CHAIN_BYTES. Raises StoreUnavailable.
        """

        def read(conn: Connection) -> list[StoredResponse]:
            found: list[StoredResponse] = []
            wanted: Any = name
            room = MAX_CHAIN_BYTES
            while isinstance(wanted, str) and len(found) < MAX_CHAIN:
                row = self._held.get((tenant, wanted)) or _read_one(conn, tenant, wanted)
                if row is None or not is_own(row):
                    break
                room -= len(encode(row.echo))
                room -= 0 if "output" in row.echo else len(encode(row.shown))
                if room < 0:
                    break
                found.append(row)
                wanted = row.echo.get("previous_response_id")
            return found[::-1]

        return await self._db.read(read, READ_SECONDS)

    def find_held(self, tenant: str, name: str) -> StoredResponse | None:
        """Return a tenant's response that the store has not taken yet."""
        return self._held.get((tenant, name))

    async def items_of(
        self, tenant: str, user: str | None, ids: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Return a user's items by their ids: as the server gave them, else as they were shown.

        Only of the newest MAX_ITEM_BYTES of responses. Raises StoreUnavailable.
        """
        x = t.response_items.c
        named = select(x.response).where(x.tenant == tenant, x.id.in_(ids[-LOOKED_UP:]))
        mine = (c.tenant == tenant) & (c.user == user)
        size = func.coalesce(func.length(c.shown), 0) + func.length(c.echo)
        sizes = select(c.id, size).where(mine, c.id.in_(named)).order_by(c.created_at.desc())

        def read(conn: Connection) -> dict[str, dict[str, Any]]:
            sized = conn.execute(sizes).all()
            read_to = list(accumulate(row[1] for row in sized))
            near = [row[0] for row, end in zip(sized, read_to, strict=True) if end < MAX_ITEM_BYTES]
            rows = conn.execute(select(c.shown, c.echo).where(mine, c.id.in_(near))).all()
            return {i["id"]: i for shown, echo in rows for i in _items_of(shown, echo)}

        return await self._db.read(read, READ_SECONDS)

    def save(self, found: StoredResponse) -> None:
        """Write a response by itself, in the background."""
        if len(encode(found.shown)) > HELD_BYTES:
            found = replace(found, shown=None)  # the provider is asked for it
        if len(encode(found.echo)) > HELD_BYTES:  # then nothing goes on from it
            echo = {k: v for k, v in found.echo.items() if k not in KEPT_MEMBERS}
            found = replace(found, echo=echo)
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

    def forget_conversations(
        self, conn: Connection, tenant: str, user: str | None, names: Sequence[str]
    ) -> None:
        """Remove the responses of deleted conversations."""
        for key, row in list(self._held.items()):
            if (row.tenant, row.user) == (tenant, user) and row.conversation in names:
                self._held.pop(key, None)
        theirs = select(c.id).where(
            c.tenant == tenant, c.user == user, c.conversation.in_(names), c.conversation != ""
        )
        _delete(conn, tenant, conn.execute(theirs).scalars().all())

    def rename(self, conn: Connection, source: UserName, target: UserName) -> None:
        """Give a user's responses to another name."""
        own = (c.tenant == source[0]) & (c.user == source[1])
        if source[0] != target[0]:
            x = t.response_items.c
            theirs = x.response.in_(select(c.id).where(own))
            conn.execute(
                update(t.response_items)
                .where(x.tenant == source[0], theirs)
                .values(tenant=target[0])
            )
        conn.execute(update(t.responses).where(own).values(tenant=target[0], user=target[1]))

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
            except Exception:
                log.exception("%d stored responses cannot be written and are dropped", len(rows))
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


def _read_one(conn: Connection, tenant: str, name: str) -> StoredResponse | None:
    query = select(t.responses).where(c.tenant == tenant, c.id == name)
    row = conn.execute(query).mappings().first()
    return None if row is None else _response_of(row)


class _Output(msgspec.Struct):
    """The output of an answer; its other members are passed over."""

    output: list[Any] | None = None


_decode_output = msgspec.json.Decoder(_Output).decode


def _items_of(shown: str | None, echo: str) -> list[dict[str, Any]]:
    """Return the items of a response, as far as they have ids."""
    told = (_decode_output(text).output or () for text in (shown, echo) if text)
    return [i for items in told for i in items if isinstance(i, dict) and "id" in i]


def plain(found: StoredResponse) -> dict[str, Any]:
    """Return a response as plain data."""
    return {f.name: getattr(found, f.name) for f in fields(found)}


def _response_of(row: Any) -> StoredResponse:
    plain = ("id", "tenant", "user", "target", "model", "conversation", "created_at")
    return StoredResponse(
        **{name: row[name] for name in plain},
        rounds=decode(row["rounds"]),
        pending=decode(row["pending"]),
        shown=decode(row["shown"]) if row["shown"] is not None else None,
        echo=decode(row["echo"]),
    )
