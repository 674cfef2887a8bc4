"""Moves a user's memory to another name: another user, another tenant.

The rows stay, and with them search, vectors and versions. What is keyed by the name is derived
again from the messages, page by page, and only then does the memory change its owner, in one
transaction: an interrupted move has moved nothing and can be repeated. Of a history whose older
messages were never stored here, the answers are recognised again, but not the exact chain. Our
spans' tag is keyed too: epochs end and summaries are made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, exists, select, update

from memory.conversation.matching import HashChain, trail_after
from memory.conversation.matching import TurnNode as Answered
from memory.conversation.messages import (
    EMPTY,
    Json,
    canonical,
    extend_chain,
    is_system,
    keyed_hash,
)
from memory.errors import Conflict, NotFound
from memory.scope import Scope, owner_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.application_tables import ApplicationTables
from memory.stores.sql.owners import agent_speakers, row_removal, shared_erasure
from memory.stores.sql.rows import named_rows, policies
from memory.stores.sql.rows import scopes as owners
from memory.stores.sql.rows.messages import message_of

PAGE = 200
n = t.nodes.c
m = t.messages.c
s = t.scopes.c
CONTENT = (t.blocks, t.passages, t.conversations, t.file_tables.files)
KEYED = ("digest", "chain", "asked", "trail")
# Rows with the old tag or the old key.
PLACED = (
    "epoch",
    "note",
    "recall",
    "told",
    "carriers",
    "request",
    "rounds",
)
SET_MESSAGE = update(t.messages).where(m.id == bindparam("row")).values(digest=bindparam("new"))
SET_NODE = (
    update(t.nodes)
    .where(n.id == bindparam("row"))
    .values(**{name: bindparam(f"new_{name}") for name in KEYED}, **dict.fromkeys(PLACED))
)


@dataclass(frozen=True, slots=True)
class OwnerRename:
    """From one (tenant, user) to another. secret: the server's."""

    secret: bytes
    source: owners.UserName
    target: owners.UserName

    def key(self, agent: str) -> bytes:
        """Return the key of the digests of the target's agent."""
        return Scope(*self.target, agent, self.secret).key


def begin(conn: Connection, move: OwnerRename) -> list[tuple[int, str]]:
    """Return the source's scopes, each with its agent.

    Raises NotFound if there is none, Conflict if the target has a memory.
    """
    source_scopes = conn.execute(
        select(s.id, s.agent).where(s.tenant == move.source[0], s.user == move.source[1])
    ).all()
    if not source_scopes:
        raise NotFound(
            f"nothing is stored about the user {move.source[1]!r} of the tenant {move.source[0]!r}"
        )
    target_scopes = owners.scopes_of(conn, *move.target)
    if any(
        conn.execute(select(table.c.id).where(table.c.scope_id.in_(target_scopes)).limit(1)).first()
        for table in CONTENT
    ):
        raise Conflict(
            f"the user {move.target[1]!r} of the tenant {move.target[0]!r} has a memory already"
        )
    return [(row.id, row.agent) for row in source_scopes]


def page(conn: Connection, scope_id: int, key: bytes, after_node: int) -> int | None:
    """Derive the digests of a page of nodes and their messages again.

    Returns the last node's key; None if none are left.
    """
    rows = conn.execute(
        select(t.nodes).where(n.scope_id == scope_id, n.id > after_node).order_by(n.id).limit(PAGE)
    ).all()
    if not rows:
        _loose(conn, scope_id, key)
        return None
    messages_by_node: dict[int, list[tuple[Row[Any], Json]]] = {}
    for message_row in conn.execute(
        select(t.messages).where(m.node.in_([r.id for r in rows])).order_by(m.id)
    ):
        messages_by_node.setdefault(message_row.node, []).append(
            (message_row, message_of(conn, message_row))
        )
    if messages := [
        _digest(*message_row, key)
        for node_messages in messages_by_node.values()
        for message_row in node_messages
    ]:
        conn.execute(SET_MESSAGE, messages)
    derived_nodes = _before(conn, rows)
    conn.execute(
        SET_NODE, [_node(row, messages_by_node.get(row.id, ()), key, derived_nodes) for row in rows]
    )
    return int(rows[-1].id)


def _loose(conn: Connection, scope_id: int, key: bytes) -> None:
    """Return the messages without a node."""
    if loose_rows := conn.execute(
        select(t.messages).where(m.scope_id == scope_id, m.node.is_(None))
    ).all():
        conn.execute(
            SET_MESSAGE,
            [
                _digest(message_row, message_of(conn, message_row), key)
                for message_row in loose_rows
            ],
        )


def _digest(row: Row[Any], message: Json, key: bytes) -> dict[str, Any]:
    return {
        "row": row.id,
        "new": EMPTY if is_system(message) else keyed_hash(key, canonical(message)),
    }


def _before(conn: Connection, rows: Sequence[Row[Any]]) -> dict[int, Any]:
    """Return the nodes that these follow, already derived, by key."""
    node_keys = {r.parent for r in rows} | {r.turn for r in rows}
    return {
        r.id: r
        for r in conn.execute(
            select(t.nodes).where(n.id.in_([w for w in node_keys if w is not None]))
        )
    }


def _node(
    row: Row[Any],
    node_messages: Sequence[tuple[Row[Any], Json]],
    key: bytes,
    derived_nodes: dict[int, Any],
) -> dict[str, Any]:
    """Return the new values of a node, and add it to `derived_nodes`."""
    parent = derived_nodes.get(row.parent)
    first_node = None
    if row.turn != row.id:
        first_node = derived_nodes.get(row.turn)
    messages = [
        message for message_row, message in node_messages if message_row.source != "evicted"
    ]
    answer = next((message for message in messages if message.get("role") == "assistant"), None)
    link = (
        first_node.asked
        if first_node is not None
        else (parent.chain or parent.asked)
        if parent is not None
        else None
    )
    link = link or HashChain(key, []).start
    if first_node is None:
        for message in messages:
            if message.get("role") != "assistant" and not is_system(message):
                link = keyed_hash(key, link, keyed_hash(key, canonical(message)))
    node = Answered(row.id, row.conversation, asked=link)
    if answer is not None:
        node.digest, node.chain = extend_chain(key, link, answer)
        if parent is None or parent.trail:
            node.trail = trail_after(parent, node.digest)
        else:
            node.trail = node.digest[:4]
    derived_nodes[row.id] = node
    return {"row": row.id, **{f"new_{name}": getattr(node, name) or None for name in KEYED}}


def finish(
    conn: Connection,
    move: OwnerRename,
    moved_nodes: dict[int, int],
    tables: Sequence[ApplicationTables] = (),
) -> None:
    """Give the memory to the target. tables: of the application.

    moved_nodes: the last derived node by scope; later ones are derived now. Running turns of both
    names are void from now on. Raises NotFound, Conflict.
    """
    for scope_id, agent in begin(conn, move):
        after_node: int | None = moved_nodes.get(scope_id, 0)
        while after_node is not None:
            after_node = page(conn, scope_id, move.key(agent), after_node)
        for table in (t.epochs, t.summaries):
            conn.execute(delete(table).where(table.c.scope_id == scope_id))
    _remove_empty_scopes(conn, owners.scopes_of(conn, *move.target))
    proven = conn.execute(select(exists().where(s.tenant == move.target[0], s.proven))).scalar()
    conn.execute(
        update(t.scopes)
        .where(s.tenant == move.source[0], s.user == move.source[1])
        .values(
            tenant=move.target[0],
            user=move.target[1],
            proven=bool(proven),
            edits=s.edits + 1,
            version=s.version + 1,
        )
    )
    policies.rename(conn, move.source, move.target)
    agent_speakers.rename(conn, move.source, move.target)
    shared_erasure.rename(conn, move.source, move.target)
    named_rows.rename(conn, move.source, move.target)
    for application in tables:
        application.rename(conn, move.source, move.target)
    for name in (move.source, move.target):
        owners.void(conn, owner_key(move.secret, *name))


def _remove_empty_scopes(conn: Connection, scopes: Sequence[int]) -> None:
    """Remove scopes without any rows."""
    for table in (
        t.nodes,
        *row_removal.OF_A_SCOPE.values(),
        *row_removal.ALSO,
        *row_removal.OF_FILES,
    ):
        conn.execute(delete(table).where(table.c.scope_id.in_(scopes)))
    conn.execute(delete(t.scopes).where(s.id.in_(scopes)))
