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


def fork_if_continued(conn: Connection, there: Any, o: PendingTurn) -> bool:
    """Give a turn a conversation of its own if another continued the same answer otherwise.

    Another worker's turn: in this process it is known before (see `in_flight`). there: see
    `scopes.scope_status`. Returns whether it did.
    """
    c, parent = o.conversation, o.node.parent
    if o.adopted or o.named or c.explicit or there.conversation is None or parent is None:
        return False
    if not sql_driver(conn).is_shared or there.version == c.version:
        return False
    values = {"which": c.id, "parent": parent, "node": o.node.id, "asked": o.node.asked}
    if not execute(conn, CONTINUED_OTHERWISE, {"scope": there.id, **values}):
        return False
    _fork(o)
    return True


def _fork(o: PendingTurn) -> None:
    """Give a turn a conversation of its own."""
    c, o.forked_from = o.conversation, o.conversation.name
    c.id, c.name, c.resent, c.head, c.version = new_key(), new_id("conv"), False, None, 0
    o.node.conversation = c.id


def make_way(conn: Connection, scope_id: int, r: TurnRecord) -> bool:
    """Move a record beside what another worker made of its turn, if one took it over.

    Returns False if the record was written before.
    """
    own, digest, me = r.aside or r.nodes[0].id, r.nodes[0].digest, r.holder
    if me is None:
        return True
    if not node_holders.is_taken(conn, own, digest, me):
        r.again = True  # it may have been written before
        return True
    if _is_recorded(conn, scope_id, r):
        return False
    _step_aside(conn, scope_id, r, own)
    return True


def _is_recorded(conn: Connection, scope_id: int, r: TurnRecord) -> bool:
    """Tell whether a record that stepped aside was written before."""
    first = r.nodes[0]
    values = {"scope": scope_id, "chain": first.chain, "digest": first.digest}
    return bool(execute(conn, BY_CHAIN, values))


def _step_aside(conn: Connection, scope_id: int, r: TurnRecord, own: int) -> None:
    """Record an answer beside the one of the worker that took its turn over."""
    first = r.nodes[0]
    if r.aside is None:
        r.aside, first.id, r.again = own, new_key(), False
        for node in r.nodes:
            node.turn = first.id
    node_holders.copy_request(conn, scope_id, own, first.id)
