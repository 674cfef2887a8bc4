"""Writes a plain turn on Postgres with one statement, which is one round trip and one flush.

The statement writes the same rows as `turn_writer`, or none:

- It tries the locks of the slow path and waits for none: whoever writes for this owner, or has the
  memory to itself, is not written into.
- It holds the scope's row, so that an erasure waits for it or has removed that row before.
- It compares the version of the conversation as the turn found it, and raises it. Thus what the
  turn knows of the conversation is still so, and a statement that arrives late writes nothing.

Whatever else a turn has is left to the slow path: a new conversation, edited blocks, several
choices, a turn that another one overtook. So is a statement whose outcome is unknown (see
`is_written`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Connection, Float, Integer, LargeBinary, Table

from memory.conversation.matching import TurnNode
from memory.ids import MAX_KEY, STEP, clock, new_message_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.shortcut import Sql
from memory.stores.sql.engine.statements import execute_sql, storable
from memory.stores.sql.engine.write_lock import EVERY_WRITE
from memory.stores.sql.rows.jobs import COLUMNS, QueuedJob
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.rows.messages import MessagePlace, rows_of
from memory.stores.sql.rows.scopes import ScopeOwner
from memory.stores.sql.turns.node_holders import NOBODY
from memory.stores.sql.turns.turn_reader import ConversationState, columns
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord
from memory.stores.sql.turns.turn_writer import TOUCH_SECONDS

encode = msgspec.json.encode
TYPES = (
    (BigInteger, "bigint"),
    (Integer, "integer"),
    (Float, "float8"),
    (LargeBinary, "bytea"),
    (Boolean, "boolean"),
)
SAID = tuple(
    column
    for column in t.messages.c
    if column.name not in ("id", "scope_id", "conversation", "pieces", "said_by")
)
SAID_NAMES = tuple(column.name for column in SAID)
HOLD = f"""
l AS MATERIALIZED (
  SELECT pg_try_advisory_xact_lock_shared({EVERY_WRITE})
     AND pg_try_advisory_xact_lock(hashtextextended(:lock::text, 0)) AS taken),
s AS (
  SELECT scopes.id, version, active_at FROM scopes, l
  WHERE l.taken AND scopes.id = :scope::bigint AND (proven OR NOT :prove::boolean)
    AND coalesce((SELECT generation FROM generations WHERE owner = :owner::bytea), 0)
      = :generation::bigint
  FOR KEY SHARE OF scopes),
c AS (
  UPDATE conversations AS v SET version = v.version + 1{{moved}} FROM s
  WHERE v.id = :conversation::bigint AND v.scope_id = s.id AND v.version = :expected::bigint
    AND coalesce((SELECT max(id) FROM messages WHERE conversation = v.id), 0) < :key::bigint
  RETURNING v.version)"""
# The second turn ends an opening (see `openings`).
MOVE = """, head = :head::bigint, resent = v.resent OR :resent::boolean, updated_at = :now::float8,
    opening = CASE WHEN v.head IS NULL OR v.head = :head::bigint THEN v.opening END,
    task = v.task AND (v.head IS NULL OR v.head = :head::bigint)"""
TOUCH = f"""
touched AS (
  UPDATE scopes SET active_at = :now::float8 FROM s, c
  WHERE scopes.id = s.id AND :now::float8 - s.active_at > {TOUCH_SECONDS})"""
WAITING = """
w AS (INSERT INTO unindexed (id, scope_id) SELECT id, scope_id FROM m ON CONFLICT DO NOTHING)"""
EXPLAIN = """
x AS (
  INSERT INTO explains (id, scope_id, record, created_at)
  SELECT :node::bigint, :scope::bigint, :explain::text, :now::float8 FROM c
  ON CONFLICT (id) DO UPDATE SET record = explains.record || E'\\n' || excluded.record,
    created_at = excluded.created_at)"""
USE = """
used AS (
  UPDATE passages SET uses = uses + 1, used_at = :now::float8 FROM c
  WHERE id = ANY(:used::bigint[]))"""
MODELS = """
models AS (
  INSERT INTO model_records (model, offered, called, silent, updated_at)
  SELECT u.*, :now::float8 FROM c, unnest(:models::text[], :offered::int[], :called::int[],
    :silent::int[]) AS u
  ON CONFLICT (model) DO UPDATE SET offered = excluded.offered, called = excluded.called,
    silent = excluded.silent, updated_at = excluded.updated_at)"""
# The turn's own node is not seen by its statement.
UNREAD = """
  (SELECT count(*) FROM (SELECT 1 FROM nodes WHERE scope_id = :scope::bigint
    AND unread IS NOT NULL AND unread = 1 AND parent > 0 AND id <> :node::bigint
    LIMIT :most_unread::bigint) q)
  + :own_unread::bigint"""
ANSWER = "SELECT s.version, c.version, 1 / (SELECT count(*) FROM n) FROM s, c"


@dataclass(frozen=True, slots=True)
class ExpectedLine:
    """The conversation of a turn as the turn found it.

    lock: of the owner. scope_id: the scope's row. version: the conversation's, with what this turn
    wrote.
    """

    lock: str
    scope_id: int
    conversation: ConversationState
    version: int


def open_turn(opening: PendingTurn, line: ExpectedLine) -> Sql | None:
    """Return the statement that makes the request durable; None if it needs more than that."""
    if opening.adopted or opening.large_bodies or opening.once or opening.forked_from:
        return None
    now = clock.now()
    statement = _Statement(line, opening.owner, now)
    statement.hold("")
    statement.add(TOUCH)
    statement.put_node(opening.node, {**_request_columns(opening), **_holder_columns(opening)})
    statement.put_messages(_build_request_messages(opening, line.scope_id, now))
    return statement.build()


def record(turn: TurnRecord, opening: PendingTurn | None, line: ExpectedLine) -> Sql | None:
    """Return the statement that writes a turn's answer, as `turn_writer.record` does.

    Its row has the versions of the scope and of the conversation. None if it needs more than that.
    """
    if not _is_plain(turn, opening, line.conversation):
        return None
    now = clock.now()
    node = turn.nodes[0]
    node.at = now
    statement = _Statement(line, turn.owner, now)
    statement.hold(MOVE, head=node.turn, resent=turn.resent, prove=turn.prove)
    messages: list[dict[str, Any]] = []
    request: dict[str, Any] = {}
    if opening is not None:
        statement.add(TOUCH)
        request = {"request": opening.request}
        messages = _build_request_messages(opening, line.scope_id, now)
    unread = 1 if turn.unread else None
    columns_beside = {"unread": unread, **request, **NOBODY}
    statement.put_node(node, columns_beside, anew=opening is None, holder=turn.holder)
    place = MessagePlace(turn.conversation, node.id, "answer", now, node.state == "aborted")
    contents = turn.contents[0] if turn.contents else contents_of([(turn.answers[0], node.digest)])
    statement.put_messages([*messages, *rows_of(line.scope_id, place, contents)])
    statement.put_consequences(turn, own_unread=int(bool(unread and node.parent)))
    return statement.build()


def is_written(conn: Connection, node: int, *, answered: bool) -> bool:
    """Tell whether a statement whose outcome was unknown has written the turn.

    Within the owner's lock, for which it may still be under way.
    """
    rows = execute_sql(conn, "SELECT state FROM nodes WHERE id = $1", node)
    return bool(rows) and (not answered or rows[0][0] != "open")


def _is_plain(
    turn: TurnRecord, opening: PendingTurn | None, conversation: ConversationState
) -> bool:
    """Tell whether a turn has nothing that the statement cannot write."""
    if opening is not None and any(
        (opening.adopted, opening.large_bodies, opening.rounds, opening.forked_from)
    ):
        return False
    if len(turn.nodes) != 1 or any(
        (
            turn.again,
            turn.large_bodies,
            turn.evicted,
            turn.beside,
            turn.epoch,
            conversation.task,
        )
    ):
        return False
    return keeps_the_line(turn, conversation) and not any(
        job.alone or job.every for job in turn.jobs
    )


def keeps_the_line(turn: TurnRecord, conversation: ConversationState) -> bool:
    """Tell whether the answer becomes the conversation's head.

    A sibling of its first continuation does not.
    """
    answer_node = turn.nodes[0]
    follows = conversation.head is None or conversation.explicit or answer_node.parent is None
    return follows or conversation.head in (answer_node.turn, turn.parent_turn)


def _request_columns(opening: PendingTurn) -> dict[str, Any]:
    rounds = None
    if opening.rounds:
        rounds = encode(opening.rounds).decode()
    return {"request": opening.request, "rounds": rounds}


def _holder_columns(opening: PendingTurn) -> dict[str, Any]:
    return {"holder": opening.holder, "once": opening.once}


def _build_request_messages(
    opening: PendingTurn, scope_id: int, now: float
) -> list[dict[str, Any]]:
    place = MessagePlace(opening.conversation.id, opening.node.id, "chat", now)
    return list(rows_of(scope_id, place, opening.messages))


class _Statement:
    """The parts of one statement, and the values of its parameters."""

    def __init__(self, line: ExpectedLine, owner: ScopeOwner, now: float) -> None:
        self._parts: list[str] = []
        self._values: dict[str, Any] = {
            "lock": line.lock,
            "scope": line.scope_id,
            "owner": owner.scope.owner,
            "generation": owner.generation,
            "conversation": line.conversation.id,
            "expected": line.version,
            "prove": False,
            "key": MAX_KEY,
            "now": now,
        }

    def hold(self, move: str, **values: Any) -> None:
        """Begin with the locks and the compared rows."""
        self.add(_hold_part(move), **values)

    def add(self, part: str, **values: Any) -> None:
        self._parts.append(part)
        self._values |= values

    def put_node(
        self,
        node: TurnNode,
        columns_beside: Mapping[str, Any],
        *,
        anew: bool = False,
        holder: int | None = None,
    ) -> None:
        """Insert the turn's node. anew: in place of the one that this holder opened."""
        row = {**columns(node, self._values["scope"]), **columns_beside}
        part, names = _node_part(tuple(row), anew)
        self.add(part, node=node.id, holder=holder)
        self._values.update(zip(names, row.values(), strict=True))

    def put_messages(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert messages in order, and let them wait.

        Nothing is written if their conversation has one behind them, from another's clock.
        """
        if rows:
            messages = [{name: row[name] for name in SAID_NAMES} for row in rows]
            self.add(MESSAGES, key=new_message_key(len(rows)), said=_encode_rows(messages))
            self.add(WAITING)

    def put_consequences(self, turn: TurnRecord, own_unread: int) -> None:
        """Insert what follows from the turn: explain record, uses, models and jobs."""
        if turn.explain:
            row = {**turn.explain[1], "created_at": self._values["now"]}
            self.add(EXPLAIN, explain=encode(row).decode())
        if turn.used:
            self.add(USE, used=list(turn.used))
        if turn.models:
            # In one order, since others update them too.
            names = sorted(turn.models)
            counts = {
                name: [getattr(turn.models[model], name) for model in names]
                for name in ("offered", "called", "silent")
            }
            self.add(MODELS, models=names, **counts)
        for again in (False, True):
            if jobs := [job for job in turn.jobs if job.again is again]:
                self._put_jobs(jobs, "again" if again else "once")
        max_unread = max((job.unread for job in turn.jobs), default=0)
        self._values |= {"own_unread": own_unread, "most_unread": max_unread}

    def _put_jobs(self, jobs: Sequence[QueuedJob], how: str) -> None:
        now = self._values["now"]
        scope = self._values["scope"]
        rows = [
            {
                "scope_id": scope,
                "conversation": job.conversation,
                "kind": job.kind,
                "payload": encode(job.payload).decode(),
                "dedupe": job.dedupe,
                "run_at": now + job.delay,
                "created_at": now,
            }
            for job in jobs
        ]
        arrays = {f"{how}_{name}": [row[name] for row in rows] for name in COLUMNS}
        unread = [job.unread for job in jobs]
        self.add(_jobs_part(how, any(unread)), **arrays, **{f"{how}_unread": unread})

    def build(self) -> Sql:
        text, names = _number(tuple(self._parts))
        values = self._values
        return Sql(text, [values[name] for name in names])


@cache
def _number(parts: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the SQL of parts with numbered parameters, and their names in order."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    sql = f"WITH {','.join(parts)}\n{ANSWER}"
    return re.sub(r"(?<!:):([a-z]\w*)", numbered, sql), names


@cache
def _hold_part(move: str) -> str:
    return HOLD.format(moved=move)


@cache
def _node_part(names: tuple[str, ...], anew: bool) -> tuple[str, list[str]]:
    """Return the part that inserts a node with these columns, and the names of their values."""
    values = ", ".join(f":n_{name}::{_type(t.nodes.c[name])}" for name in names)
    changes = ", ".join(f"{_name(t.nodes, name)} = excluded.{name}" for name in names[1:])
    # A node under this key of another scope, or taken over, fails the whole statement.
    conflict = ""
    if anew:
        conflict = (
            f"ON CONFLICT (id) DO UPDATE SET {changes} WHERE nodes.scope_id = excluded.scope_id "
            "AND nodes.holder IS NOT DISTINCT FROM :holder::bigint "
        )
    part = (
        f"\nn AS (INSERT INTO nodes ({_list_columns(t.nodes, names)}) SELECT {values} FROM c\n  "
        f"{conflict}RETURNING id)"
    )
    return part, [f"n_{name}" for name in names]


def _build_messages_part() -> str:
    """Return the part that inserts messages.

    They are one JSON text: the driver looks into each element of an array, which took a tenth of a
    turn's statement.
    """
    column_names = ", ".join(SAID_NAMES)
    return (
        "\nm AS (INSERT INTO messages (id, scope_id, conversation, "
        f"{_list_columns(t.messages, SAID_NAMES)})\n  "
        f"SELECT :key::bigint + {STEP} * (u.position - 1), :scope::bigint, :conversation::bigint, "
        f"{', '.join(f'u.{name}' for name in SAID_NAMES)}\n  FROM c, ROWS FROM ("
        f"json_to_recordset(:said::json) AS ({', '.join(f'{c.name} {_type(c)}' for c in SAID)})) "
        f"WITH ORDINALITY AS u({column_names}, position)\n  RETURNING id, scope_id)"
    )


def _encode_rows(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as JSON that Postgres takes, with its spelling of bytes."""
    for row in rows:
        if row["digest"] is not None:
            row["digest"] = f"\\x{row['digest'].hex()}"
    text = encode(rows).decode()
    # Or a backslash before "u0000", which loses nothing.
    if "\\u0000" in text:
        text = encode([{k: storable(v) for k, v in row.items()} for row in rows]).decode()
    return text


@cache
def _jobs_part(how: str, counted: bool) -> str:
    """Return the part that queues jobs. how: `again` postpones one that waits."""
    arrays = ", ".join(f":{how}_{name}::{_type(t.jobs.c[name])}[]" for name in COLUMNS)
    ripe = ""
    if counted:
        ripe = f" WHERE u.unread = 0 OR u.unread <= {UNREAD}"
    change = "NOTHING"
    if how == "again":
        change = "UPDATE SET run_at = excluded.run_at"
    return (
        f"\njobs_{how} AS (INSERT INTO jobs ({', '.join(COLUMNS)})\n  SELECT "
        f"{', '.join(f'u.{name}' for name in COLUMNS)} FROM c, unnest({arrays}, "
        f":{how}_unread::int[]) AS u({', '.join(COLUMNS)}, unread){ripe}\n  ON CONFLICT (dedupe) "
        f"DO {change})"
    )


def _type(column: Column[Any]) -> str:
    return next((name for kind, name in TYPES if isinstance(column.type, kind)), "text")


def _list_columns(table: Table, names: Iterable[str]) -> str:
    return ", ".join(_name(table, name) for name in names)


def _name(table: Table, name: str) -> str:
    return f'"{table.c[name].name}"'


MESSAGES = _build_messages_part()
