"""One turn as its composer, its tool runner and its recorder share it.

What is known when it begins does not change; what happens in it is `TurnProgress`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from memory.context.tokens import TokenCounter
from memory.conversation.messages import DigestCache, Json
from memory.core.blocks import Block
from memory.ids import new_id, new_key
from memory.retrieval.retriever import Retriever
from memory.session.conversation_cache import (
    ConversationCache,
    ScopeEntries,
    named_conversation_key,
)
from memory.session.in_flight import TurnClaim
from memory.session.recovery_log import RecoveryLog
from memory.session.request import Policy, TurnRequest
from memory.session.store_deadline import StoreDeadline
from memory.session.trace import ExplainTrace
from memory.session.turn_store import LIGHT, TurnStore
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import turn_reader
from memory.stores.sql.database import Database


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What a turn uses of the memory it belongs to. counter: of its model's tokens."""

    db: Database
    lines: ConversationCache
    seen: DigestCache
    retrieval: Retriever
    spill: RecoveryLog
    counter: TokenCounter


@dataclass(slots=True)
class RequestAttempt:
    """One attempt at a request.

    claim: what it holds of what is in flight. shelf: where the next turn finds what this one
    leaves. edited: its tools wrote. patience: what it may still wait for the store.
    """

    claim: TurnClaim
    shelf: ScopeEntries | None = None
    edited: bool = False
    patience: StoreDeadline = field(default_factory=StoreDeadline)

    def edits(self, lines: ConversationCache, scope: bytes, done: bool) -> None:
        """Let others read what its tools wrote.

        So must the next turn, unless all of it is `done`: what is late may come at any time. So
        must it where somebody else wrote since this turn began: of what that changed, the blocks
        alone are read again.
        """
        alone = self.shelf is not None and lines.shelf(scope) is self.shelf
        lines.forget(scope)
        self.shelf = lines.shelf(scope) if done and alone else None
        self.edited = True

    def blocks(
        self, conn: Connection, shelf: block_rows.BlockSet, before: dict[str, Block]
    ) -> dict[str, Block]:
        """Return those of a user as the turn leaves them. before: as it found them."""
        return block_rows.all_of(conn, shelf) if self.edited and self.shelf is not None else before


@dataclass(frozen=True, slots=True)
class TurnIdentity:
    """Which node and conversation a turn is recorded under.

    adopted: the node is an earlier attempt's. head: the line's end as the turn found it.
    """

    node_id: int
    conversation: turn_reader.ConversationState
    adopted: bool
    forked_from: str | None
    head: int | None
    explain_id: str


@dataclass(slots=True)
class TurnProgress:
    """What has happened in a turn so far.

    scope_id: the scope's row, where there is one. rounds: finished ones of an earlier attempt, then
    of this one. opened: the store has the request. unsaved: it did not take what tools would have
    written.
    """

    scope_id: int | None
    rounds: list[Json]
    trace: ExplainTrace = field(default_factory=ExplainTrace)
    opened: bool = False
    unsaved: bool = False


@dataclass(frozen=True, slots=True)
class TurnContext:
    """One turn: what was asked, what the store said, and what it is to be recorded as."""

    services: TurnServices
    ask: TurnRequest
    snapshot: turn_reader.Snapshot
    attempt: RequestAttempt
    policy: Policy
    identity: TurnIdentity
    progress: TurnProgress
    store: TurnStore

    @property
    def is_recording(self) -> bool:
        return self.ask.mode != "read" and self.ask.records

    @property
    def injects(self) -> bool:
        return self.ask.mode != "write" and self.ask.inject

    @property
    def keeps_history(self) -> bool:
        """Whether the client sends its newest messages alone, and the rest is kept here."""
        return self.ask.explicit is not None and self.ask.messages.after.newest < 0

    @property
    def stranger(self) -> bool:
        """Whether nobody is named and nothing is continued."""
        return not self.ask.scope.is_named and self.snapshot.past.node is None


def start_turn(
    services: TurnServices,
    ask: TurnRequest,
    snapshot: turn_reader.Snapshot,
    attempt: RequestAttempt,
    policy: Policy,
) -> TurnContext:
    """Find out what a turn is recorded as, and tell other turns of it."""
    held = sum(len(b.value) for b in snapshot.blocks.values())
    rounds = _finished_rounds(ask, snapshot, attempt.claim)
    identity = _identify(ask, snapshot, attempt.claim, resumed=rounds is not None)
    turn = TurnContext(
        services,
        ask,
        snapshot,
        attempt,
        policy,
        identity,
        TurnProgress(snapshot.scope_id, list(rounds or ())),
        TurnStore(
            services.db,
            services.spill,
            snapshot.owner,
            attempt.patience,
            heavy=ask.messages.heavy or held > LIGHT,
        ),
    )
    attempt.claim.hold_node(identity.node_id)
    if turn.is_recording:
        _evict_continued(turn)
    return turn


def _finished_rounds(
    ask: TurnRequest, snapshot: turn_reader.Snapshot, claim: TurnClaim
) -> Sequence[Json] | None:
    """Return the rounds of an earlier attempt, None where this one does not go on with it."""
    ledger = snapshot.ledger
    if ledger is None or not claim.first:
        return None
    lately = (
        ledger.node.state != "done" and time.time() - ledger.node.at < turn_reader.RETRY_SECONDS
    )
    return ledger.rounds if lately or ask.certain else None


def _identify(
    ask: TurnRequest, snapshot: turn_reader.Snapshot, claim: TurnClaim, *, resumed: bool
) -> TurnIdentity:
    """Choose the node and the conversation.

    The earlier attempt's node is gone on with, so that nothing is recorded twice. The conversation
    is its own, the one named, the one continued, a fork of it, or a new one.
    """
    waiting, found, node = snapshot.waiting, snapshot.conversation, snapshot.past.node
    adopted = (
        waiting is not None
        and not claim.is_open(waiting.id)
        and (resumed or waiting.state == "open")
    )
    node_id = waiting.id if waiting is not None and adopted else new_key()
    forked_from = None
    if adopted and snapshot.waiting_in is not None:
        conversation = snapshot.waiting_in
    elif found is not None and (
        ask.explicit
        or (
            node
            and found.head in (None, node.turn)
            and claim.is_first_to_continue(node.id, snapshot.turn.chain.end)
        )
    ):
        conversation = found
    else:
        forked_from = found.name if found is not None else None
        conversation = turn_reader.ConversationState(
            new_key(), ask.explicit or new_id("conv"), bool(ask.explicit), False, None
        )
    return TurnIdentity(
        node_id,
        conversation,
        adopted,
        forked_from,
        found.head if found else None,
        f"{new_id('explain')}{node_id:016x}",  # random, and where its record stands
    )


def _evict_continued(turn: TurnContext) -> None:
    """Let nobody else go on from what is kept of the answer that a turn continues or replaces."""
    ends = [n.chain for n in (turn.snapshot.past.node, turn.snapshot.waiting) if n]
    if turn.ask.explicit:
        ends.append(named_conversation_key(turn.ask.explicit))
    lines = turn.services.lines
    shelf = lines.shelf(turn.ask.scope.key) if ends else None
    for end in ends:
        lines.take(shelf, end)
