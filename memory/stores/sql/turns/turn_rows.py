"""What a turn writes, as plain data."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from memory.context.epoch import Epoch
from memory.conversation.matching import TurnNode
from memory.conversation.messages import Json
from memory.core.autonomy import ModelRecord
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.jobs import QueuedJob
from memory.stores.sql.rows.message_pieces import LargeBody, split_off
from memory.stores.sql.turns.turn_reader import ConversationState


class PendingTurn(msgspec.Struct):
    """What is written while the upstream works.

    The conversation, the unanswered node and the new messages of the request.
    """

    owner: scopes.ScopeOwner
    conversation: ConversationState
    forked_from: str | None
    node: TurnNode
    # what their rows say (see `contents_of`): a long text is encoded before the store is held
    messages: Sequence[dict[str, Any]]
    request: bytes | None
    # The node exists already, from an earlier attempt.
    adopted: bool = False
    # Of an earlier attempt, which count.
    rounds: Sequence[Json] = ()
    # The scope's row, where the turn found one.
    scope_id: int | None = None
    # the scope and the conversation as this transaction found them (see `owners.standing`)
    status: Any = None
    # See `ApplicationTables.keep`.
    beside: Mapping[str, Json] = msgspec.field(default_factory=dict)
    # where several workers write: this one, and the key of a request that is one by it
    holder: int | None = None
    once: bytes | None = None
    # The request named its conversation, and stays in it.
    named: bool = False
    # When it was appended to the journal, None if it was not.
    at: float | None = None
    # Bodies of messages, which are written before.
    large_bodies: Sequence[LargeBody] = ()

    def __post_init__(self) -> None:
        if self.adopted:
            self.large_bodies = ()
        else:
            self.large_bodies = split_off(self.messages)


class TurnRecord(msgspec.Struct):
    """What a turn leaves: its answers (one for each choice), a new epoch, its explain record.

    Plain data, so that it can go to the recovery log if the store fails.
    """

    owner: scopes.ScopeOwner
    conversation: int
    nodes: list[TurnNode]
    answers: list[Json]
    resent: bool
    epoch: Epoch | None = None
    explain: tuple[str, Json] | None = None
    evicted: list[tuple[Json, bytes]] = msgspec.field(default_factory=list)
    prove: bool = False
    # The scope's, for the links of a line that is joined anew.
    key: bytes = b""
    # The line's end as this turn found it.
    seen_head: int | None = None
    # The line is kept here (a client that sends its newest message alone).
    kept: bool = False
    # An earlier attempt may have left an answer of its own, which this one replaces.
    again: bool = False
    # What follows in the background.
    jobs: list[QueuedJob] = msgspec.field(default_factory=list)
    # Passages that automatic recall showed.
    used: list[int] = msgspec.field(default_factory=list)
    # what the rows of each answer say (see `contents_of`); found out when they are written where
    # it is not told
    contents: Sequence[Sequence[dict[str, Any]]] | None = None
    # The scope's row, where it is known.
    scope_id: int | None = None
    # The turn of the first node's parent, where it is known.
    parent_turn: int | None = None
    # Extraction may read it.
    unread: bool = False
    # Who asked, where the memory is an agent's own.
    said_by: str | None = None
    # how models use the tools they are offered, as far as it is to be written now
    models: dict[str, ModelRecord] = msgspec.field(default_factory=dict)
    # See `ApplicationTables.keep`.
    beside: Mapping[str, Json] = msgspec.field(default_factory=dict)
    # The worker that opened the turn, where there are several.
    holder: int | None = None
    # The turn's own node, which another worker took over.
    aside: int | None = None
    # Bodies of answers, which are written before.
    large_bodies: Sequence[LargeBody] = ()
    # When it was appended to the journal, None if it was not.
    at: float | None = None
    # The explain record as it is stored, where that is made already.
    explained: str | None = None
    # Messages to the agent, by id.
    delivered: list[str] = msgspec.field(default_factory=list)
    # of the scope and of the conversation as this record left them, where they are compared
    versions: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.large_bodies = split_off(itertools.chain.from_iterable(self.contents or ()))
