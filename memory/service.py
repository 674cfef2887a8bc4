"""The memory as a turn uses it: begin (read once, compose), open, run calls, finish. Knows nothing of HTTP.

A `Session` is one request's view. Nothing here spans an upstream call with a lock or a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from sys import getsizeof

import msgspec

from memory.ask import Ask, Policy
from memory.cache import Cache
from memory.errors import MemoryFault, NotUpgraded, StoreUnavailable
from memory.history import Turn
from memory.keeping import Attempt
from memory.lines import Lines, Shelf, called
from memory.messages import Seen, mac
from memory.patience import TURN_SECONDS, Patience
from memory.prefix import Messages, leading
from memory.retrieval import Meaning, Retrieval
from memory.scope import Scope
from memory.session import Session
from memory.spill import Spill
from memory.stores.sql import owners, turns
from memory.stores.sql.engine import Database
from memory.stores.sql.kept import MOST
from memory.tokens import Counter

log = logging.getLogger("mnemogate")
encode = msgspec.json.Encoder().encode
SCOPES_BYTES, SCOPES_EACH = 3 << 19, 600  # of scopes whose keys are kept: some 2,000
FAILURES = 3  # reads in a row that failed or were late, after which the store itself is asked
PROBE_SECONDS, CLOSED_SECONDS = (
    1.0,
    2.0,
)  # that it has to answer, and that it is left alone where it does not
WINDOW_BYTES = (
    6  # a token, more than nearly all texts have: of a history kept here, what the window may hold
)
NEEDED_SECONDS = 5.0  # for a read that its request cannot do without
SMALL = 64  # messages, of which a few rows by their keys tell whether they are known


def request_key(ask: Ask, turn: Turn) -> bytes:
    """What names a request among its retries: the full scope, the conversation if one is named, its history and other members, the client's
    own key if any."""
    named = b"\x00".join(
        name.encode("utf-8", "surrogatepass") for name in (ask.explicit or "", ask.idempotency)
    )
    return mac(
        ask.scope.key,
        b"request",
        named,
        b"\x00",
        turn.chain.end,
        turn.messages.after.system,
        ask.rest,
    )


class Memory:
    """Opened once a process. data: the folder for the spill file, None for none. meaning: search by meaning, None for keywords alone."""

    def __init__(
        self,
        db: Database,
        policy: Policy,
        secret: bytes,
        data: Path | None = None,
        meaning: Meaning | None = None,
    ) -> None:
        self.db = db
        self.policy = policy
        self.secret = secret
        self.counters: dict[str, Counter] = {}
        self.lines = Lines(db)
        self.seen = Seen()
        self.scopes: Cache[tuple[str, str | None, str], Scope] = Cache(
            SCOPES_BYTES, SCOPES_EACH, lambda name, _: sum(map(getsizeof, name))
        )
        self.busy_nodes: set[int] = set()
        self.retrieval = Retrieval(db, meaning, self.busy_nodes)
        self.spill = Spill(data / "spill.ndjson" if data else None, secret)
        self._ready = asyncio.Event()
        self._failures = 0
        self._probe: asyncio.Task[None] | None = None
        self._closed_until = 0.0
        self.outdated = ""  # why the database cannot be used before an upgrade
        self._flights: dict[bytes, asyncio.Event] = {}
        self.continued: dict[int, bytes] = {}

    async def open(self) -> None:
        """Opens the store and replays what was spilled. Raises StoreUnavailable."""
        try:
            await self.db.open()
        except NotUpgraded as e:
            self.outdated = str(e)
            raise
        for record in self.spill.load():
            try:
                await self.db.write(lambda conn, r=record: turns.record(conn, r))  # type: ignore[misc]
            except StoreUnavailable:
                raise
            except MemoryFault:
                continue  # its user was erased meanwhile: void
            except Exception:
                log.exception("a spilled record cannot be replayed: it is set aside in spill.bad")
                self.spill.set_aside(record)
        self.spill.clear()
        self.retrieval.indexing.start()
        self._ready.set()

    async def close(self) -> None:
        self._ready.clear()
        if self._probe is not None:
            self._probe.cancel()
        try:
            await self.retrieval.indexing.stop()
            if self.retrieval.meaning is not None and self.retrieval.meaning.index is not None:
                await self.retrieval.meaning.index.close()
        finally:
            await self.db.close()

    def scope(self, tenant: str, user: str | None, agent: str) -> Scope:
        """Whose memory; its keys are derived once while it is in use."""
        name = (tenant, user, agent)
        if (found := self.scopes.get(name)) is None:
            self.scopes.put(name, found := Scope(tenant, user, agent, self.secret))
        return found

    def counter(self, family: str) -> Counter:
        """The token counter of a tokenizer family: exact where its vocabulary was installed, else an estimate."""
        return self.counters.get(family) or self.counters.setdefault(family, Counter())

    @property
    def ready(self) -> bool:
        return self._ready.is_set() and time.monotonic() >= self._closed_until

    async def usable(self) -> None:
        """Waits for the store at start-up. Raises StoreUnavailable when it is not there in time, or failed too often lately."""
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(self.policy.start_wait):
                    await self._ready.wait()
            except TimeoutError as e:
                raise StoreUnavailable("the memory store is not ready") from e
        if time.monotonic() < self._closed_until:
            raise StoreUnavailable("the memory store failed repeatedly; trying again shortly")

    async def begin(self, ask: Ask) -> Session:
        """Reads what the request needs, within the deadline, and composes it. Raises StoreUnavailable."""
        try:
            return await self._begun(ask)
        except MemoryFault:
            raise
        except Exception as e:
            log.exception(
                "the memory failed in a way that nobody foresaw; the request goes on without it"
            )
            raise StoreUnavailable(f"the memory failed: {type(e).__name__}") from e

    async def _begun(self, ask: Ask) -> Session:
        policy = self.policy  # one for the whole request, whatever is reloaded meanwhile
        await self.usable()
        heavy = ask.messages.heavy
        turn, key = await asyncio.to_thread(self._looked_at, ask) if heavy else self._looked_at(ask)
        if key is not None and ask.certain:
            await self._landed(key)
        flight, session = self._take_off(key), None
        patience = Patience(max(TURN_SECONDS, policy.read_deadline))
        try:
            shelf = self.lines.shelf(ask.scope.key) if ask.mode == "full" else None
            snapshot = self._known(ask, turn, await self._line(ask, turn, shelf, patience))
            if snapshot is None:
                room = ask.window * WINDOW_BYTES if ask.window else MOST
                asked = turns.Ask(ask.scope, turn, policy.blocks, ask.explicit, key, room)
                snapshot = await self._read(asked, patience)
            session = Session(
                self,
                ask,
                snapshot,
                Attempt(key, flight is not None, shelf, patience=patience),
                policy,
            )
            await session.compose()
        except BaseException:
            if session is not None:
                session.release()
            self.land(flight)
            raise
        return session

    def _looked_at(self, ask: Ask) -> tuple[Turn, bytes | None]:
        """Hash the request's messages, and name it among its retries."""
        turn = self._turn(ask, ask.messages)
        return turn, request_key(ask, turn) if ask.mode != "read" else None

    def _turn(self, ask: Ask, messages: Messages) -> Turn:
        return Turn.of(ask.scope.key, messages, not ask.scope.named, self.seen)

    async def _line(
        self, ask: Ask, turn: Turn, shelf: Shelf | None, patience: Patience
    ) -> turns.Snapshot | None:
        """The line that the turn goes on from: at its very history, or where a user's history was trimmed, at its newest answer."""
        if ask.certain or shelf is None:
            return None
        if turn.newest < 0:
            return self.lines.take(shelf, called(ask.explicit or ""))
        found, digest = (
            self.lines.take(shelf, turn.chain.link(turn.newest)),
            turn.chain.digest(turn.newest),
        )
        if (
            found is not None
            or not ask.scope.named
            or digest == turn.silent
            or (ending := shelf.ending(digest)) is None
        ):
            return found
        link, node = ending
        scope_id = shelf.lines[link].scope_id or 0
        with (
            contextlib.suppress(StoreUnavailable),
            patience.of(self.policy.read_deadline) as seconds,
        ):
            only = await self.db.read(
                lambda conn: turns.Nodes(conn, scope_id).only(digest), seconds, small=True
            )
            if (
                only == node and self.lines.shelf(ask.scope.key) is shelf
            ):  # a read that had to wait may have been overtaken by a write
                return self.lines.take(shelf, link)
        return None

    def _known(self, ask: Ask, turn: Turn, found: turns.Snapshot | None) -> turns.Snapshot | None:
        """What the store would answer, where the turn before left it; None where it must be asked."""
        if (
            found is None
            or found.conversation is None
            or found.defaults is not self.policy.blocks
            or ask.explicit not in (None, found.conversation.name)
        ):
            return None
        lead = prepended = 0
        if turn.newest < 0:
            messages = found.kept.followed(turn.messages) if found.kept else None
            if messages is None:
                return None
            turn, lead, prepended = (
                self._turn(ask, messages),
                leading(ask.messages),
                len(messages) - len(ask.messages),
            )
        at = turn.newest
        sent = found.sent if found.sent is not None and found.sent.goes_on(turn.messages) else None
        found.turn, found.sent, found.lead, found.prepended = (
            turn,
            sent,
            lead,
            prepended,
        )  # it is nobody else's any more
        found.past.at, found.past.places = at, sent.places if sent else None
        return found

    async def _read(self, asked: turns.Ask, patience: Patience) -> turns.Snapshot:
        """The snapshot of a request. One whose history is kept here cannot do without, and waits longer."""
        needed = asked.explicit is not None and asked.turn.newest < 0
        small = not needed and len(asked.turn.messages) <= SMALL
        own = Patience(NEEDED_SECONDS) if needed else patience
        try:
            with own.of(NEEDED_SECONDS if needed else self.policy.read_deadline) as seconds:
                found = await self.db.read(
                    lambda conn: turns.snapshot(conn, asked), seconds, small=small
                )
        except StoreUnavailable:
            self._failures += 1
            if self._failures >= FAILURES and self._probe is None:
                self._probe = asyncio.create_task(self._probed(), name="memory-probe")
            raise
        self._failures = 0
        return found

    async def _probed(self) -> None:
        """Asks the store the least that it can answer, once reads failed or were late in a row: one scope's
        long read, or a process with much to do, is no broken store. One that is broken is left alone for a
        while, by all."""
        try:
            await self.db.read(owners.probe, PROBE_SECONDS, small=True)
        except StoreUnavailable as e:
            log.warning(
                "the store answers nothing (%s): requests go without memory for %g s",
                e,
                CLOSED_SECONDS,
            )
            self._closed_until = time.monotonic() + CLOSED_SECONDS
        finally:
            self._failures, self._probe = 0, None

    async def _landed(self, key: bytes) -> None:
        """A duplicate whose first attempt is still in flight waits for it."""
        while (flight := self._flights.get(key)) is not None:
            await flight.wait()

    def _take_off(self, key: bytes | None) -> bytes | None:
        if key is None or key in self._flights:
            return None
        self._flights[key] = asyncio.Event()
        return key

    def land(self, flight: bytes | None) -> None:
        if flight is not None and (event := self._flights.pop(flight, None)) is not None:
            event.set()
