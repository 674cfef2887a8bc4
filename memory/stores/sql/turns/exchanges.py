"""The turns of a conversation with all that was said in them, the hidden part too."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, select

from memory.conversation.messages import Json
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import messages as message_rows

n = t.nodes.c
m = t.messages.c
x = t.explains.c
encode = msgspec.json.encode
decode = msgspec.json.decode


class Exchange(msgspec.Struct):
    """One turn. key: its row key, by which turns are in their order. at: Unix time.

    messages: rows of its messages, in their order. rounds: its rounds with memory calls, each with
    the `reply` as received and the `results`, for about a day. calls: the memory calls by their
    rounds, as the explain record has them, where the rounds are gone.
    """

    key: int
    at: float
    messages: list[dict[str, Any]]
    rounds: list[Json] = []
    calls: list[Json] = []


def page(
    conn: Connection, conversation: int, place: int | None, limit: int, *, newest: bool
) -> list[Exchange]:
    """Return turns, newest or oldest first: those behind a row key, None for the first."""
    query = select(n.id, n.at, n.rounds).where(n.conversation == conversation)
    if place is not None:
        query = query.where(n.id < place if newest else n.id > place)
    order = n.id.desc() if newest else n.id
    turns = [
        Exchange(row.id, row.at, [], decode(row.rounds) if row.rounds else [])
        for row in conn.execute(query.order_by(order).limit(limit))
    ]
    turns_by_key = {turn.key: turn for turn in turns}
    query_messages = select(t.messages).where(
        m.conversation == conversation, m.node.in_(turns_by_key), m.source != "evicted"
    )
    for row in conn.execute(query_messages.order_by(m.id)):
        if row.pieces is None:
            whole_body = {}
        else:
            whole_body = {"body": _whole(conn, row)}
        turns_by_key[row.node].messages.append({**row._mapping, **whole_body})
    _add_calls(conn, [turn for turn in turns if not turn.rounds])
    return turns


def _add_calls(conn: Connection, turns: list[Exchange]) -> None:
    """Add what the explain records of turns tell of their memory calls."""
    turns_by_key = {turn.key: turn for turn in turns}
    records = select(x.id, x.record).where(x.id.in_(turns_by_key), x.record.like('%"tools":[{%'))
    for row in conn.execute(records):
        record = decode(row.record.split("\n")[-1])
        turns_by_key[row.id].calls = record.get("tools") or []


def _whole(conn: Connection, row: Any) -> str:
    return encode(message_rows.message_of(conn, row)).decode()
