"""The table of stored responses: owners, ids, and what the client saw.

A response with hidden rounds has one id for its client, that of its first round, and continues at
the provider from its last. A response without a row is unknown here. Responses that only this
gateway stores have their items in the row.

The table has conversation objects too: a row with the conversation's own id, a row for each of its
turns, and a row for items that a client added. `thread` names the conversation of a row.
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

from gateway.storage.bookings import BOOKING, note_booking
from memory import StoreUnavailable
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.statements import put_row
from memory.stores.sql.engine.write_lock import NOTHING, owner_lock
from memory.stores.sql.rows.scopes import UserName

log = logging.getLogger("mnemogate")
c = t.responses.c
DAY = 86400.0
KEPT_DAYS = 30  # as long as the provider keeps them
READ_SECONDS = 2.0
AGAIN_SECONDS = (0.05, 0.2)  # before a response is not there, where other workers write too
BATCH = 1000
# Responses in one chain, and bytes of all their items.
MAX_CHAIN, MAX_CHAIN_BYTES = 1000, 32 << 20
MAX_ITEM_BYTES = 32 << 20  # of the responses whose items one request names
MOST_HELD, HELD_BYTES = 64, 1 << 20  # rows that the store has not taken yet, and the largest
KEPT_MEMBERS = ("input", "output")  # of `echo`, where a response is kept here
ITEMS = 256  # of one response that are found again by their ids
# Kinds of rows that are no response: a conversation, items that a client added to one, and the
# answer of a command; a request that continues from it continues from the response before it.
CONVERSATION, ADDED, COMMAND = "conversation", "items", "command"
LOOKED_UP = 500  # ids of one request
SIZE = func.coalesce(func.length(c.shown), 0) + func.length(c.echo)
encode, decode = msgspec.json.encode, msgspec.json.decode


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response.

    rounds: the provider's ids, first to last. pending: our outputs that the provider has not got
    yet: they are sent with the client's own. shown: what the client saw, None until it is finished.
    echo: members of the request, as the client sent them, and the items of both if the response is
    stored here (see `kept_responses`). target: who stores it. thread: its conversation
    object.
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
    thread: str = ""

    @property
    def kind(self) -> str:
        """What the row is, "" for a response."""
        row_kind: str = self.echo.get("kind", "")
        return row_kind

    @property
    def size(self) -> int:
        """How many bytes its items have."""
        shown_bytes = 0 if "output" in self.echo else len(encode(self.shown))
        return len(encode(self.echo)) + shown_bytes


class ThreadTooLong(ValueError):
    """A conversation of more than a request can be made of."""


def put(conn: Connection, response: StoredResponse) -> None:
    """Write a response, in place of an older one of its id."""
    put_row(
        conn,
        t.responses,
        ("tenant", "id"),
        id=response.id,
        tenant=response.tenant,
        user=response.user,
        created_at=response.created_at,
        target=response.target,
        model=response.model,
        conversation=response.conversation,
        rounds=encode(response.rounds).decode(),
        pending=encode(response.pending).decode(),
        shown=None if response.shown is None else encode(response.shown).decode(),
        echo=encode(response.echo).decode(),
        thread=response.thread,
    )
    if BOOKING in response.echo and response.shown is None:
        note_booking(conn, plain(response), response.echo[BOOKING])
    for name in [*item_ids(response.shown or {}), *response.echo.get("items", ())]:
        put_row(
            conn,
            t.response_items,
            ("tenant", "id"),
            tenant=response.tenant,
            id=name,
            response=response.id,
        )


def item_ids(response: dict[str, Any]) -> list[str]:
    """Return the ids of a response's items, and of containers in which its code ran."""
    items = [i for i in response.get("output") or () if isinstance(i, dict)]
    ids = [i.get(name) for i in items for name in ("id", "container_id")]
    return [i for i in ids if isinstance(i, str)][:ITEMS]


def _delete(conn: Connection, tenant: str, names: Sequence[str]) -> int:
    """Remove responses and what is known of their items. Returns how many responses."""
    item_columns = t.response_items.c
    conn.execute(
        delete(t.response_items).where(
            item_columns.tenant == tenant, item_columns.response.in_(names)
        )
    )
    return conn.execute(delete(t.responses).where(c.tenant == tenant, c.id.in_(names))).rowcount


class ResponseTable:
    """The table, for the gateway and for the memory's hooks on turns, erasure and age.

    Rows that the store has not taken yet are held in memory, and can be found there.
    """

    counted = "responses"

    def __init__(self, db: Database) -> None:
        self._db = db
        self._unwritten: dict[tuple[str, str], StoredResponse] = {}
        self._writing: asyncio.Task[None] | None = None

    async def find(self, tenant: str, name: str) -> StoredResponse | None:
        """Return a tenant's response. Raises StoreUnavailable."""
        for pause in AGAIN_SECONDS if self._db.is_shared else ():
            if response := await self._find(tenant, name):
                return response
            await asyncio.sleep(pause)  # another worker may be writing it in this moment
        return await self._find(tenant, name)

    async def _find(self, tenant: str, name: str) -> StoredResponse | None:
        return await self._db.read(lambda conn: _read_one(conn, tenant, name), READ_SECONDS)

    async def chain(
        self, tenant: str, name: str, is_own: Callable[[StoredResponse], bool]
    ) -> list[StoredResponse]:
        """Return a response and the ones it continues, the oldest first.

        Stops before one that is missing or not the caller's own, and at MAX_CHAIN responses or
        MAX_CHAIN_BYTES. In a conversation, all earlier turns are included. Raises StoreUnavailable.
        """

        def read(conn: Connection) -> list[StoredResponse]:
            responses: list[StoredResponse] = []
            response_id: Any = name
            room = MAX_CHAIN_BYTES
            while isinstance(response_id, str) and len(responses) < MAX_CHAIN:
                row = self._unwritten.get((tenant, response_id)) or _read_one(
                    conn, tenant, response_id
                )
                if row is None or not is_own(row):
                    break
                room -= row.size
                if room < 0:
                    break
                responses.append(row)
                response_id = row.echo.get("previous_response_id")
                if row.thread:
                    rows = self._thread(conn, tenant, row.thread, is_own)
                    earlier = [r for r in rows if r.created_at < row.created_at]
                    return [*earlier, *responses[::-1]]
            return responses[::-1]

        return await self._db.read(read, READ_SECONDS)

    async def thread(
        self, tenant: str, name: str, is_own: Callable[[StoredResponse], bool]
    ) -> list[StoredResponse]:
        """Return what a conversation holds, the oldest first. Raises StoreUnavailable.

        Raises ThreadTooLong for more than MAX_CHAIN turns, or MAX_CHAIN_BYTES.
        """
        return await self._db.read(
            lambda conn: self._thread(conn, tenant, name, is_own), READ_SECONDS
        )

    def _thread(
        self, conn: Connection, tenant: str, name: str, is_own: Callable[[StoredResponse], bool]
    ) -> list[StoredResponse]:
        is_in_thread = (c.tenant == tenant) & (c.thread == name) & (c.id != name)
        sized = conn.execute(select(c.id, SIZE).where(is_in_thread).limit(MAX_CHAIN + 1)).all()
        unwritten = [r for r in self._unwritten.values() if (r.tenant, r.thread) == (tenant, name)]
        unwritten = [r for r in unwritten if r.id not in {name, *(row[0] for row in sized)}]
        size = sum(row[1] for row in sized) + sum(r.size for r in unwritten)
        if len(sized) + len(unwritten) > MAX_CHAIN or size > MAX_CHAIN_BYTES:
            raise ThreadTooLong(name)
        rows = [
            _response_of(r)
            for r in conn.execute(select(t.responses).where(is_in_thread)).mappings()
        ]
        rows += unwritten
        items = [r for r in rows if r.kind != COMMAND and is_own(r)]
        return sorted(items, key=lambda r: r.created_at)

    async def create(self, response: StoredResponse) -> None:
        """Write a row at once. Raises StoreUnavailable."""
        await self._db.write(lambda conn: put(conn, response))

    async def claim(self, tenant: str, name: str, user: str) -> None:
        """Give a conversation that nobody owns to its first user. Raises StoreUnavailable."""
        is_unowned = (c.tenant == tenant) & (c.thread == name) & c.user.is_(None)
        change = update(t.responses).where(is_unowned).values(user=user)
        await self._db.write(lambda conn: conn.execute(change), small=True)

    async def change(
        self, tenant: str, name: str, edit: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> None:
        """Change what is kept of a row's request and answer. Raises StoreUnavailable."""

        def work(conn: Connection) -> None:
            row = _read_one(conn, tenant, name, lock=True)
            if row is not None:
                put(conn, replace(row, echo=edit(row.echo)))

        await self._db.write(work)

    async def remove_thread(self, tenant: str, name: str) -> None:
        """Remove a conversation and what its client added; its responses stay, by themselves.

        Raises StoreUnavailable.
        """
        for key, row in list(self._unwritten.items()):
            if (row.tenant, row.thread) == (tenant, name):
                self._unwritten[key] = replace(row, thread="")

        def work(conn: Connection) -> None:
            is_in_thread = (c.tenant == tenant) & (c.thread == name)
            conn.execute(delete(t.responses).where(is_in_thread, c.rounds == "[]"))
            conn.execute(update(t.responses).where(is_in_thread).values(thread=""))

        await self._db.write(work, small=True)

    def find_held(self, tenant: str, name: str) -> StoredResponse | None:
        """Return a tenant's response that the store has not taken yet."""
        return self._unwritten.get((tenant, name))

    async def items_of(
        self, tenant: str, user: str | None, ids: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Return a user's items by their ids: as the server gave them, else as they were shown.

        Only of the newest MAX_ITEM_BYTES of responses. Raises StoreUnavailable.
        """
        item_columns = t.response_items.c
        response_ids = select(item_columns.response).where(
            item_columns.tenant == tenant, item_columns.id.in_(ids[-LOOKED_UP:])
        )
        is_users = (c.tenant == tenant) & (c.user == user)
        sizes = (
            select(c.id, SIZE).where(is_users, c.id.in_(response_ids)).order_by(c.created_at.desc())
        )

        def read(conn: Connection) -> dict[str, dict[str, Any]]:
            sized = conn.execute(sizes).all()
            end_offsets = list(accumulate(row[1] for row in sized))
            nearest_ids = [
                row[0] for row, end in zip(sized, end_offsets, strict=True) if end < MAX_ITEM_BYTES
            ]
            rows = conn.execute(
                select(c.shown, c.echo).where(is_users, c.id.in_(nearest_ids))
            ).all()
            return {i["id"]: i for shown_text, echo in rows for i in _items_of(shown_text, echo)}

        return await self._db.read(read, READ_SECONDS)

    async def owners_of(self, tenant: str, ids: Sequence[str]) -> dict[str, str | None]:
        """Return the users whose items these are, as far as they are known.

        Raises StoreUnavailable.
        """
        item_columns = t.response_items.c
        is_joined = (item_columns.tenant == c.tenant) & (item_columns.response == c.id)
        query = select(item_columns.id, c.user).where(
            item_columns.tenant == tenant, item_columns.id.in_(ids), is_joined
        )

        def read(conn: Connection) -> dict[str, str | None]:
            return {row[0]: row[1] for row in conn.execute(query)}

        unwritten_owners = {
            name: row.user
            for row in self._unwritten.values()
            if row.tenant == tenant
            for name in [*item_ids(row.shown or {}), *row.echo.get("items", ())]
        }
        stored_owners = await self._db.read(read, READ_SECONDS)
        return {**{i: unwritten_owners[i] for i in ids if i in unwritten_owners}, **stored_owners}

    def save(self, response: StoredResponse) -> None:
        """Write a response by itself, in the background."""
        if len(encode(response.shown)) > HELD_BYTES:
            response = replace(response, shown=None)  # the provider is asked for it
        if len(encode(response.echo)) > HELD_BYTES:  # then nothing goes on from it
            echo = {k: v for k, v in response.echo.items() if k not in KEPT_MEMBERS}
            response = replace(response, echo=echo)
        self._unwritten[response.tenant, response.id] = response
        while len(self._unwritten) > MOST_HELD:
            self._unwritten.pop(next(iter(self._unwritten)))
        self.write_held()

    async def note(self, response: StoredResponse) -> None:
        """Write a row before its client hears of it; in the background if the store is away."""
        lock = NOTHING if response.user is None else owner_lock(response.tenant, response.user)
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._db.write(lambda conn: put(conn, response), small=True, lock=lock)
        except (StoreUnavailable, TimeoutError):
            self.save(response)

    def write_held(self) -> None:
        """Write what is held, if anything is; what the store does not take stays."""
        if self._unwritten and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name="stored-responses")

    async def close(self) -> None:
        """Wait until what is held was written, or the store failed."""
        self.write_held()
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=READ_SECONDS)

    async def remove(self, tenant: str, name: str) -> None:
        """Remove a response; its items stay in the conversation that it is of.

        Raises StoreUnavailable.
        """
        unwritten = self._unwritten.pop((tenant, name), None)

        def work(conn: Connection) -> None:
            row = _read_one(conn, tenant, name) or unwritten
            _delete(conn, tenant, [name])
            keeps = row is not None and row.thread and row.kind != COMMAND
            if row is not None and keeps and "input" in row.echo:
                output = row.echo.get("output") or (row.shown or {}).get("output") or []
                echo = {"kind": ADDED, "input": row.echo["input"], "output": output}
                put(conn, replace(row, id=f"{ADDED}_{name}", rounds=(), shown=None, echo=echo))

        await self._db.write(work, small=True)

    def keep(self, conn: Connection, row: dict[str, Any]) -> None:
        """Write a turn's response. row: as `plain` gives it."""
        put(conn, StoredResponse(**row))

    def forget_batch(self, conn: Connection, tenant: str, user: str, limit: int) -> int:
        """Remove at most so many responses of an erased user. Returns how many."""
        self._drop_held(tenant, user)
        batch_ids = select(c.id).where(c.tenant == tenant, c.user == user).limit(min(limit, BATCH))
        return _delete(conn, tenant, conn.execute(batch_ids).scalars().all())

    def forget_conversations(
        self, conn: Connection, tenant: str, user: str | None, names: Sequence[str]
    ) -> None:
        """Remove the responses of deleted conversations."""
        for key, row in list(self._unwritten.items()):
            if (row.tenant, row.user) == (tenant, user) and row.conversation in names:
                self._unwritten.pop(key, None)
        response_ids = select(c.id).where(
            c.tenant == tenant, c.user == user, c.conversation.in_(names), c.conversation != ""
        )
        _delete(conn, tenant, conn.execute(response_ids).scalars().all())

    def rename(self, conn: Connection, source: UserName, target: UserName) -> None:
        """Give a user's responses to another name."""
        is_users = (c.tenant == source[0]) & (c.user == source[1])
        if source[0] != target[0]:
            item_columns = t.response_items.c
            is_in_response = item_columns.response.in_(select(c.id).where(is_users))
            conn.execute(
                update(t.response_items)
                .where(item_columns.tenant == source[0], is_in_response)
                .values(tenant=target[0])
            )
        conn.execute(update(t.responses).where(is_users).values(tenant=target[0], user=target[1]))

    def forget(self, conn: Connection, tenant: str, user: str) -> None:
        """Remove what is left of an erased user's responses."""
        while self.forget_batch(conn, tenant, user, BATCH):
            pass

    def expire(self, conn: Connection, now: float) -> int:
        """Remove a batch of responses older than `KEPT_DAYS`. Returns how many.

        The conversations of a named user stay until they are deleted.
        """
        thread = t.responses.alias("thread").c
        thread_rows = select(thread.id).where(thread.tenant == c.tenant, thread.id == c.thread)
        alone = (c.thread == "") | c.user.is_(None) | ~thread_rows.exists()
        is_expired = (c.created_at < now - KEPT_DAYS * DAY) & alone
        expired_ids = select(c.tenant, c.id).where(is_expired).limit(BATCH)
        rows = conn.execute(expired_ids).all()
        for tenant in {row.tenant for row in rows}:
            _delete(conn, tenant, [row.id for row in rows if row.tenant == tenant])
        return len(rows)

    async def _write(self) -> None:
        while rows := list(self._unwritten.values()):
            try:
                await self._db.write(partial(self._put_held, rows=rows))
            except StoreUnavailable:
                return
            except Exception:
                # Kept, they would hold up all later ones.
                log.exception("%d stored responses cannot be written and are dropped", len(rows))
            for row in rows:
                if self._unwritten.get((row.tenant, row.id)) is row:
                    del self._unwritten[row.tenant, row.id]

    def _put_held(self, conn: Connection, rows: Sequence[StoredResponse]) -> None:
        """Write rows, but for those that were removed meanwhile."""
        for row in rows:
            if self._unwritten.get((row.tenant, row.id)) is row:
                put(conn, row)

    def _drop_held(self, tenant: str, user: str) -> None:
        """Forget an erased user's rows. It may run on the writer's thread."""
        for key, row in list(self._unwritten.items()):
            if (row.tenant, row.user) == (tenant, user):
                self._unwritten.pop(key, None)


def _read_one(
    conn: Connection, tenant: str, name: str, *, lock: bool = False
) -> StoredResponse | None:
    query = select(t.responses).where(c.tenant == tenant, c.id == name)
    query = query.with_for_update() if lock else query
    row = conn.execute(query).mappings().first()
    return None if row is None else _response_of(row)


class _Output(msgspec.Struct):
    """The output of an answer; its other members are passed over."""

    output: list[Any] | None = None


_decode_output = msgspec.json.Decoder(_Output).decode


def _items_of(shown_text: str | None, echo: str) -> list[dict[str, Any]]:
    """Return the items of a response, as far as they have ids."""
    outputs = (_decode_output(text).output or () for text in (shown_text, echo) if text)
    return [i for items in outputs for i in items if isinstance(i, dict) and "id" in i]


def plain(response: StoredResponse) -> dict[str, Any]:
    """Return a response as plain data."""
    return {f.name: getattr(response, f.name) for f in fields(response)}


def _response_of(row: Any) -> StoredResponse:
    plain_columns = (
        "id",
        "tenant",
        "user",
        "target",
        "model",
        "conversation",
        "created_at",
        "thread",
    )
    return StoredResponse(
        **{name: row[name] for name in plain_columns},
        rounds=decode(row["rounds"]),
        pending=decode(row["pending"]),
        shown=decode(row["shown"]) if row["shown"] is not None else None,
        echo=decode(row["echo"]),
    )
