"""Which worker works on a turn, where several share the database.

The node of a turn that is under way names its worker, until it is answered or failed. While that
worker lives (see `postgres_lease`), nobody else goes on with it. Who takes one over compares whom
it saw there. On SQLite nodes name nobody: there is one process.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select, update

from memory.errors import AttemptRunning, TakenOver
from memory.ids import new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.rows import messages as message_rows

n = t.nodes.c
m = t.messages.c
TAKE = (
    update(t.nodes)
    .where(
        n.id == bindparam("node"),
        n.scope_id == bindparam("scope"),
        n.holder.is_not_distinct_from(bindparam("seen")),
    )
    .values(holder=bindparam("me"))
    .returning(n.id)
)
FOUND = select(n.state, n.digest, n.holder).where(n.id == bindparam("node"))
BY_ONCE = select(n.id).where(n.scope_id == bindparam("scope"), n.request == bindparam("once"))
NOBODY = {"holder": None, "once": None}


def lives(conn: Connection, holder: int | None) -> bool:
    """Tell whether a worker still works on what it holds."""
    return holder is not None and sql_driver(conn).is_worker_alive(conn, holder)


def take_over(conn: Connection, place: tuple[int, int], seen_holder: int | None, me: int) -> bool:
    """Make a node this worker's, unless another was first.

    place: its scope and key. seen_holder: who held it when it was read.
    """
    scope_id, node = place
    values = {"scope": scope_id, "node": node, "seen": seen_holder, "me": me}
    return bool(execute(conn, TAKE, values))


def let_go(conn: Connection, nodes: set[int], me: int) -> None:
    """Let others go on with nodes that this worker holds and does nothing more with."""
    conn.execute(update(t.nodes).where(n.id.in_(nodes), n.holder == me).values(**NOBODY))


def check_once(conn: Connection, scope_id: int, once: bytes | None) -> None:
    """Raise AttemptRunning if there is another attempt at a request with this key.

    It was not there when this one began, and may be under way or over.
    """
    if once is not None and execute(conn, BY_ONCE, {"scope": scope_id, "once": once}):
        raise AttemptRunning("another attempt at this request came first")


def check_held(conn: Connection, node: int, me: int | None) -> None:
    """Raise TakenOver if another worker goes on with a node of this one."""
    if me is not None:
        row = execute(conn, FOUND, {"node": node}).first()
        if row is None or row.holder != me:
            raise TakenOver("another worker has taken the turn over")


def is_taken(conn: Connection, node: int, digest: bytes, me: int) -> bool:
    """Tell whether another worker made something else of a node that this one opened."""
    row = execute(conn, FOUND, {"node": node}).first()
    if row is None or row.holder == me:
        return False
    return row.holder is not None or (row.state != "open" and row.digest != digest)


def copy_request(conn: Connection, scope_id: int, node: int, to: int) -> None:
    """Give what was asked with a node to another one, which has another answer to it."""
    query = select(t.messages).where(m.node == node, m.source == "chat", m.pieces.is_(None))
    rows = [dict(row._mapping) for row in conn.execute(query.order_by(m.id))]
    for row in rows:
        del row["id"]
        row |= {"node": to, "public_id": f"msg_{new_key():032x}", "scope_id": scope_id}
    message_rows.append(conn, rows)
