"""Reads all that a turn needs, once: blocks, epoch, the recognised conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, bindparam, literal_column, select

from memory.context.epoch import Epoch, PreviousTurn
from memory.context.fitted import SentPrompt
from memory.conversation.history import Messages, PrefixInfo, ServerHistory, count_leading_system
from memory.conversation.matching import Repeat, RequestHistory, TurnNode, recognise
from memory.conversation.messages import Json
from memory.core.blocks import CoreBlock
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.statements import execute, in_clause, key_list, select_in_batches
from memory.stores.sql.rows import openings as opening_rows
from memory.stores.sql.rows import scopes, visible_blocks
from memory.stores.sql.rows.openings import StoredOpening
from memory.stores.sql.turns import node_holders, server_history

n = t.nodes.c
cv = t.conversations.c
encode = msgspec.json.encode
decode = msgspec.json.decode

CANDIDATES = 64

# Built once, like those below: they run in every turn, and building a statement costs more than
# running it.
EDITS = scopes.EDITS

BY_NAME = select(t.conversations).where(
    cv.scope_id == bindparam("scope"), cv.name == bindparam("which")
)

BY_KEY = select(t.conversations).where(
    cv.scope_id == bindparam("scope"), cv.id == bindparam("which")
)

EPOCH = select(t.epochs).where(
    t.epochs.c.scope_id == bindparam("scope"), t.epochs.c.id == bindparam("epoch")
)

ATTEMPT = (
    select(t.nodes)
    .where(n.request == bindparam("request"), n.scope_id == bindparam("scope"))
    .order_by(n.id.desc())
    .limit(1)
)

_m = t.messages.c
SAID = select(_m.digest).where(_m.node == bindparam("node"), _m.source == "chat").order_by(_m.id)
RETRY_SECONDS = 600


class SnapshotQuery(msgspec.Struct):
    """What a turn asks the store.

    explicit: name of the conversation, if the client gave one. request: key of the request among
    its retries. room: bytes of stored history that fit the model's window. resends: see
    `TurnRequest`. openings: what the user's earlier requests were like is needed. shares: how often
    shared blocks of the tenant changed, None if there never was one, or if the store tells.
    repeats: see `Repeat`. layered: the tenant has layers beside shared blocks, or the store tells.
    general_blocks: in a project the blocks outside of it.
    """

    scope: Scope
    turn: RequestHistory
    defaults: Mapping[str, CoreBlock]
    explicit: str | None = None
    request: bytes | None = None
    room: int = server_history.MAX_HISTORY_BYTES
    resends: bool = False
    openings: bool = False
    shares: int | None = None
    repeats: Repeat = "again"
    layered: bool = False
    general_blocks: visible_blocks.General | None = None


class ConversationState(msgspec.Struct, omit_defaults=True):
    """A conversation.

    task: it is a task, which its second turn ends. opening: of a new one (see `openings`).
    same_tasks: the conversations that are tasks too, as a new one shows.
    """

    id: int
    name: str
    explicit: bool
    resent: bool
    head: int | None
    version: int = 0
    task: bool = False
    opening: bytes | None = None
    same_tasks: Sequence[int] = ()


@dataclass(slots=True)
class PreviousAttempt:
    """An earlier attempt at this request: its node, and its finished hidden rounds."""

    node: TurnNode
    rounds: list[Json]


class Snapshot(msgspec.Struct):
    """Everything a turn needs, read in one transaction."""

    owner: scopes.ScopeOwner
    scope_id: int | None
    turn: RequestHistory
    # messages of server-kept history, after the `lead` system messages that the client begins with
    prepended_count: int = 0
    lead: int = 0
    # The link of what came before the stored messages, and its summary.
    earlier_summary: tuple[bytes, str] | None = None
    edits: int = 0
    # The scope's.
    version: int = 0
    blocks: dict[str, CoreBlock] = msgspec.field(default_factory=dict)
    defaults: Mapping[str, CoreBlock] = msgspec.field(default_factory=dict)
    past: PreviousTurn = msgspec.field(default_factory=PreviousTurn)
    # The one named, or the one of the recognised node.
    conversation: ConversationState | None = None
    # The earlier attempt's node, otherwise an unanswered one for exactly this history.
    attempt_node: TurnNode | None = None
    # And its conversation.
    attempt_conversation: ConversationState | None = None
    ledger: PreviousAttempt | None = None
    # Another worker works on the earlier attempt.
    held: bool = False
    # What the previous turn sent, if this one continues its exact messages.
    sent_prompt: SentPrompt | None = None
    # The conversation after the previous turn, if its history is stored here.
    server_history: ServerHistory | None = None
    # Size in the cache, without those two.
    own_bytes: int = 0
    # the user's last requests that were never continued, newest first, if this continues nothing
    openings: Sequence[StoredOpening] = ()
    # how often shared blocks of the tenant had changed; None if there never was one
    shares: int | None = None
    # Labels of shared blocks that are not shown, since they are many.
    omitted_labels: Sequence[str] = ()
    # in a project: the version of the memory outside of it, and that memory's cached entries
    general_version: int | None = None
    general_entries: object = None
    # That the memory reads beside its own.
    layers: visible_blocks.Layers = ()
    # Of the shared blocks that are shown, by label.
    block_layers: Mapping[str, str] = {}
    # What the turn before placed, see `PreparedMemory`.
    prepared: Any = None

    @property
    def share(self) -> tuple[str, ...]:
        """The layers into which a passage may be put."""
        return tuple(sorted([layer.label for layer in self.layers if layer.takes_shares]))

    @property
    def since(self) -> int:
        """Index of the first message that this request adds."""
        if self.prepended_count:
            return self.lead + self.prepended_count
        return self.turn.newest + 1


def snapshot(conn: Connection, ask: SnapshotQuery) -> Snapshot:
    """Read the scope, its blocks, the continued conversation, and an earlier attempt."""
    if sql_driver(conn).is_shared:
        owner, shares, layered = scopes.owner_and_changes(conn, ask.scope)
    else:
        owner = scopes.current_owner(conn, ask.scope)
        shares = ask.shares
        layered = ask.layered
    out = _read_scope(conn, ask, owner)
    out.shares = shares
    general_blocks = None
    if ask.general_blocks is not None:
        general_blocks = visible_blocks.read_general(conn, ask.general_blocks)
    if general_blocks is not None:
        out.blocks = {**general_blocks.blocks, **out.blocks}
        out.general_version = general_blocks.version
    if shares is not None and ask.scope.is_named:
        visible = visible_blocks.read_with_layers(conn, ask.scope, ask.defaults, layered=layered)
        out.blocks = visible.over(out.blocks)
        out.omitted_labels = visible.left_out
        out.edits = visible.mix_mark(out.edits)
        out.layers = visible.layers
        out.block_layers = {label: block.layer for label, block in visible.blocks.items()}
    if general_blocks is not None:
        out.edits += general_blocks.layer.edits
        out.layers = [general_blocks.layer, *out.layers]
    return out


def _read_scope(conn: Connection, ask: SnapshotQuery, owner: scopes.ScopeOwner) -> Snapshot:
    scope_id = scopes.find(conn, ask.scope)
    turn = ask.turn
    out = Snapshot(owner, scope_id, turn, blocks=dict(ask.defaults), defaults=ask.defaults)
    if scope_id is None:
        return out
    out.edits, out.version = execute(conn, EDITS, {"scope": scope_id}).one()
    if ask.explicit:
        out.conversation = find_conversation(conn, scope_id, ask.explicit)
    line = out.conversation
    if line and line.head and turn.newest < 0 and not (line.resent or ask.resends):
        out.turn = turn = _prepend_kept_history(conn, out, line.head, ask)
    out.openings = _read_openings(conn, scope_id, ask, line)
    node, at = recognise(turn, ask.scope.is_named, NodeRows(conn, scope_id))
    if node:
        out.past = _read_previous_turn(conn, scope_id, node, at)
        if out.conversation is None and not ask.explicit:
            out.conversation = find_conversation(conn, scope_id, node.conversation)
    branch = node.branch if node and not ask.scope.is_named else 0
    out.blocks = visible_blocks.read_own(conn, scope_id, ask.defaults, branch)
    if ask.request:
        out.ledger = _read_previous_attempt(conn, ask.request, scope_id)
    parent = node.id if node else None
    unanswered = NodeRows(conn, scope_id).find_unanswered
    out.attempt_node = out.ledger.node if out.ledger else unanswered(turn.chain.end, parent)
    if out.attempt_node:
        out.attempt_conversation = find_conversation(conn, scope_id, out.attempt_node.conversation)
        if ask.explicit not in (
            None,
            out.attempt_conversation.name if out.attempt_conversation else None,
        ):
            # The same text occurs in another conversation.
            out.attempt_node = out.attempt_conversation = None
        elif out.attempt_node.holder is not None:
            out.held = node_holders.lives(conn, out.attempt_node.holder)
    return out


def _read_openings(
    conn: Connection, scope_id: int, ask: SnapshotQuery, line: ConversationState | None
) -> Sequence[StoredOpening]:
    """Return what earlier requests were like, if this one continues nothing."""
    is_first = line is None or line.head is None
    if ask.openings and is_first:
        return opening_rows.read(conn, scope_id)
    return ()


def _prepend_kept_history(
    conn: Connection, out: Snapshot, head: int, ask: SnapshotQuery
) -> RequestHistory:
    """Return the request preceded by the stored history."""
    messages = ask.turn.messages
    line = out.conversation
    # the head belongs to the conversation
    assert line is not None and out.scope_id is not None  # noqa: S101, PT018
    again = ask.repeats == "again" or _is_attempt(conn, out.scope_id, head, ask)
    # What is a new message repeats nothing.
    repeated_messages = messages if again else ()
    end = server_history.read_end(conn, out.scope_id, (line.id, head), repeated_messages, ask.room)
    out.lead = count_leading_system(messages)
    out.prepended_count = len(end.messages)
    out.earlier_summary = end.earlier_summary
    messages_with_history = [*messages[: out.lead], *end.messages, *messages[out.lead :]]
    return RequestHistory.of(
        ask.scope.key,
        Messages(
            PrefixInfo(behind=end.earlier_summary[0] if end.earlier_summary else b""),
            messages_with_history,
        ),
        not ask.scope.is_named,
    )


def _is_attempt(conn: Connection, scope_id: int, node: int, ask: SnapshotQuery) -> bool:
    """Tell whether a node is what an earlier attempt at the request left."""
    if ask.repeats == "new" or not ask.request:
        return False
    attempt = _read_previous_attempt(conn, ask.request, scope_id)
    return attempt is not None and attempt.node.id == node


def find_conversation(
    conn: Connection, scope_id: int, name_or_key: str | int
) -> ConversationState | None:
    """Return a conversation of the scope by its name or row key."""
    row = execute(
        conn,
        BY_NAME if isinstance(name_or_key, str) else BY_KEY,
        {"scope": scope_id, "which": name_or_key},
    ).first()
    if row is None:
        return None
    return ConversationState(
        row.id, row.name, row.explicit, row.resent, row.head, row.version, row.task
    )


def _epoch_of(row: Any) -> Epoch:
    if row.tools:
        tools = decode(row.tools)
    else:
        tools = {}
    return Epoch(row.id, row.core, decode(row.blocks), row.edits, row.cut, row.elide, tools)


def _read_previous_turn(conn: Connection, scope_id: int, node: TurnNode, at: int) -> PreviousTurn:
    if node.epoch is None:
        return PreviousTurn(node, at)
    row = execute(conn, EPOCH, {"scope": scope_id, "epoch": node.epoch}).first()
    epoch = None
    if row is not None:
        epoch = _epoch_of(row)
    carriers = [node] if node.note or node.hidden else []
    if node.carriers:
        keys = {"scope": scope_id, **key_list(conn, node.carriers)}
        carrier_rows = execute(conn, select_carriers(sql_driver(conn)), keys)
        carriers = [*map(node_of, carrier_rows), *carriers]
    return PreviousTurn(node, at, epoch, carriers)


@cache
def select_carriers(driver: SqlDriver) -> Any:
    """Return the statement for the nodes of `key_list`."""
    return (
        select(t.nodes)
        .where(n.scope_id == bindparam("scope"), driver.is_listed(n.id))
        .order_by(n.id)
    )


def summaries(conn: Connection, scope_id: int, links: Sequence[bytes]) -> list[tuple[bytes, str]]:
    """Return the stored summaries of histories that end in one of these links."""
    return [
        (row.chain, row.content)
        for row in select_in_batches(
            conn, _select_summaries, {"scope": scope_id}, list(dict.fromkeys(links))
        )
    ]


@cache
def _select_summaries(size: int) -> Any:
    summary_columns = t.summaries.c
    return select(summary_columns.chain, summary_columns.content).where(
        summary_columns.scope_id == bindparam("scope"), in_clause(summary_columns.chain, size)
    )


def _nodes(*conditions: Any) -> Any:
    """Return the statement for nodes, built once, since it runs in every turn."""
    return (
        select(t.nodes)
        .where(n.scope_id == bindparam("scope"), *conditions)
        .order_by(n.id.desc())
        .limit(CANDIDATES)
    )


@cache
def select_by_digest(size: int) -> Any:
    return _nodes(in_clause(n.digest, size), ANSWERED)


# States as the partial indexes spell them: a parameter in their place is looked at with each use,
# and the statement prepared anew (30 us).
OPEN = n.state == literal_column("'open'")
ANSWERED = n.state != literal_column("'open'")
NOT_DONE = n.state != literal_column("'done'")
CUT_OFF = n.state == literal_column("'aborted'")

BY_CHAIN = _nodes(n.digest == bindparam("digest"), n.chain == bindparam("chain"), ANSWERED)

OF_DIGEST = (
    select(n.id)
    .where(n.scope_id == bindparam("scope"), n.digest == bindparam("digest"), ANSWERED)
    .limit(2)
)

ABORTED = _nodes(NOT_DONE, CUT_OFF, n.asked == bindparam("asked"))
ABORTED_AFTER = _nodes(CUT_OFF, n.parent == bindparam("parent"))
ONE = _nodes(n.id == bindparam("node"))
WAITING = _nodes(NOT_DONE, OPEN, n.asked == bindparam("asked"))


class NodeRows:
    """The nodes of one scope, for the recognition."""

    def __init__(self, conn: Connection, scope_id: int) -> None:
        self._conn = conn
        self._scope = scope_id

    def _read(self, query: Any, **values: Any) -> list[TurnNode]:
        return [
            node_of(row) for row in execute(self._conn, query, {"scope": self._scope, **values})
        ]

    def by_digest(self, digests: Sequence[bytes]) -> list[TurnNode]:
        rows = select_in_batches(self._conn, select_by_digest, {"scope": self._scope}, digests)
        return [node_of(row) for row in rows]

    def only(self, digest: bytes) -> int | None:
        """Return the only answered node with this digest; None for none or several."""
        keys = execute(self._conn, OF_DIGEST, {"scope": self._scope, "digest": digest}).scalars()
        return keys[0] if len(keys) == 1 else None

    def by_chain(self, chain: bytes, digest: bytes) -> list[TurnNode]:
        return self._read(BY_CHAIN, chain=chain, digest=digest)

    def find_aborted(self, asked_link: bytes, parent: int | None) -> list[TurnNode]:
        nodes = self._read(ABORTED, asked=asked_link)
        if parent is None:
            return nodes
        return [*nodes, *self._read(ABORTED_AFTER, parent=parent)]

    def one(self, ident: int) -> TurnNode | None:
        nodes = self._read(ONE, node=ident)
        if nodes:
            return nodes[0]
        return None

    def find_unanswered(self, asked_link: bytes, parent: int | None) -> TurnNode | None:
        nodes = [node for node in self._read(WAITING, asked=asked_link) if node.parent == parent]
        if nodes:
            return nodes[0]
        return None


def only_node(conn: Connection, scope_id: int, digest: bytes) -> int | None:
    """Return the only answered node of a scope with this digest; None for none or several."""
    return NodeRows(conn, scope_id).only(digest)


def node_of(row: Row[Any]) -> TurnNode:
    return TurnNode(
        id=row.id,
        conversation=row.conversation,
        parent=row.parent,
        digest=row.digest or b"",
        chain=row.chain or b"",
        asked=row.asked or b"",
        trail=row.trail or b"",
        depth=row.depth,
        state=row.state,
        epoch=row.epoch,
        note=row.note,
        told=decode(row.told) if row.told else {},
        recall=row.recall,
        recalled=decode(row.recalled) if row.recalled else [],
        hidden=decode(row.hidden) if row.hidden else None,
        carriers=decode(row.carriers) if row.carriers else [],
        branch=row.branch,
        at=row.at,
        text=row.text or "",
        turn=row.turn,
        holder=row.holder,
        runs=decode(row.runs) if row.runs else None,
    )


def columns(node: TurnNode, scope_id: int) -> dict[str, Any]:
    return {
        "id": node.id,
        "scope_id": scope_id,
        "conversation": node.conversation,
        "parent": node.parent,
        "turn": node.turn,
        "digest": node.digest or None,
        "chain": node.chain or None,
        "asked": node.asked,
        "trail": node.trail or None,
        "depth": node.depth,
        "state": node.state,
        "epoch": node.epoch,
        "note": node.note,
        "recall": node.recall,
        "recalled": encode(node.recalled).decode() if node.recalled else None,
        "told": encode(node.told).decode() if node.told else None,
        "hidden": encode(node.hidden).decode() if node.hidden else None,
        "carriers": encode(node.carriers).decode() if node.carriers else None,
        "branch": node.branch,
        "at": node.at,
        "text": node.text or None,
        "runs": encode(node.runs).decode() if node.runs else None,
    }


def _read_previous_attempt(
    conn: Connection, request: bytes, scope_id: int
) -> PreviousAttempt | None:
    row = execute(conn, ATTEMPT, {"request": request, "scope": scope_id}).first()
    if row:
        return PreviousAttempt(node_of(row), decode(row.rounds) if row.rounds else [])
    return None
