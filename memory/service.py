"""The memory as a turn uses it: begin (read once, compose), open, run calls, finish.

Knows nothing of HTTP. A `Session` is one request's view. No lock or transaction spans an upstream
call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from sys import getsizeof
from typing import TypeVar

import msgspec
from sqlalchemy import Connection

from memory.cache import Cache
from memory.context.tokens import TokenCounter
from memory.conversation.history import Messages, count_leading_system
from memory.conversation.matching import RequestHistory
from memory.conversation.messages import DigestCache
from memory.conversation.openings import Opening, opening_of
from memory.errors import AttemptRunning, MemoryFault, NotUpgraded, StoreUnavailable
from memory.retrieval.recall_search import RecallSearch
from memory.retrieval.retriever import Retriever, SemanticSearch
from memory.scope import Scope, memory_name
from memory.session.agent_profiles import AgentProfiles
from memory.session.context import RequestAttempt, TurnServices, start_turn
from memory.session.conversation_cache import (
    ConversationCache,
    ScopeEntries,
    named_conversation_key,
)
from memory.session.earlier_attempts import settle
from memory.session.in_flight import InFlight
from memory.session.model_records import ModelRecords
from memory.session.policies import MODES, UserPolicies
from memory.session.recovery_log import RecoveryLog
from memory.session.replay import Replay
from memory.session.request import Policy, TurnRequest, request_key
from memory.session.session import Session, begin_session
from memory.session.shared_changes import SharedChanges
from memory.session.snapshot_query import HashedRequest, query_of
from memory.session.store_deadline import TURN_SECONDS, StoreDeadline
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import model_records, scopes
from memory.stores.sql.turns import node_holders, turn_prefetch, turn_reader

log = logging.getLogger("mnemogate")
T = TypeVar("T")
encode = msgspec.json.Encoder().encode
SCOPES_BYTES, SCOPES_EACH = 3 << 19, 600  # cache of scopes with their derived keys: some 2,000
FAILURES = 3  # failed or late reads in a row before the store is probed
PROBE_SECONDS, CLOSED_SECONDS = 1.0, 2.0  # timeout of a probe, and pause after one that failed
AGAIN_SECONDS = 0.05  # before a request that another worker has begun is looked at again
NEEDED_SECONDS = 5.0  # timeout of a read that its request cannot continue without
SMALL_HISTORY_MESSAGES = 64  # up to this size a lookup needs only a few rows by key


def _wake_nobody() -> None:
    """Do nothing."""


class Memory:
    """The memory of one process.

    data: folder of the recovery log, None for none. meaning: semantic search, None for keyword
    search only.
    """

    def __init__(
        self,
        db: Database,
        policy: Policy,
        secret: bytes,
        data: Path | None = None,
        meaning: SemanticSearch | None = None,
    ) -> None:
        self.db = db
        self.policy = policy
        self.secret = secret
        self.counters: dict[str, TokenCounter] = {}
        self.lines = ConversationCache(db)
        self.digests = DigestCache()
        self.policies = UserPolicies(db)
        self.agents = AgentProfiles(db)
        self.shared = SharedChanges(db)
        self.claimed_messages: set[str] = set()
        self.scopes: Cache[tuple[str, str | None, str], Scope] = Cache(
            SCOPES_BYTES, SCOPES_EACH, lambda name, _: sum(map(getsizeof, name))
        )
        self.in_flight = InFlight()
        self.models = ModelRecords()
        self.retrieval = Retriever(db, meaning, self.in_flight.nodes)
        db.filer.on_filed = [self.retrieval.indexing.notify_added]
        self.recall = RecallSearch(db, self.retrieval)
        log_path = data and data / "spill.ndjson"
        self.recovery_log = RecoveryLog(log_path, secret, lambda: self.policy.screen)
        self._replay = Replay(db, self.recovery_log)
        self._following: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._failures = 0
        self._probe: asyncio.Task[None] | None = None
        self._closed_until = 0.0
        self._letting_go: asyncio.Task[None] | None = None
        self.upgrade_reason = ""  # why the database must be upgraded first
        # What is done before the first turn; what runs the jobs, where it runs here.
        self.before_ready: list[Callable[[], Awaitable[None]]] = []
        self.wake_worker: Callable[[], None] = _wake_nobody

    async def open(self) -> None:
        """Open the store and replay the recovery log. Raises StoreUnavailable."""
        try:
            await self.db.open()
        except NotUpgraded as e:
            self.upgrade_reason = str(e)
            raise
        if (lease := self.db.lease) is not None:
            try:
                await lease.take()
            except StoreUnavailable:
                await self.db.close()
                raise
            lease.keep(self._on_beat)
        if self.db.is_shared:
            self.recovery_log.claim()
        await self._replay.run()
        await self.db.fill_pool()
        self.models.load(await self.db.read(model_records.load))
        await self.policies.load()
        await self.shared.load()
        for prepare in self.before_ready:
            await prepare()
        await self.agents.load()
        self.retrieval.indexing.start()
        if not self._following:
            work = [self._replay.follow()]
            if self.db.holder is not None:
                work += [self.policies.follow(), self.agents.follow()]
            self._following = [asyncio.create_task(loop, name="memory-follow") for loop in work]
        self._ready.set()

    def _on_beat(self, lost: bool) -> None:
        """Catch up with other workers. lost: the lease was lost meanwhile."""
        if lost:
            self.policies.forget()  # others may have changed them
            self.agents.forget()
        if (nodes := self.in_flight.released_nodes) and self._letting_go is None:
            self._letting_go = asyncio.create_task(self._let_go(set(nodes)), name="memory-let-go")

    async def _let_go(self, nodes: set[int]) -> None:
        """Let other workers go on with nodes that this one does nothing more with."""
        try:
            free_nodes = nodes - self.in_flight.nodes
            let_go = partial(node_holders.let_go, nodes=free_nodes, me=self.db.holder or 0)
            await self.db.write(let_go, lock=NOTHING)
            self.in_flight.released_nodes -= nodes
        except StoreUnavailable:
            pass  # with the next renewal
        finally:
            self._letting_go = None

    async def close(self) -> None:
        self._ready.clear()
        for task in (*self._following, *([self._probe] if self._probe else ())):
            task.cancel()
        self._following = []
        try:
            await self.retrieval.indexing.stop()
            await self.recall.active.close()
            if self.retrieval.meaning is not None and self.retrieval.meaning.index is not None:
                await self.retrieval.meaning.index.close()
        finally:
            await self._keep_the_unwritten()
            await self.db.close()
            self.recovery_log.release()

    async def _keep_the_unwritten(self) -> None:
        """Write the turns that are in memory alone to the recovery file, as a last resort."""
        try:
            await asyncio.to_thread(self.recovery_log.flush)
        except OSError:
            log.exception(
                "%d turns are lost with this process: neither the store nor the recovery file "
                "takes them",
                self.recovery_log.held_records,
            )

    def scope(self, tenant: str, user: str | None, agent: str, project: str = "") -> Scope:
        """Return a scope; its keys are derived once and cached."""
        agent = memory_name(agent, project) if project else agent
        name = (tenant, user, agent)
        if (known_scope := self.scopes.get(name)) is None:
            self.scopes.put(name, known_scope := Scope(tenant, user, agent, self.secret))
        return known_scope

    def counter(self, family: str) -> TokenCounter:
        """Return the token counter of a tokenizer family.

        It is exact if the vocabulary is installed, otherwise an estimate.
        """
        return self.counters.get(family) or self.counters.setdefault(family, TokenCounter())

    @property
    def ready(self) -> bool:
        is_open = self._ready.is_set() and time.monotonic() >= self._closed_until
        return is_open and self.db.may_write and not self.recovery_log.is_full

    async def wait_until_ready(self) -> None:
        """Wait for the store at start-up.

        Raises StoreUnavailable if it does not open in time, or failed repeatedly.
        """
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(self.policy.start_wait):
                    await self._ready.wait()
            except TimeoutError as e:
                raise StoreUnavailable("the memory store is not ready") from e
        if time.monotonic() < self._closed_until:
            raise StoreUnavailable("the memory store failed repeatedly; trying again shortly")
        if self.db.is_shared:
            await self.db.check_may_write()

    async def user_policy(self, tenant: str, user: str) -> str:
        """Return what the memory may do for a user, one of `MODES`. Raises StoreUnavailable."""
        if self.policies.is_unused:
            return MODES[0]
        if not self.policies.loaded:
            await self.wait_until_ready()
        return await self.policies.find((tenant, user), self.policy.read_deadline)

    async def begin(self, ask: TurnRequest) -> Session:
        """Read what the request needs, within the deadline, and compose its prompt.

        Raises StoreUnavailable.
        """
        try:
            while True:
                try:
                    return await self._begin(ask)
                except AttemptRunning:
                    await asyncio.sleep(AGAIN_SECONDS)
        except MemoryFault:
            raise
        except Exception as e:
            log.exception("unexpected failure of the memory; the request continues without it")
            raise StoreUnavailable(f"the memory failed: {type(e).__name__}") from e

    async def _begin(self, ask: TurnRequest) -> Session:
        if ask.records and self.recovery_log.is_full:
            raise StoreUnavailable("turns that the store did not take fill the room kept for them")
        policy = ask.policy or self.policy  # the same for the whole request, even if reloaded
        await self.wait_until_ready()
        heavy = ask.messages.heavy
        turn, key = (
            await asyncio.to_thread(self._hash_request, ask) if heavy else self._hash_request(ask)
        )
        if key is not None and ask.certain:
            await self.in_flight.wait_for(key)
        claim = self.in_flight.claim(key)
        patience = StoreDeadline(max(TURN_SECONDS, policy.read_deadline))
        try:
            takes = ask.mode == "full" and ask.records  # what another turn left for the next
            entries = self.lines.entries_of(ask.scope.key) if takes else None
            cached_snapshot = await self._take_cached(ask, turn, entries, patience)
            snapshot = self._snapshot_from_cache(ask, turn, cached_snapshot)
            opening = await self._find_opening(ask, turn) if snapshot is None else None
            read_snapshot = partial(
                self._read_snapshot, ask, HashedRequest(turn, key, opening), patience
            )
            if snapshot is None:
                snapshot = await read_snapshot()
            if key is not None and self.db.is_shared:
                snapshot = await settle(self.db, ask, claim, snapshot, read_snapshot)
            attempt = RequestAttempt(claim, entries, patience=patience, opening=opening)
            started_turn = start_turn(self._services(ask.tokenizer), ask, snapshot, attempt, policy)
            session = await begin_session(started_turn)
            if ask.idempotency and self.db.holder is not None:
                await session.open()  # before the model is asked, so that no other worker asks too
            return session
        except BaseException:
            claim.release()
            raise

    def _services(self, tokenizer: str) -> TurnServices:
        return TurnServices(
            self.db,
            self.lines,
            self.digests,
            self.retrieval,
            self.recovery_log,
            self.counters.get(tokenizer) or self.counter(tokenizer),
            self.models,
            self.wake_worker,
            self.recall,
            self.shared,
            self.claimed_messages,
        )

    def _hash_request(self, ask: TurnRequest) -> tuple[RequestHistory, bytes | None]:
        """Hash the request's messages, and derive its key."""
        scope = ask.scope
        turn = RequestHistory.of(scope.key, ask.messages, not scope.is_named, self.digests)
        records = ask.mode != "read" and ask.records
        return turn, request_key(ask, turn) if records else None

    async def _find_opening(self, ask: TurnRequest, turn: RequestHistory) -> Opening | None:
        """Return what a named user's request is like, if it may continue nothing."""
        if not ask.scope.is_named:
            return None
        find = partial(opening_of, turn, ask.harness)
        return await asyncio.to_thread(find) if ask.messages.heavy else find()

    def _turn(self, ask: TurnRequest, messages: Messages) -> RequestHistory:
        return RequestHistory.of(ask.scope.key, messages, not ask.scope.is_named, self.digests)

    async def _take_cached(
        self,
        ask: TurnRequest,
        turn: RequestHistory,
        entries: ScopeEntries | None,
        patience: StoreDeadline,
    ) -> turn_reader.Snapshot | None:
        """Return the cached snapshot that the turn continues, if it still holds."""
        cached_snapshot = await self._find_cached(ask, turn, entries, patience)
        if cached_snapshot is not None and self.db.is_shared:
            return await self._compare(cached_snapshot, patience)
        return cached_snapshot

    async def _find_cached(
        self,
        ask: TurnRequest,
        turn: RequestHistory,
        entries: ScopeEntries | None,
        patience: StoreDeadline,
    ) -> turn_reader.Snapshot | None:
        """Return the cached snapshot that the turn continues: by the exact history, or, if a user's
        history was trimmed, by its newest answer.
        """
        if ask.certain or entries is None:
            return None
        if turn.newest < 0:
            explicit_name = "" if ask.resends else ask.explicit or ""
            return self.lines.take(entries, named_conversation_key(explicit_name))
        cached_snapshot = self.lines.take(entries, turn.chain.link(turn.newest))
        if cached_snapshot is not None or not ask.scope.is_named:
            return cached_snapshot
        digest = turn.chain.digest(turn.newest)
        if digest == turn.silent or (ending := entries.find_ending(digest)) is None:
            return None
        link, node = ending
        scope_id = entries.lines[link].scope_id or 0
        with (
            contextlib.suppress(StoreUnavailable),
            patience.of(self.policy.read_deadline) as seconds,
        ):
            look = partial(turn_reader.only_node, scope_id=scope_id, digest=digest)
            only = await self.db.read(look, seconds, small=True, single=True, of=ask.scope.key)
            # a write may have happened while this read waited
            if only == node and self.lines.entries_of(ask.scope.key) is entries:
                return self.lines.take(entries, link)
        return None

    async def _compare(
        self, cached_snapshot: turn_reader.Snapshot, patience: StoreDeadline
    ) -> turn_reader.Snapshot | None:
        """Return the cached snapshot if nobody wrote what it holds since; one look by key."""
        scope_id, line = cached_snapshot.scope_id, cached_snapshot.conversation
        if scope_id is None or line is None:
            return None
        scope = cached_snapshot.owner.scope
        expected_versions = [cached_snapshot.version, line.version, cached_snapshot.shares]
        if scope.project:
            look = scopes.versions(scope_id, line.id, scope.agent_name)
            expected_versions.append(cached_snapshot.general_version)
        else:
            look = scopes.versions(scope_id, line.id)
        rows = await self._read(look, patience, single=True)
        return cached_snapshot if [list(row) for row in rows] == [expected_versions] else None

    def _snapshot_from_cache(
        self, ask: TurnRequest, turn: RequestHistory, snapshot: turn_reader.Snapshot | None
    ) -> turn_reader.Snapshot | None:
        """Return the snapshot as the store would, from the cache; None if it must be read."""
        policy, project = ask.policy or self.policy, ask.scope.project
        if (
            snapshot is None
            or snapshot.conversation is None
            or snapshot.defaults is not (policy.project_blocks if project else policy.blocks)
            or (project and not self.lines.is_general_same(ask.scope, snapshot))
            or not (
                self.db.is_shared or snapshot.shares == self.shared.counts.get(ask.scope.tenant)
            )
            or ask.explicit not in (None, snapshot.conversation.name)
        ):
            return None
        lead = prepended_count = 0
        if turn.newest < 0:
            again, history = ask.repeats != "new", snapshot.server_history
            messages = history.continue_with(turn.messages, again) if history else None
            if messages is None:
                return None
            turn = self._turn(ask, messages)
            lead = count_leading_system(ask.messages)
            prepended_count = len(messages) - len(ask.messages)
        prompt = snapshot.sent_prompt
        if prompt is not None and not prompt.goes_on(turn.messages):
            prompt = None
        # Taken out of the cache, so not shared.
        snapshot.turn, snapshot.sent_prompt = turn, prompt
        snapshot.lead, snapshot.prepended_count = lead, prepended_count
        snapshot.past.at = turn.newest
        snapshot.past.places = prompt.places if prompt else None
        return snapshot

    async def _read_snapshot(
        self,
        ask: TurnRequest,
        request: HashedRequest,
        patience: StoreDeadline,
    ) -> turn_reader.Snapshot:
        """Read the snapshot of a request.

        A request whose history is stored here cannot continue without it, and waits longer.
        """
        query = query_of(ask, request, ask.policy or self.policy, self.shared)
        # Asked for before the read, so that what is written meanwhile outdates what is read.
        general_key = ask.scope.general.key
        entries = self.lines.entries_of(general_key) if query.general_blocks is not None else None
        snapshot = await self._read_query(query, patience)
        snapshot.general_entries = entries
        return snapshot

    async def _read_query(
        self, query: turn_reader.SnapshotQuery, patience: StoreDeadline
    ) -> turn_reader.Snapshot:
        needed = query.explicit is not None and not query.resends and query.turn.newest < 0
        await self.db.filer.file_of(query.scope.key, self.policy.read_deadline)
        is_small = not needed and len(query.turn.messages) <= SMALL_HISTORY_MESSAGES
        if self.db.is_shared and not needed:
            look = partial(turn_prefetch.snapshot, ask=query)
            if (snapshot := await self._read(look, patience, single=True)) is not None:
                return snapshot
        return await self._read(
            lambda conn: turn_reader.snapshot(conn, query),
            StoreDeadline(NEEDED_SECONDS) if needed else patience,
            NEEDED_SECONDS if needed else None,
            small=is_small,
        )

    async def _read(
        self,
        work: Callable[[Connection], T],
        patience: StoreDeadline,
        max_seconds: float | None = None,
        *,
        small: bool = False,
        single: bool = False,
    ) -> T:
        """Read what a request begins with; after some failures the store is probed.

        max_seconds: seconds, the read deadline if not given. Raises StoreUnavailable.
        """
        try:
            with patience.of(max_seconds or self.policy.read_deadline) as seconds:
                result = await self.db.read(work, seconds, small=small, single=single, of=NO_TURNS)
        except StoreUnavailable:
            self._failures += 1
            if self._failures >= FAILURES and self._probe is None:
                self._probe = asyncio.create_task(self._probe_store(), name="memory-probe")
            raise
        self._failures = 0
        return result

    async def _probe_store(self) -> None:
        """Run the smallest query, after several reads in a row failed or were late.

        A slow read of one scope, or a busy process, does not mean that the store is broken. If it
        is, all requests bypass it for a while.
        """
        try:
            # Also for a connection: where all are held by a server that stands still, none is free.
            async with asyncio.timeout(PROBE_SECONDS):
                await self.db.read(scopes.probe, PROBE_SECONDS, small=True)
        except (StoreUnavailable, TimeoutError) as e:
            log.warning(
                "the store does not respond (%s): requests continue without memory for %g s",
                e,
                CLOSED_SECONDS,
            )
            self._closed_until = time.monotonic() + CLOSED_SECONDS
        finally:
            self._failures, self._probe = 0, None
