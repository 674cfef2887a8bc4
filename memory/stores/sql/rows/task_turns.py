"""Reads a user's newest turns as sequences of tool calls: the client's, and the operator's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, case, func, select

from memory.core.task_turns import UNCOUNTED, TaskTurn, is_error
from memory.core.tool_definitions import OURS
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import messages as message_rows

m = t.messages.c
c = t.tool_calls.c
# Newest of a scope that are looked at.
MAX_MESSAGES = 3000
# Of a result, by which an error is told.
HEAD_CHARACTERS = 300
# Of a message or a result that a model is shown.
MAX_DETAIL_CHARACTERS = 2000
WELL_ENDED = ("ok", "replayed")
_calls_tools = (m.role == "assistant") & m.body.like('%"tool_calls"%')
READ = (
    select(
        m.id,
        m.conversation,
        m.node,
        m.role,
        m.aborted,
        case((_calls_tools, m.body), else_="").label("body"),
        func.substr(m.content, 1, HEAD_CHARACTERS).label("head"),
    )
    .where(m.source != "evicted", m.node.is_not(None), m.pieces.is_(None))
    .order_by(m.created_at.desc(), m.id.desc())
    .limit(MAX_MESSAGES)
)


class _CallRow(msgspec.Struct, frozen=True):
    number: int
    name: str
    has_failed: bool


def read_turns(conn: Connection, scope_id: int) -> list[TaskTurn]:
    """Return the newest turns with tools of a scope, newest first.

    The oldest turn that is read of a conversation may lack its beginning, so it is left out.
    """
    rows = list(conn.execute(READ.where(m.scope_id == scope_id)))
    is_cut = len(rows) == MAX_MESSAGES
    by_conversation: defaultdict[int, list[Any]] = defaultdict(list)
    for row in reversed(rows):
        by_conversation[row.conversation].append(row)
    own_calls = _read_calls(conn, scope_id, rows)
    turns: list[TaskTurn] = []
    for conversation, own_rows in by_conversation.items():
        own_rows.sort(key=lambda row: row.id)
        split_turns = _split_turns(conversation, own_rows, own_calls)
        turns += split_turns[1:] if is_cut else split_turns
    with_tools = [turn for turn in turns if turn.steps]
    return sorted(with_tools, key=lambda turn: -turn.nodes[-1])


def _read_calls(conn: Connection, scope_id: int, rows: Sequence[Any]) -> dict[int, list[_CallRow]]:
    """Return the calls of the operator's tools, by the request."""
    calls: defaultdict[int, list[_CallRow]] = defaultdict(list)
    if not rows:
        return calls
    query = (
        select(c.node, c.round, c.name, c.status)
        .where(c.scope_id == scope_id, c.node >= min(row.node for row in rows))
        .order_by(c.node, c.round, c.place)
        .limit(MAX_MESSAGES)
    )
    for row in conn.execute(query):
        has_failed = row.status not in WELL_ENDED
        calls[row.node].append(_CallRow(row.round, row.name, has_failed))
    return calls


def _split_turns(
    conversation: int, rows: Sequence[Any], own_calls: dict[int, list[_CallRow]]
) -> list[TaskTurn]:
    """Return the user's turns of a conversation, oldest first."""
    turns: list[TaskTurn] = []
    turn: _TurnReader | None = None
    for row in rows:
        if turn is None or row.role == "user":
            turn = _TurnReader(conversation, own_calls)
            turns.append(turn.turn)
        turn.read(row)
    return turns


class _TurnReader:
    """Reads the rows of one turn in their order."""

    def __init__(self, conversation: int, own_calls: dict[int, list[_CallRow]]) -> None:
        self.turn = TaskTurn(conversation, [], [])
        self._own_calls = own_calls

    def read(self, row: Any) -> None:
        """Take in one message."""
        turn = self.turn
        if row.node not in turn.nodes:
            turn.nodes.append(row.node)
        if row.role == "tool":
            turn.has_failed = turn.has_failed or is_error(row.head)
        if row.role != "assistant":
            turn.is_over = False
            return
        self._read_own(self._own_calls.pop(row.node, []))
        names = _names_of(row.body)
        if names:
            turn.has_failed = False
        turn.steps += [name for name in names if name not in UNCOUNTED]
        turn.is_over = not names and not row.aborted

    def _read_own(self, calls: Sequence[_CallRow]) -> None:
        counted_calls = [x for x in calls if x.name not in UNCOUNTED and x.name not in OURS]
        self.turn.steps += [x.name for x in counted_calls]
        if counted_calls:
            last_round = counted_calls[-1].number
            self.turn.has_failed = any(
                x.has_failed for x in counted_calls if x.number == last_round
            )


def _names_of(body: str) -> list[str]:
    """Return the names of the calls of an answer."""
    if not body:
        return []
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return []
    calls = None
    if isinstance(message, dict):
        calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls or [] if isinstance(call, dict)]
    return [str(f.get("name")) for f in functions if isinstance(f, dict)]


def read_details(conn: Connection, turn: TaskTurn) -> str:
    """Return what was said, called and returned in a turn, as a model is shown it."""
    lines: list[str] = []
    rows = conn.execute(select(t.messages).where(m.node.in_(turn.nodes)).order_by(m.id))
    own_calls: defaultdict[int, list[Any]] = defaultdict(list)
    of_turn = c.node.in_(turn.nodes)
    for call in conn.execute(
        select(t.tool_calls).where(of_turn).order_by(c.node, c.round, c.place)
    ):
        if call.name not in UNCOUNTED:
            own_calls[call.node].append(call)
    for row in rows:
        if row.source == "evicted" or row.pieces is not None:
            continue
        if row.role == "assistant":
            for call in own_calls.pop(row.node, []):
                lines.append(f"called {call.name}: {_shorten(call.arguments)}")
                lines.append(f"result: {_shorten(call.result or '')}")
        if row.content:
            lines.append(f"{row.role}: {_shorten(row.content)}")
        message = message_rows.message_of(conn, row)
        for call in message.get("tool_calls") or ():
            function = call.get("function") or {}
            lines.append(f"called {function.get('name')}: {_shorten(function.get('arguments'))}")
    return "\n".join(lines)


def _shorten(value: Any) -> str:
    text = str(value or "")
    if len(text) <= MAX_DETAIL_CHARACTERS:
        return text
    return f"{text[:MAX_DETAIL_CHARACTERS]} [...]"


def read_known_names(conn: Connection, scope_id: int) -> frozenset[str]:
    """Return the names of the operator's tools that a tenant called lately, and of ours."""
    scopes = t.scopes.c
    tenant = select(scopes.tenant).where(scopes.id == scope_id).scalar_subquery()
    newest_calls = (
        select(c.name).where(c.tenant == tenant).order_by(c.id.desc()).limit(MAX_MESSAGES)
    ).subquery()
    return OURS.union(conn.execute(select(newest_calls.c.name).distinct()).scalars())


def find_nodes(conn: Connection, scope_id: int, request_ids: Sequence[str]) -> dict[str, int]:
    """Return the turn's node of each request that ran a tool."""
    query = select(c.request_id, c.node).where(
        c.scope_id == scope_id, c.request_id.in_(request_ids)
    )
    return {row.request_id: row.node for row in conn.execute(query)}
