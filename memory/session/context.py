"""One turn, as its composer, tool runner and recorder share it.

What is known at its start is frozen; what happens in it is `TurnProgress`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec
from sqlalchemy import Connection

from memory.context.tokens import TokenCounter
from memory.conversation.history import LIGHT_MESSAGES
from memory.conversation.messages import DigestCache, Json
from memory.conversation.openings import COMPARED_OPENINGS, TASK_OPENINGS, Opening, similar
from memory.core.autonomy import Decision
from memory.core.blocks import CoreBlock
from memory.ids import clock, new_id, new_key
from memory.retrieval.recall_search import RecallSearch
from memory.retrieval.retriever import Retriever
from memory.session.conversation_cache import (
    ConversationCache,
    ScopeEntries,
    named_conversation_key,
)
from memory.session.in_flight import TurnClaim
from memory.session.message_delivery import MessageDelivery
from memory.session.model_records import ModelRecords
from memory.session.recovery_log import RecoveryLog
from memory.session.request import Policy, TurnRequest
from memory.session.shared_changes import SharedChanges
from memory.session.store_deadline import StoreDeadline
from memory.session.trace import ExplainTrace
from memory.session.turn_store import LIGHT, TurnStore
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows.openings import StoredOpening
from memory.stores.sql.turns import turn_reader


class TurnServices(msgspec.Struct, frozen=True):
    """The parts of the memory that a turn uses.

    counter: counts tokens for its model. models: how models use the memory tools. wake_worker: lets
    a job that is due begin now. shared: counts changes of shared blocks. claimed_messages: ids
    of those that a turn of this process is about to deliver.
    """

    db: Database
    lines: ConversationCache
    digests: DigestCache
    retrieval: Retriever
    recovery_log: RecoveryLog
    counter: TokenCounter
    models: ModelRecords
    wake_worker: Callable[[], None]
    recall: RecallSearch
    shared: SharedChanges
    claimed_messages: set[str] = msgspec.field(default_factory=set)


class RequestAttempt(msgspec.Struct):
    """One attempt at a request.

    claim: what it holds in flight. entries: cache entries of the scope, where the next turn finds
    what this one leaves. edited: its tools changed blocks. patience: its remaining time for the
    store. opening: what it is like, if it may continue nothing.
    """

    claim: TurnClaim
    entries: ScopeEntries | None = None
    edited: bool = False
    patience: StoreDeadline = msgspec.field(default_factory=StoreDeadline)
    opening: Opening | None = None

    def edits(self, lines: ConversationCache, scope: bytes, done: bool) -> None:
        """Make other turns read what this turn's tools wrote.

        So must the next turn, unless all of it is `done`, since a late write may arrive at any
        time; and so must it if somebody else wrote since this turn began: of those changes, only
        the blocks are read again.
        """
        alone = self.entries is not None and lines.entries_of(scope) is self.entries
        lines.forget(scope)
        if done and alone:
            self.entries = lines.entries_of(scope)
        else:
            self.entries = None
        self.edited = True

    def blocks(
        self, conn: Connection, block_set: block_rows.BlockSet, before: dict[str, CoreBlock]
    ) -> dict[str, CoreBlock]:
        """Return a user's blocks as the turn leaves them. before: as it found them."""
        if self.edited and self.entries is not None:
            return block_rows.all_of(conn, block_set)
        return before


class TurnIdentity(msgspec.Struct, frozen=True):
    """The node and conversation under which a turn is recorded.

    adopted: the node is an earlier attempt's. head: the conversation's last node as the turn found
    it.
    """

    node_id: int
    conversation: turn_reader.ConversationState
    adopted: bool
    forked_from: str | None
    head: int | None
    explain_id: str


class TurnProgress(msgspec.Struct):
    """What has happened in a turn so far.

    scope_id: the scope's row, if it exists. rounds: finished rounds of an earlier attempt, then of
    this one. opened: the store has the request. unsaved: the store did not take the edits of the
    tools. delivery: messages to the agent. is_reminded: the model was told what it has to call
    before it ends. runs: of the user's turn so far, as they are stored.
    """

    scope_id: int | None
    rounds: list[Json]
    trace: ExplainTrace = msgspec.field(default_factory=ExplainTrace)
    opened: bool = False
    unsaved: bool = False
    delivery: MessageDelivery | None = None
    is_reminded: bool = False
    runs: Json | None = None


class TurnContext(msgspec.Struct, frozen=True):
    """One turn: the request, its snapshot, and its identity.

    task: why it is a task, None for a talk. is_recording: it is written to the store. injects:
    memory is added. is_stranger: no user is named and no conversation continued. keeps_history: the
    client only sends its newest messages, and the rest is stored here.
    """

    services: TurnServices
    ask: TurnRequest
    snapshot: turn_reader.Snapshot
    attempt: RequestAttempt
    policy: Policy
    identity: TurnIdentity
    progress: TurnProgress
    store: TurnStore
    task: Decision | None
    is_recording: bool
    injects: bool
    is_stranger: bool
    keeps_history: bool

    @property
    def decisions(self) -> Mapping[str, Decision]:
        """What was decided about this request, by name, and why."""
        if self.task is None:
            return self.ask.decisions
        without = Decision(False, "the request is a task")
        return {"task": self.task, **dict.fromkeys(self.ask.decisions, without)}

    @property
    def is_spare(self) -> bool:
        """Whether nothing is added but blocks with a value: a task's, an unnamed user's first."""
        return self.is_stranger or self.task is not None

    @property
    def once(self) -> bytes | None:
        """What makes the request one among several workers: its key, if the client gave one."""
        claim = self.attempt.claim
        if self.ask.idempotency and claim.is_first:
            return claim.request
        return None

    @property
    def zone(self) -> str:
        """The user's time zone, by its name."""
        return self.ask.zone or self.policy.extraction.zone

    @property
    def is_new_message(self) -> bool:
        """Whether the user said something, so that this is no further step of a tool loop."""
        newest_message = self.snapshot.turn.messages.after.user
        return newest_message >= 0 and newest_message > self.snapshot.past.at

    @property
    def has_run_tools(self) -> bool:
        """Whether tools of the operator ran in the user's turn, or the client's did."""
        return self.progress.runs is not None or not self.is_new_message


def start_turn(
    services: TurnServices,
    ask: TurnRequest,
    snapshot: turn_reader.Snapshot,
    attempt: RequestAttempt,
    policy: Policy,
) -> TurnContext:
    """Decide how a turn is recorded, and register it as in flight."""
    has_ledger = snapshot.ledger is not None
    rounds = _finished_rounds(ask, snapshot, attempt.claim) if has_ledger else None
    opening = attempt.opening if _opens(ask, snapshot) else None
    # What an earlier attempt began with tools goes on with them.
    task = (
        None if rounds or opening is None else _decide_task(ask, snapshot, attempt.claim, opening)
    )
    identity = _identify(ask, snapshot, attempt.claim)
    if opening is not None:
        _describe(identity.conversation, opening, snapshot.openings, is_task=task is not None)
    turn = TurnContext(
        services,
        ask,
        snapshot,
        attempt,
        policy,
        identity,
        TurnProgress(snapshot.scope_id, list(rounds or ())),
        _turn_store(services, ask, snapshot, attempt.patience, identity),
        task,
        ask.mode != "read" and ask.records,
        ask.mode != "write" and ask.inject,
        not ask.scope.is_named and snapshot.past.node is None,
        ask.explicit is not None and not ask.resends and ask.messages.after.newest < 0,
    )
    attempt.claim.hold_node(identity.node_id)
    if turn.is_recording:
        _evict_continued(turn)
        if opening is not None:
            attempt.claim.hold_opening(ask.scope.key, opening)
    return turn


def _turn_store(
    services: TurnServices,
    ask: TurnRequest,
    snapshot: turn_reader.Snapshot,
    patience: StoreDeadline,
    identity: TurnIdentity,
) -> TurnStore:
    # A request that is sent again has no new messages, and yet the rows of all of these.
    unanswered = ask.messages.after.count - ask.messages.after.newest
    characters = 0
    for block in snapshot.blocks.values():
        characters += len(block.value)
    return TurnStore(
        services.db,
        services.recovery_log,
        snapshot.owner,
        patience,
        owner_lock(ask.scope.tenant, ask.scope.user, identity.conversation.id),
        heavy=ask.messages.heavy or characters > LIGHT or unanswered > LIGHT_MESSAGES,
    )


def _opens(ask: TurnRequest, snapshot: turn_reader.Snapshot) -> bool:
    """Tell whether a named user's request continues nothing."""
    conversation = snapshot.conversation
    begins = conversation is None or conversation.head is None
    return ask.scope.is_named and begins and snapshot.turn.newest < 0


def _decide_task(
    ask: TurnRequest, snapshot: turn_reader.Snapshot, claim: TurnClaim, opening: Opening
) -> Decision | None:
    """Return why a request that continues nothing is a task; None if it is none."""
    if not (ask.tasks and opening.has_edges):
        return None
    # Those in flight are newer than those stored.
    earlier = chain(claim.openings(ask.scope.key), (row.opening for row in snapshot.openings))
    similar_count = len(similar(opening, earlier))
    if similar_count < TASK_OPENINGS:
        return None
    reason = (
        f"its message begins or ends as those of {similar_count} of the user's last "
        f"{COMPARED_OPENINGS} requests that were never continued"
    )
    return Decision(True, reason)


def adopts(ask: TurnRequest, snapshot: turn_reader.Snapshot, claim: TurnClaim) -> bool:
    """Tell whether a turn goes on with an earlier attempt's node."""
    attempt_node = snapshot.attempt_node
    if attempt_node is None or snapshot.held or claim.is_open(attempt_node.id):
        return False
    if ask.repeats == "new" and not ask.certain:
        return False
    return attempt_node.state == "open" or _finished_rounds(ask, snapshot, claim) is not None


def _finished_rounds(
    ask: TurnRequest, snapshot: turn_reader.Snapshot, claim: TurnClaim
) -> Sequence[Json] | None:
    """Return the finished rounds of an earlier attempt; None if this one does not resume it."""
    ledger = snapshot.ledger
    if ledger is None or snapshot.held or not claim.is_first:
        return None
    if ask.repeats == "new" and (not ask.certain or ledger.node.state == "done"):
        # It is the turn before, of the same message.
        return None
    lately = (
        ledger.node.state != "done" and clock.now() - ledger.node.at < turn_reader.RETRY_SECONDS
    )
    if lately or ask.certain:
        return ledger.rounds
    return None


def _identify(ask: TurnRequest, snapshot: turn_reader.Snapshot, claim: TurnClaim) -> TurnIdentity:
    """Choose the node and the conversation.

    An earlier attempt's node is continued, so that nothing is recorded twice. The conversation is
    that attempt's own, the one named, the one continued, a fork of it, or a new one.
    """
    attempt_node = snapshot.attempt_node
    conversation_found = snapshot.conversation
    node = snapshot.past.node
    adopted = attempt_node is not None and adopts(ask, snapshot, claim)
    node_id = attempt_node.id if attempt_node is not None and adopted else new_key()
    forked_from = None
    if adopted and snapshot.attempt_conversation is not None:
        conversation = snapshot.attempt_conversation
    elif conversation_found is not None and (
        ask.explicit
        or (
            node
            and conversation_found.head in (None, node.turn)
            and claim.is_first_to_continue(node.id, snapshot.turn.chain.end)
        )
    ):
        conversation = conversation_found
        # Behind an earlier answer than the last one, as an edit is (see `sibling_turns`).
        if ask.explicit and conversation.head not in (None, node.turn if node else None):
            forked_from = conversation.name
    else:
        forked_from = conversation_found.name if conversation_found is not None else None
        conversation = turn_reader.ConversationState(
            new_key(), ask.explicit or new_id("conv"), bool(ask.explicit), False, None
        )
    return TurnIdentity(
        node_id,
        conversation,
        adopted,
        forked_from,
        conversation_found.head if conversation_found else None,
        # Random, followed by the key of its record.
        f"{new_id('explain')}{node_id:016x}",
    )


def _evict_continued(turn: TurnContext) -> None:
    """Remove cache entries that the turn continues or replaces, so that no other turn uses them."""
    continued = turn.snapshot.past.node
    attempt_node = turn.snapshot.attempt_node
    ends: list[bytes] = [] if continued is None else [continued.chain]
    if attempt_node is not None:
        ends.append(attempt_node.chain)
    if turn.ask.explicit:
        ends.append(named_conversation_key(turn.ask.explicit))
    lines = turn.services.lines
    # Asked for anew: what the turn began with may have been dropped meanwhile.
    entries = None
    if ends:
        entries = lines.entries_of(turn.ask.scope.key)
    for end in ends:
        lines.take(entries, end)


def _describe(
    conversation: turn_reader.ConversationState,
    opening: Opening,
    stored_openings: Sequence[StoredOpening],
    *,
    is_task: bool,
) -> None:
    """Note what a new conversation is like, for the requests after it.

    Of a task also which conversations before it are tasks too, and are not marked yet.
    """
    conversation.opening = opening.pack()
    conversation.task = is_task
    if is_task:
        conversation.same_tasks = [
            row.conversation
            for row in stored_openings
            if not row.task and opening.is_like(row.opening)
        ]
