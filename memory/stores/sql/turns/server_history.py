"""Reads the end of a stored history, as far as a turn can use it.

A conversation is read backwards from its newest turn: as much as the window holds, with the stored
summary of the rest. So a turn that is not cached costs the same however long its conversation is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, func, literal, select

from memory.conversation.messages import Json, canonical, is_system
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import execute, in_clause, select_in_batches
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows.message_pieces import PIECE_CHARACTERS

n = t.nodes.c
m = t.messages.c
s = t.summaries.c
# Bytes to read if there is no summary.
MAX_HISTORY_BYTES = 8 << 20
# Turns read by one query, at first and at most.
READ_STEPS, MOST_STEPS = 64, 1024
LEFT_OUT = "[Earlier messages were left out. conversation_search finds them.]"
SUMMARISED = select(s.chain).where(
    s.scope_id == bindparam("scope"), s.conversation == bindparam("which")
)
CUT = select(t.epochs.c.cut).where(
    t.epochs.c.scope_id == bindparam("scope"),
    t.epochs.c.id == select(n.epoch).where(n.id == bindparam("head")).scalar_subquery(),
)
PARENT = select(n.parent).where(n.id == bindparam("node"), n.scope_id == bindparam("scope"))
SUMMARY = select(s.content).where(s.scope_id == bindparam("scope"), s.chain == bindparam("link"))


@dataclass(slots=True)
class HistoryEnd:
    """The end of a history. messages: oldest first.

    earlier_summary: link of what came before them, and the text that stands for it; None if nothing
    did.
    """

    messages: list[Json] = field(default_factory=list)
    earlier_summary: tuple[bytes, str] | None = None


@cache
def _back() -> Any:
    """Return at most `most` turns back from `head`, each with its size in bytes."""
    scope: Any = bindparam("scope")
    older = t.nodes.alias("older")
    line = (
        select(n.id, n.parent, n.chain, literal(1).label("step"))
        .where(n.id == bindparam("head"), n.scope_id == scope)
        .cte("line", recursive=True)
    )
    line = line.union_all(
        select(older.c.id, older.c.parent, older.c.chain, line.c.step + 1).where(
            older.c.id == line.c.parent, older.c.scope_id == scope, line.c.step < bindparam("most")
        )
    )
    piece_size = select(func.count() * PIECE_CHARACTERS).where(t.message_pieces.c.body == m.pieces)
    characters = func.length(m.body) + func.length(m.content)
    size = (
        select(func.coalesce(func.sum(characters + piece_size.scalar_subquery()), 0))
        .where(m.node == line.c.id, m.scope_id == scope, m.source != "evicted")
        .scalar_subquery()
    )
    return select(line.c.id, line.c.parent, line.c.chain, size.label("size")).order_by(line.c.step)


@cache
def _select_messages(size: int) -> Any:
    return select(m.id, m.node, m.body, m.role, m.content, m.pieces).where(
        m.scope_id == bindparam("scope"), in_clause(m.node, size), m.source != "evicted"
    )


def read_end(
    conn: Connection,
    scope_id: int,
    conversation: tuple[int, int],
    request_messages: Sequence[Json],
    room: int,
) -> HistoryEnd:
    """Return the end of a conversation, about `room` bytes.

    conversation: its row key and head. request_messages: the request's own messages; if they repeat
    the newest, the end is that of the turn before.
    """
    conversation_key, head = conversation
    summary_links = {
        row.chain
        for row in execute(conn, SUMMARISED, {"scope": scope_id, "which": conversation_key})
    }
    turns, link = _turns_back_from(conn, scope_id, head, summary_links, room)
    messages_by_turn = _messages(conn, scope_id, turns)
    if _repeats(messages_by_turn, request_messages):
        del messages_by_turn[0]
        if link is not None and not messages_by_turn:
            # All of the rest is summarised. Without an answer in it the new turn would be the
            # first of its conversation, and later ones would find nothing of what was before.
            parent = execute(conn, PARENT, {"scope": scope_id, "node": turns[0]}).scalar()
            turns, link = _turns_back_from(conn, scope_id, parent, summary_links, room)
            messages_by_turn = _messages(conn, scope_id, turns)
    out = HistoryEnd(
        message_rows.pair_tool_results(
            [x for turn in reversed(messages_by_turn) for x in turn], request_messages
        )
    )
    if link is not None:
        summary = execute(conn, SUMMARY, {"scope": scope_id, "link": link}).scalar()
        out.earlier_summary = link, summary or LEFT_OUT
    return out


def _turns_back_from(
    conn: Connection, scope_id: int, head: int, summary_links: Collection[bytes], room: int
) -> tuple[list[int], bytes | None]:
    """Return the turns to read from `head` on; see `_choose_turns`."""
    epoch_cut = None
    if summary_links:
        epoch_cut = execute(conn, CUT, {"scope": scope_id, "head": head}).scalar()
    return _choose_turns(_walk_turns(conn, scope_id, head), summary_links, epoch_cut, room)


def _repeats(messages_by_turn: Sequence[Sequence[Json]], request_messages: Sequence[Json]) -> bool:
    """Tell whether a request asks once more what the newest turn asked.

    A result of what that turn called is none, even if the result before it was the same.
    """
    newest_message = next((x for x in reversed(request_messages) if not is_system(x)), None)
    if messages_by_turn:
        stored_requests = [x for x in messages_by_turn[0] if x.get("role") != "assistant"]
    else:
        stored_requests = []
    if newest_message is None or not stored_requests:
        return False
    calls = [c for x in messages_by_turn[0] for c in x.get("tool_calls") or ()]
    if newest_message.get("role") == "tool" and newest_message.get("tool_call_id") in [
        c.get("id") for c in calls
    ]:
        return False
    return bool(canonical(stored_requests[-1]) == canonical(newest_message))


def _walk_turns(conn: Connection, scope_id: int, head: int) -> Iterator[Any]:
    """Yield the turns, newest first."""
    at = head
    max_turns = READ_STEPS
    while True:
        rows = list(execute(conn, _back(), {"scope": scope_id, "head": at, "most": max_turns}))
        yield from rows
        if len(rows) < max_turns or rows[-1].parent is None:
            return
        at = rows[-1].parent
        max_turns = min(2 * max_turns, MOST_STEPS)


def _choose_turns(
    candidates: Iterator[Any],
    summary_links: Collection[bytes],
    epoch_cut: bytes | None,
    room: int,
) -> tuple[list[int], bytes | None]:
    """Return the turns to read, newest first, and the link of what comes before; None if nothing.

    Goes back to the cut of the current epoch; otherwise to the summary that leaves out least within
    `room`; otherwise to the next one. summary_links: links with a summary.
    """
    turns: list[int] = []
    best_summary: tuple[int, bytes] | None = None
    size = 0
    for turn in candidates:
        has_summary = turn.chain in summary_links and bool(turns)
        if has_summary and (turn.chain == epoch_cut or (size > room and best_summary is None)):
            return turns, turn.chain
        if size > room and best_summary is not None:
            break
        if size > MAX_HISTORY_BYTES and turn.chain:
            return turns, turn.chain
        if has_summary:
            best_summary = len(turns), turn.chain
        turns.append(turn.id)
        size += turn.size
    if best_summary is None or size <= room:
        return turns, None
    return turns[: best_summary[0]], best_summary[1]


def _messages(conn: Connection, scope_id: int, turns: Sequence[int]) -> list[list[Json]]:
    """Return the messages of each turn."""
    messages_by_turn: dict[int, list[tuple[int, Json]]] = {turn: [] for turn in turns}
    for row in select_in_batches(conn, _select_messages, {"scope": scope_id}, turns):
        messages_by_turn[row.node].append((row.id, message_rows.message_of(conn, row)))
    return [
        [message for _, message in sorted(numbered_messages, key=lambda x: x[0])]
        for numbered_messages in messages_by_turn.values()
    ]
