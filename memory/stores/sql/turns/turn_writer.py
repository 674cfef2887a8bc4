"""Writes what a turn did: its request, its rounds, its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, false, null, select, update

from memory.context.epoch import Epoch
from memory.conversation.matching import trail_after
from memory.conversation.messages import Json, keyed_hash
from memory.errors import ErasedMeanwhile
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.statements import add_row, execute, insert_with_conflict, put_row
from memory.stores.sql.index.index_changes import IndexChange, note_change
from memory.stores.sql.rows import agent_inbox, message_pieces, model_records, openings, scopes
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows import passage_lifecycle as fact_rows
from memory.stores.sql.rows.jobs import QueuedJob, enqueue
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.turns import node_holders, turn_rivals, unread_turns
from memory.stores.sql.turns.turn_reader import SAID, NodeRows, columns, find_conversation
from memory.stores.sql.turns.turn_rows import PendingTurn, TurnRecord

n = t.nodes.c
cv = t.conversations.c
encode = msgspec.json.encode
decode = msgspec.json.decode

TRIED = update(t.nodes).where(n.id == bindparam("node")).values(at=bindparam("now"))
TRIED_BY = TRIED.where(n.holder == bindparam("me")).values(**node_holders.NOBODY)
PLANNED = ("epoch", "note", "told", "carriers")
TRIED_ANEW = TRIED.values(**{name: bindparam(name) for name in ("request", "rounds", *PLANNED)})

MOVED = (
    update(t.conversations)
    .where(cv.id == bindparam("which"), cv.scope_id == bindparam("scope"))
    .values(head=bindparam("head"), resent=bindparam("resent"), updated_at=bindparam("updated_at"))
)

# Where others may keep the conversation too: they compare its version.
RAISE = update(t.conversations).where(cv.id == bindparam("which")).values(version=cv.version + 1)
MOVED_BESIDE = MOVED.values(version=cv.version + 1)
# The second turn of a conversation: it is no opening any more.
CONTINUED, CONTINUED_BESIDE = (
    moved.values(opening=null(), task=false()) for moved in (MOVED, MOVED_BESIDE)
)

# A turn was edited or made anew in a conversation that its client names.
BRANCHED = (
    update(t.conversations)
    .where(cv.id == bindparam("which"), cv.forked_from.is_(None))
    .values(forked_from=cv.name)
)

TURN_OF = select(n.turn).where(n.id == bindparam("which"))
# Seconds in which a scope's last activity is not written again.
TOUCH_SECONDS = 1.0


def read_status(conn: Connection, turn: PendingTurn | TurnRecord) -> Any:
    """Read what `scopes.scope_status` returns of a turn's scope and conversation."""
    line = turn.conversation
    if isinstance(line, int):
        conversation = line
    else:
        conversation = line.id
    return scopes.scope_status(conn, turn.owner, turn.scope_id, conversation)


def open_turn(
    conn: Connection, opening: PendingTurn, *, answered: bool = False, status: Any = None
) -> int:
    """Make the request durable; return the scope's row id.

    answered: its node is written with its answer. status: what `read_status` returns, if it was
    read before. Raises ErasedMeanwhile.
    """
    now = opening.at or clock.now()
    conversation = opening.conversation
    line = read_status(conn, opening) if status is None else status
    if line is not None and turn_rivals.fork_if_continued(conn, line, opening):
        line = scopes.scope_status(conn, opening.owner, opening.scope_id, conversation.id)
    opening.status = line if line is not None and line.conversation is not None else None
    scope_id: int = line.id if line else scopes.get_or_create(conn, opening.owner)
    if line is None or now - line.active_at > TOUCH_SECONDS:
        scopes.touch(conn, scope_id)
    if line is None or line.conversation is None:
        _add_conversation(conn, opening, scope_id, now)
    elif opening.forked_from == conversation.name:
        execute(conn, BRANCHED, {"which": conversation.id})
    rounds = encode(opening.rounds).decode() if opening.rounds else None
    if opening.adopted:
        node_holders.check_held(conn, opening.node.id, opening.holder)
        # What this attempt was given: one that resumes its rounds is given the same.
        row = columns(opening.node, scope_id)
        planned_columns = {name: row[name] for name in PLANNED}
        request = {"request": opening.request, "rounds": rounds}
        values = {"node": opening.node.id, "now": now} | request | planned_columns
        execute(conn, TRIED_ANEW, values)
    elif not answered:
        node_holders.check_once(conn, scope_id, opening.once)
        holder, once = opening.holder, opening.once
        holder_columns = {} if holder is None else {"holder": holder, "once": once}
        row = columns(opening.node, scope_id)
        add_row(conn, t.nodes, **row, request=opening.request, rounds=rounds, **holder_columns)
        message_rows.append(conn, _request_rows(opening, scope_id, now), _newest(opening.status))
    if not answered:
        _raise_version(conn, conversation.id)
    return scope_id


def _raise_version(conn: Connection, conversation: int) -> None:
    """Outdate what is kept of the conversation, where others may keep it too."""
    if sql_driver(conn).is_shared:
        execute(conn, RAISE, {"which": conversation})


def _add_conversation(conn: Connection, opening: PendingTurn, scope_id: int, now: float) -> None:
    """Add the turn's conversation, unless another turn with the same name was first."""
    conversation = opening.conversation
    existing_conversation = None
    if conversation.explicit:
        existing_conversation = find_conversation(conn, scope_id, conversation.name)
    if existing_conversation is not None:
        conversation.id = opening.node.conversation = existing_conversation.id
        return
    add_row(
        conn,
        t.conversations,
        id=conversation.id,
        scope_id=scope_id,
        name=conversation.name,
        explicit=conversation.explicit,
        resent=conversation.resent,
        forked_from=opening.forked_from,
        head=None,
        opening=conversation.opening,
        task=conversation.task,
        created_at=now,
        updated_at=now,
    )
    if conversation.task:
        note_change(conn, IndexChange(fts.MESSAGES_INDEX, scope_id))
    if conversation.same_tasks:
        openings.mark_tasks(conn, scope_id, conversation.same_tasks)


def _request_rows(opening: PendingTurn, scope_id: int, now: float) -> list[dict[str, Any]]:
    """Return the rows of the new messages of the request."""
    return list(
        message_rows.rows_of(
            scope_id,
            message_rows.MessagePlace(opening.conversation.id, opening.node.id, "chat", now),
            opening.messages,
        )
    )


def _newest(status: Any) -> int | None:
    if status is None:
        return None
    return max(status.stored or 0, status.indexed or 0)


def round_done(
    conn: Connection, node: int, rounds: Sequence[Json], holder: int | None = None
) -> None:
    """Save the finished hidden rounds, in the transaction of what their calls wrote.

    holder: this worker, where there are several. Raises TakenOver.
    """
    node_holders.check_held(conn, node, holder)
    conn.execute(
        update(t.nodes).where(n.id == node).values(rounds=encode(rounds).decode(), at=clock.now())
    )


def attempt_failed(conn: Connection, node: int, holder: int | None = None) -> None:
    """Record the time; the node stays open, so that a retry continues with it.

    holder: this worker, where there are several.
    """
    statement = TRIED if holder is None else TRIED_BY
    execute(conn, statement, {"node": node, "now": clock.now(), "me": holder})


def drop_turn(conn: Connection, scope_id: int, node: int) -> None:
    """Remove an opened turn, whose credentials the upstream refused."""
    row = conn.execute(
        select(n.conversation).where(n.id == node, n.scope_id == scope_id, n.state == "open")
    ).first()
    if row is None:
        return
    message_rows.remove(conn, t.messages.c.node == node)
    conn.execute(delete(t.nodes).where(n.id == node))
    _raise_version(conn, row.conversation)
    if (
        conn.execute(select(n.id).where(n.conversation == row.conversation).limit(1)).first()
        is None
    ):
        conn.execute(delete(t.conversations).where(cv.id == row.conversation))
    scopes.remove_if_empty(conn, scope_id)


def drop_pieces(conn: Connection, owner: scopes.ScopeOwner, bodies: Sequence[int]) -> None:
    """Take the pieces back that were written for rows which did not follow. bodies: their keys."""
    message_pieces.remove_unnamed(conn, bodies)
    if (scope_id := scopes.find(conn, owner.scope)) is not None:
        scopes.remove_if_empty(conn, scope_id)


def record(conn: Connection, turn: TurnRecord, opening: PendingTurn | None = None) -> int:
    """Write a turn's answers, and queue its jobs; safe to repeat with the same record.

    opening: its request, if not written before. Returns the conversation's newest node. Raises
    ErasedMeanwhile.
    """
    head = record_answers(conn, turn, opening)
    queue_jobs(conn, turn.jobs, turn.scope_id)
    return head


def record_answers(
    conn: Connection,
    turn: TurnRecord,
    opening: PendingTurn | None = None,
    status: Any = None,
) -> int:
    """Do what `record` does, but for jobs. status: see `open_turn`, of the request if it is new."""
    request: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    now = turn.at or clock.now()
    if opening is not None:
        turn.scope_id = open_turn(conn, opening, answered=True, status=status)
        request = {"request": opening.request}
        rows = _request_rows(opening, turn.scope_id, opening.at or now)
        turn.conversation = opening.conversation.id
        for node in turn.nodes:
            node.conversation = turn.conversation
    line = opening.status if opening is not None else status
    if line is None:
        scope_id = turn.scope_id or scopes.get_or_create(conn, turn.owner)
        line = scopes.scope_status(conn, turn.owner, scope_id, turn.conversation)
    if line is None or line.conversation is None:
        raise ErasedMeanwhile("the conversation was deleted while this ran; nothing of it is kept")
    turn.scope_id = scope_id = line.id
    if opening is None and not turn_rivals.make_way(conn, scope_id, turn):
        return int(line.head or turn.nodes[0].turn)
    stays = turn.kept and _join(conn, line, turn)
    if turn.epoch is not None:
        _put_epoch(conn, turn.epoch, scope_id, now)
    rows += _answers(conn, turn, (scope_id, now), request)
    message_rows.append(conn, rows, _newest(line))
    head = _move(conn, line, turn, now, stays=stays)
    driver = sql_driver(conn)
    turn.versions = (line.scope_version, line.version + 1) if driver.is_shared else None
    _record_consequences(conn, turn, scope_id, now)
    if turn.prove and not line.proven:
        scopes.prove(conn, scope_id)
    return head


def _put_epoch(conn: Connection, epoch: Epoch, scope_id: int, now: float) -> None:
    """Write the epoch that the turn began."""
    put_row(
        conn,
        t.epochs,
        ("id",),
        id=epoch.id,
        scope_id=scope_id,
        core=epoch.core,
        blocks=encode(dict(epoch.blocks)).decode(),
        edits=epoch.edits,
        cut=epoch.cut,
        elide=epoch.elide,
        tools=encode(dict(epoch.tools)).decode() if epoch.tools else None,
        created_at=now,
    )


def _record_consequences(conn: Connection, turn: TurnRecord, scope_id: int, now: float) -> None:
    """Write what follows from the turn: evicted messages, explain record, and uses."""
    node = turn.nodes[0].id
    if turn.evicted:
        place = message_rows.MessagePlace(turn.conversation, node, "evicted", now)
        message_rows.add(conn, scope_id, place, turn.evicted, once=True)
    if turn.explain:
        record = turn.explained or explain_text(turn.explain[1], now)
        row = {
            "id": turn.aside or node,
            "scope_id": scope_id,
            "record": record,
            "created_at": now,
        }
        execute(conn, upsert_explain(sql_driver(conn)), row)
    fact_rows.record_use(conn, turn.used)
    model_records.save(conn, turn.models)
    if turn.delivered:
        agent_inbox.deliver(conn, turn.delivered, node)


def queue_jobs(conn: Connection, jobs: Sequence[QueuedJob], scope_id: int | None) -> None:
    """Queue what follows from turns of a scope in the background, as far as it is time for it."""
    for job in jobs:
        if scope_id is not None and _is_time(conn, scope_id, job):
            enqueue(conn, replace(job, scope_id=scope_id))


def explain_text(record: Json, at: float) -> str:
    """Return an explain record as it is stored."""
    return encode({**record, "created_at": at}).decode()


def _is_time(conn: Connection, scope_id: int, job: QueuedJob) -> bool:
    """Tell whether enough turns have passed for a job that waits for some."""
    if job.unread:
        return unread_turns.count(conn, scope_id, job.unread) >= job.unread
    return not job.every or scopes.nth_turn(conn, scope_id, job.every)


def _answers(
    conn: Connection, turn: TurnRecord, at: tuple[int, float], request: dict[str, Any]
) -> list[dict[str, Any]]:
    """Write the nodes of a turn; return the rows of its answers.

    at: scope and time. request: columns that the first node has.
    """
    scope_id, now = at
    rows: list[dict[str, Any]] = []
    if turn.again:
        # For all at once: a statement for each of 256 choices takes .2 s together.
        node_ids = [node.id for node in turn.nodes]
        message_rows.remove(
            conn, t.messages.c.node.in_(node_ids) & (t.messages.c.source == "answer")
        )
    for index, (node, answer) in enumerate(zip(turn.nodes, turn.answers, strict=True)):
        node.at = now
        unread_mark = 1 if turn.unread and index == 0 else None
        if sql_driver(conn).is_shared:
            holder_columns = node_holders.NOBODY
        else:
            holder_columns = {}
        row = columns(node, scope_id)
        put_row(conn, t.nodes, ("id",), **row, unread=unread_mark, **request, **holder_columns)
        request = {}
        place = message_rows.MessagePlace(
            turn.conversation, node.id, "answer", node.at, node.state == "aborted"
        )
        contents = turn.contents[index] if turn.contents else contents_of([(answer, node.digest)])
        rows += message_rows.rows_of(scope_id, place, contents)
    return rows


@cache
def upsert_explain(driver: SqlDriver) -> Any:
    """Return the statement that adds an attempt to a turn's explain record."""
    record_columns = t.explains.c
    statement = insert_with_conflict(driver, t.explains, record_columns.keys())
    return statement.on_conflict_do_update(
        index_elements=["id"],
        set_={
            "record": record_columns.record + "\n" + statement.excluded.record,
            "created_at": statement.excluded.created_at,
        },
    )


def _join(conn: Connection, line: Any, turn: TurnRecord) -> bool:
    """Move the record behind a turn that overtook it in a stored conversation.

    An answer that broke off and the one to the same request asked again stay beside each other.
    line: see `scopes.scope_status`. Returns whether the head stays where it is.
    """
    head = line.head
    answer_node = turn.nodes[0]
    if head is None or head in (answer_node.parent, answer_node.id, turn.seen_head):
        return False
    overtaking_node = NodeRows(conn, line.id).one(head)
    if overtaking_node is None:
        return False
    if (overtaking_node.parent, overtaking_node.asked) == (answer_node.parent, answer_node.asked):
        if answer_node.state == "aborted":
            return True
        if overtaking_node.state == "aborted":
            return False
    link = overtaking_node.chain
    for digest in execute(conn, SAID, {"node": answer_node.id}).scalars():
        link = keyed_hash(turn.key, link, digest)
    for node in turn.nodes:
        node.parent = overtaking_node.id
        node.asked = link
        node.depth = overtaking_node.depth + 1
        node.chain, node.trail = (
            keyed_hash(turn.key, link, node.digest),
            trail_after(overtaking_node, node.digest),
        )
    return False


def _move(conn: Connection, line: Any, turn: TurnRecord, now: float, *, stays: bool) -> int:
    """Move the conversation's head to this answer, unless it stays, and return it.

    The first continuation keeps the conversation: a later sibling does not move it. line: see
    `scopes.scope_status`.
    """
    answer_node = turn.nodes[0]
    head = line.head
    is_sibling = (
        head is not None
        and not line.explicit
        and answer_node.parent is not None
        and answer_node.turn != head
    )
    stays = stays or (
        is_sibling
        and (turn.parent_turn or execute(conn, TURN_OF, {"which": answer_node.parent}).scalar())
        != head
    )
    to: int = head if stays else answer_node.turn
    goes_on = line.opening is not None and head not in (None, to)
    if goes_on and line.task and turn.unread:
        openings.let_extraction_read(conn, head)
    # Searches find what is said in it from now on.
    if goes_on and line.task:
        note_change(conn, IndexChange(fts.MESSAGES_INDEX, line.id))
    statements = (CONTINUED_BESIDE, CONTINUED) if goes_on else (MOVED_BESIDE, MOVED)
    execute(
        conn,
        statements[0 if sql_driver(conn).is_shared else 1],
        {
            "which": turn.conversation,
            "scope": line.id,
            "head": to,
            "resent": line.resent or turn.resent,
            "updated_at": now,
        },
    )
    return to
