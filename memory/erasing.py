"""Erasing a user, deleting a conversation: what everybody sees goes at once, the rows follow in pieces.

1. One short transaction makes it irrevocable: the user's generation moves on, so that what began before
   writes no more; the scopes, or the conversation, are gone, so that nobody finds what hung on them; and a
   job is there that finishes the work, should this process not.
2. Pieces take the rows out, while other writes pass between them.
3. The job is let go, for what lies outside the database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection

from memory.ids import new_id
from memory.jobs.queue import Job, enqueue
from memory.stores.sql import conversations as conversation_rows
from memory.stores.sql import expiry, owners, usage
from memory.stores.sql.conversations import Found
from memory.stores.sql.pieces import Pieces, Share, written
from memory.stores.sql.wiping import Doomed, Wiped, wipe

LEFT = 60.0  # seconds without a piece, after which the job takes over
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
)
Counts = dict[str, int]


async def erase(
    db: Pieces, secret: bytes, who: tuple[str, str], ending: Callable[[], None]
) -> Counts:
    """Erases the user `who` (tenant, name). ending: called in the transaction that ends what is known of
    them. Returns rows removed by kind. Raises StoreUnavailable: doing it again goes on with it."""
    await written(db, lambda conn, share: usage.forget(conn, *who, most=share.rows) or None)
    job = Job(
        "erase", {"scopes": [], "passages": {}}, dedupe=new_id("erase"), delay=LEFT, again=True
    )

    def begin(conn: Connection) -> tuple[list[int], int]:
        ending()
        usage.forget(conn, *who)
        scopes, jobs = owners.erase(conn, secret, *who)
        job.payload["scopes"] = scopes
        if scopes:
            enqueue(conn, job)
        return scopes, jobs

    scopes, jobs = await db.write(begin)
    counts = await wiped(db, [Doomed(scope_id) for scope_id in scopes], job)
    counts["jobs"] += jobs
    return {name: counts[name] for name in COUNTED}


async def delete_conversation(db: Pieces, find: Callable[[Connection], Found]) -> Found:
    """Deletes the conversation that `find` finds, with all that hangs on it. Raises what `find` raises."""
    job = Job(
        "erase", {"scopes": [], "passages": {}}, dedupe=new_id("erase"), delay=LEFT, again=True
    )

    def begin(conn: Connection) -> Found:
        found = find(conn)
        owners.touch(conn, found.scope_id, outside=True)
        conversation_rows.remove(conn, found.scope_id, [found.key])
        job.payload["conversations"] = {str(found.scope_id): [found.key]}
        enqueue(conn, job)
        return found

    found = await db.write(begin)
    await wiped(db, [Doomed(found.scope_id, (found.key,))], job)
    return found


async def expire_unnamed(db: Pieces, before: float) -> int:
    """Deletes a batch of the conversations that name nobody and were last used before `before`. Returns how
    many; call again until it is 0."""
    job = Job(
        "erase", {"scopes": [], "passages": {}}, dedupe=new_id("erase"), delay=LEFT, again=True
    )

    def begin(conn: Connection) -> dict[int, list[int]]:
        found = expiry.expire_unnamed(conn, before)
        job.payload["conversations"] = {str(scope_id): keys for scope_id, keys in found.items()}
        if found:
            enqueue(conn, job)
        return found

    found = await db.write(begin, piece=True)
    await wiped(db, [Doomed(scope_id, tuple(keys)) for scope_id, keys in found.items()], job)
    return sum(map(len, found.values()))


async def wiped(db: Pieces, doomed: Sequence[Doomed], job: Job | None = None) -> Counter[str]:
    """Takes out all rows, in pieces. job: what would finish this; it waits while this goes on, and runs
    afterwards. Returns rows removed by kind."""
    counts: Counter[str] = Counter()
    for which in doomed:
        for some in await written(db, lambda conn, share, w=which: _piece(conn, share, w, job)):  # type: ignore[misc]
            counts += some.counts
    if doomed and job is not None:
        await db.write(lambda conn: _let_go(conn, job))
    return counts


def _piece(conn: Connection, share: Share, which: Doomed, job: Job | None) -> Wiped | None:
    found = wipe(conn, share, which)
    if which.conversations:
        conversation_rows.remove(
            conn, which.scope_id, which.conversations
        )  # a turn may have made it anew
        if found is not None:
            _forgetting(conn, which.scope_id, found)
    if found is not None and job is not None:
        enqueue(conn, job)
    return found


def _let_go(conn: Connection, job: Job) -> None:
    enqueue(conn, Job(job.kind, job.payload, dedupe=job.dedupe, again=True))


async def finish(db: Pieces, job: Job) -> None:
    """Takes out what such a job names: what is left where an erasure was interrupted."""
    for scope_id in job.payload["scopes"]:
        await wiped(db, [Doomed(scope_id)])
    for scope_id, keys in job.payload.get("conversations", {}).items():
        await wiped(db, [Doomed(int(scope_id), tuple(keys))])


def _forgetting(conn: Connection, scope_id: int, found: Wiped) -> None:
    """Has vectors taken out of the index beside the database, where a scope stays."""
    for kind, keys in (("passages", found.passages), ("messages", found.messages)):
        if keys:
            payload: Mapping[str, object] = {
                "scopes": [],
                "passages": {},
                kind: {str(scope_id): keys},
            }
            enqueue(conn, Job("erase", dict(payload)))
