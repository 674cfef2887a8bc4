"""The turns of a conversation with all that was said in them, the hidden part too."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, select

from memory.conversation.messages import Json
from memory.stores.sql import messages as message_rows
from memory.stores.sql import schema as t

n, m = t.nodes.c, t.messages.c
encode, decode = msgspec.json.encode, msgspec.json.decode


class Exchange(msgspec.Struct):
    """One turn. key: its row key, by which turns are in their order. at: Unix time.

    said: rows of its messages, in their order. hidden: what the client of another format did not
    see of it.
    """

    key: int
    at: float
    said: list[dict[str, Any]]
    hidden: list[Json]


def page(
    conn: Connection, conversation: int, place: int | None, limit: int, *, newest: bool
) -> list[Exchange]:
    """Return turns, newest or oldest first: those behind a row key, None for the first."""
    query = select(n.id, n.at, n.hidden).where(n.conversation == conversation)
    if place is not None:
        query = query.where(n.id < place if newest else n.id > place)
    order = n.id.desc() if newest else n.id
    turns = [
        Exchange(row.id, row.at, [], decode(row.hidden) if row.hidden else [])
        for row in conn.execute(query.order_by(order).limit(limit))
    ]
    known = {turn.key: turn for turn in turns}
    said = select(t.messages).where(
        m.conversation == conversation, m.node.in_(known), m.source != "evicted"
    )
    for row in conn.execute(said.order_by(m.id)):
        whole = {} if row.pieces is None else {"body": _whole(conn, row)}
        known[row.node].said.append({**row._mapping, **whole})
    return turns


def _whole(conn: Connection, row: Any) -> str:
    return encode(message_rows.message_of(conn, row)).decode()
