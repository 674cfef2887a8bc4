"""What other workers made of the same turn, or of the same conversation, meanwhile.

Nothing is lost by it: who comes second records beside the first.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, select

from memory.ids import new_id, new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.turns import node_holders
from memory.stores.sql.turns.turn_reader import BY_CHAIN
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

n = t.nodes.c
CONTINUED_OTHERWISE = (
    select(n.id)
    .where(
        n.scope_id == bindparam("scope"),
        n.conversation == bindparam("which"),
        n.parent == bindparam("parent"),
        n.id != bindparam("node"),
        n.asked != bindparam("asked"),
    )
    .limit(1)
)


def fork_if_continued(conn: Connection, status: Any, opening: PendingTurn) -> bool:
    """Give a turn a conversation of its own if another continued the same answer otherwise.

    Another worker's turn: in this process it is known before (see `in_flight`). status: see
    `scopes.scope_status`. Returns whether it did.
    """
    conversation = opening.conversation
    parent = opening.node.parent
    if (
        opening.adopted
        or opening.named
        or conversation.explicit
        or status.conversation is None
        or parent is None
    ):
        return False
    if not sql_driver(conn).is_shared or status.version == conversation.version:
        return False
    values = {
        "which": conversation.id,
        "parent": parent,
        "node": opening.node.id,
        "asked": opening.node.asked,
    }
    if not execute(conn, CONTINUED_OTHERWISE, {"scope": status.id, **values}):
        return False
    _fork(opening)
    return True


def _fork(opening: PendingTurn) -> None:
    """Give a turn a conversation of its own."""
    conversation = opening.conversation
    opening.forked_from = opening.conversation.name
    conversation.id = new_key()
    conversation.name = new_id("conv")
    conversation.resent = False
    conversation.head = None
    conversation.version = 0
    opening.node.conversation = conversation.id


def make_way(conn: Connection, scope_id: int, turn: TurnRecord) -> bool:
    """Move a record beside what another worker made of its turn, if one took it over.

    Returns False if the record was written before.
    """
    own_node = turn.aside or turn.nodes[0].id
    digest = turn.nodes[0].digest
    me = turn.holder
    if me is None:
        return True
    if not node_holders.is_taken(conn, own_node, digest, me):
        # It may have been written before.
        turn.again = True
        return True
    if _is_recorded(conn, scope_id, turn):
        return False
    _step_aside(conn, scope_id, turn, own_node)
    return True


def _is_recorded(conn: Connection, scope_id: int, turn: TurnRecord) -> bool:
    """Tell whether a record that stepped aside was written before."""
    answer_node = turn.nodes[0]
    values = {"scope": scope_id, "chain": answer_node.chain, "digest": answer_node.digest}
    return bool(execute(conn, BY_CHAIN, values))


def _step_aside(conn: Connection, scope_id: int, turn: TurnRecord, own_node: int) -> None:
    """Record an answer beside the one of the worker that took its turn over."""
    answer_node = turn.nodes[0]
    if turn.aside is None:
        turn.aside = own_node
        answer_node.id = new_key()
        turn.again = False
        for node in turn.nodes:
            node.turn = answer_node.id
    node_holders.copy_request(conn, scope_id, own_node, answer_node.id)
