"""Erases a user, deletes a conversation: invisible at once, rows removed in pieces.

1. A short transaction makes it irrevocable: the user's generation increases, so that what began
before cannot write; the scopes, or the conversation, are removed, so that nobody finds their rows;
and a job is queued that finishes the work if this process does not.
2. Pieces remove the rows, while other writes pass between them.
3. The job then removes what is outside the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from memory.ids import clock, new_id
from memory.scope import owner_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.application_tables import ApplicationTables
from memory.stores.sql.engine.batches import BatchedWork, WriterShare, write_batches
from memory.stores.sql.engine.write_lock import EVERYTHING, NOTHING, owner_lock
from memory.stores.sql.owners import agent_speakers, erasure_log, retention, shared_erasure
from memory.stores.sql.owners.row_removal import RemovedRows, RowsToRemove, wipe
from memory.stores.sql.rows import conversations as conversation_rows
from memory.stores.sql.rows import named_rows
from memory.stores.sql.rows import scopes as owners
from memory.stores.sql.rows.conversations import FoundConversation
from memory.stores.sql.rows.jobs import Effect, QueuedJob, enqueue

# Seconds without progress, after which the job takes over.
LEFT = 60.0
COUNTED = (
    "blocks",
    "versions",
    "passages",
    "messages",
    "conversations",
    "summaries",
    "vectors",
    "jobs",
    "explain",
    "files",
    "file_passages",
    "tool_calls",
    "tool_results",
    "skills",
)
Counts = dict[str, int]


class Erasure(msgspec.Struct):
    """What an erasure removed.

    counts: rows by kind. agents: those with a memory of their own, which the user talked to.
    shared: what was removed of shared blocks, by kind.
    """

    counts: Counts
    agents: list[str] = []
    shared: Counts = {}


async def erase(
    db: BatchedWork,
    secret: bytes,
    user_name: tuple[str, str],
    application_tables: Iterable[ApplicationTables],
    before: Effect | None = None,
) -> Erasure:
    """Erase the user `user_name` (tenant, name).

    application_tables: the application's tables. before: written in the transaction that takes the
    user away, so that nothing is recorded in between; if it raises, nobody is erased. Raises
    StoreUnavailable; a repetition continues the work.
    """
    application_tables = tuple(application_tables)
    removed_rows = await _forget_in_tables(db, application_tables, user_name)
    job = removal_job()
    shared: Counts = {}

    def begin(conn: Connection) -> tuple[list[int], int]:
        if before is not None:
            before(conn)
        shared.update(shared_erasure.forget_member(conn, user_name))
        for tables in application_tables:
            tables.forget(conn, *user_name)
        named_rows.remove(conn, user_name)
        scopes, jobs = owners.erase(conn, secret, *user_name)
        job.payload["scopes"] = scopes
        if scopes:
            enqueue(conn, job)
        return scopes, jobs

    lock, erased_at = owner_lock(*user_name) if before is None else EVERYTHING, clock.now()
    scopes, jobs = await db.write(begin, lock=lock)
    erasure_log.note(owner_key(secret, *user_name), erased_at)
    counts = await wipe_rows(db, [RowsToRemove(scope_id) for scope_id in scopes], job)
    counts["jobs"] += jobs
    application_rows = {name: count for name, count in removed_rows.items() if name}
    agents, layered = await agent_speakers.erase(db, user_name)
    shared |= {"passages": layered} if layered else {}
    return Erasure({**{name: counts[name] for name in COUNTED}, **application_rows}, agents, shared)


async def _forget_in_tables(
    db: BatchedWork, application_tables: Sequence[ApplicationTables], user_name: tuple[str, str]
) -> Counter[str]:
    """Take a user out of the application's tables, in pieces; return the counts."""
    removed_rows: Counter[str] = Counter()
    for tables in application_tables:
        batches = await write_batches(db, _forget_batch(tables, user_name), owner_lock(*user_name))
        removed_rows[tables.counted] += sum(batches)
    return removed_rows


def removal_job() -> QueuedJob:
    """Return the job that finishes the work if this process does not."""
    empty_work: dict[str, Any] = {"scopes": [], "passages": {}}
    return QueuedJob("erase", empty_work, dedupe=new_id("erase"), delay=LEFT, again=True)


def _forget_batch(
    tables: ApplicationTables, user_name: tuple[str, str]
) -> Callable[[Connection, WriterShare], int | None]:
    """Return the piece of work that takes a user out of the application's tables."""
    return lambda conn, share: tables.forget_batch(conn, *user_name, share.rows) or None


async def delete_conversation(
    db: BatchedWork,
    find: Callable[[Connection], FoundConversation],
    tables: Sequence[ApplicationTables] = (),
) -> FoundConversation:
    """Delete the conversation that `find` returns, with everything derived from it.

    tables: of the application. Raises what `find` raises.
    """
    job = removal_job()

    def begin(conn: Connection) -> FoundConversation:
        conversation = find(conn)
        owners.touch(conn, conversation.scope_id, outside=True)
        forget_beside(conn, tables, {conversation.scope_id: [conversation.key]})
        conversation_rows.remove(conn, conversation.scope_id, [conversation.key])
        job.payload["conversations"] = {str(conversation.scope_id): [conversation.key]}
        enqueue(conn, job)
        return conversation

    conversation = await db.write(begin)
    await wipe_rows(db, [RowsToRemove(conversation.scope_id, (conversation.key,))], job)
    return conversation


async def expire_unnamed(
    db: BatchedWork, before: float, tables: Sequence[ApplicationTables] = ()
) -> int:
    """Delete a batch of unnamed users' conversations that were last used before `before`.

    tables: of the application. Returns their number; call again until it is 0.
    """
    job = removal_job()

    def begin(conn: Connection) -> dict[int, list[int]]:
        expired_conversations = retention.expire_unnamed(
            conn, before, lambda doomed: forget_beside(conn, tables, doomed)
        )
        job.payload["conversations"] = {
            str(scope_id): keys for scope_id, keys in expired_conversations.items()
        }
        if expired_conversations:
            enqueue(conn, job)
        return expired_conversations

    expired_conversations = await db.write(begin, piece=True)
    await wipe_rows(
        db,
        [RowsToRemove(scope_id, tuple(keys)) for scope_id, keys in expired_conversations.items()],
        job,
    )
    return sum(map(len, expired_conversations.values()))


def forget_beside(
    conn: Connection,
    tables: Sequence[ApplicationTables],
    doomed: Mapping[int, Sequence[int]],
) -> None:
    """Tell the application of conversations that are deleted. doomed: row keys by scope."""
    scopes = t.scopes.c
    conversations = t.conversations.c
    for scope_id, keys in doomed.items():
        owner = conn.execute(select(scopes.tenant, scopes.user).where(scopes.id == scope_id)).one()
        names = (
            conn.execute(select(conversations.name).where(conversations.id.in_(keys)))
            .scalars()
            .all()
        )
        for table in tables:
            table.forget_conversations(conn, owner.tenant, owner.user, names)


async def wipe_rows(
    db: BatchedWork, doomed: Sequence[RowsToRemove], job: QueuedJob | None = None
) -> Counter[str]:
    """Remove all rows, in pieces; return removed rows by kind.

    job: would finish this; it waits meanwhile, and runs afterwards.
    """
    counts: Counter[str] = Counter()
    for target in doomed:
        removed_pieces = await write_batches(
            db,
            partial(_piece, target=target, job=job),
            target.scope_id,
        )
        for removed_piece in removed_pieces:
            counts += removed_piece.counts
    if doomed and job is not None:
        await db.write(lambda conn: _release_job(conn, job), lock=NOTHING)
    return counts


def _piece(
    conn: Connection, share: WriterShare, target: RowsToRemove, job: QueuedJob | None
) -> RemovedRows | None:
    removed_rows = wipe(conn, share, target)
    if target.conversations:
        # A turn may have recreated it.
        conversation_rows.remove(conn, target.scope_id, target.conversations)
        if removed_rows is not None:
            _enqueue_forgetting(conn, target.scope_id, removed_rows)
    if removed_rows is not None and job is not None:
        enqueue(conn, job)
    return removed_rows


def _release_job(conn: Connection, job: QueuedJob) -> None:
    enqueue(conn, QueuedJob(job.kind, job.payload, dedupe=job.dedupe, again=True))


async def finish(db: BatchedWork, job: QueuedJob) -> None:
    """Remove the rows that such a job names, after an interrupted erasure."""
    for scope_id in job.payload["scopes"]:
        await wipe_rows(db, [RowsToRemove(scope_id)])
    for scope_id, keys in job.payload.get("conversations", {}).items():
        await wipe_rows(db, [RowsToRemove(int(scope_id), tuple(keys))])


def _enqueue_forgetting(conn: Connection, scope_id: int, removed_rows: RemovedRows) -> None:
    """Queue the removal of vectors from the external index, if the scope stays."""
    for kind, keys in (("passages", removed_rows.passages), ("messages", removed_rows.messages)):
        if keys:
            payload: Mapping[str, object] = {
                "scopes": [],
                "passages": {},
                kind: {str(scope_id): keys},
            }
            enqueue(conn, QueuedJob("erase", dict(payload)))
