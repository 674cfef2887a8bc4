"""What users said and had written where others read it: in agents that have one memory, whoever
talks to them, and in layers. Its erasure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, select, update

from memory.scope import AGENT_KIND, KIND_MARK, split_memory_name
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import (
    ROWS_PER_STATEMENT,
    BatchedWork,
    WriterShare,
    write_batches,
)
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import messages, passages, scopes, shared_blocks
from memory.stores.sql.rows.scopes import UserName

m = t.messages.c
p = t.passages.c
s = t.scopes.c
n = t.nodes.c
# A memory's, and its agent.
Owner = tuple[str, str]
# What of a turn may quote what was said in it.
QUOTING = ("note", "recall", "told", "hidden", "text", "rounds", "recalled", "runs")


class ErasedSpeaker(NamedTuple):
    """What was erased of a user. agents: whose memory it was. passages: in layers."""

    agents: list[str]
    passages: int


async def erase(db: BatchedWork, user_name: UserName) -> ErasedSpeaker:
    """Remove what a user said to such agents, the answers, passages of it, and shared ones.

    user_name: tenant and user. Raises StoreUnavailable; a repetition continues.
    """
    # The usual case: no other write has to wait for it.
    if not await db.write(lambda conn: _has_any(conn, user_name), lock=NOTHING):
        return ErasedSpeaker([], 0)
    removed_by_owner: Counter[Owner] = Counter()
    for some_removed in await write_batches(
        db, lambda conn, share: _erase_some(conn, share, user_name)
    ):
        removed_by_owner += some_removed
    agents = {agent for owner, agent in removed_by_owner if owner.startswith(AGENT_KIND)}
    layered = sum(
        n for (owner, _), n in removed_by_owner.items() if not owner.startswith(AGENT_KIND)
    )
    return ErasedSpeaker(sorted(agents), layered)


def keep_passages(conn: Connection, user_name: UserName) -> int:
    """Remove a user's name beside what they put into layers; return of how many passages."""
    rows = select(s.id).where(*_shared(user_name), ~s.user.startswith(AGENT_KIND, autoescape=True))
    is_written_by = p.written_by == user_name[1], p.scope_id.in_(rows)
    return conn.execute(update(t.passages).where(*is_written_by).values(written_by=None)).rowcount


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give what a user said and wrote there to another name; another tenant takes none of it."""
    if source[0] != target[0]:
        keep_passages(conn, source)
        return
    homes = select(s.id).where(*_shared(source))
    for table, name in ((t.messages, m.said_by), (t.passages, p.written_by)):
        is_said_by = name == source[1], table.c.scope_id.in_(homes)
        conn.execute(update(table).where(*is_said_by).values({name: target[1]}))


def _erase_some(conn: Connection, share: WriterShare, user_name: UserName) -> Counter[Owner] | None:
    """Remove the next turns and passages; return whose they were, None if none was left."""
    owners: Counter[Owner] = Counter()
    for remove in (_remove_turns, _remove_passages):
        while some_removed := remove(conn, user_name):
            owners += some_removed
            if share.count_row(ROWS_PER_STATEMENT):
                return owners
    return owners or None


def _shared(user_name: UserName) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for memories of a tenant that are no user's own."""
    return s.tenant == user_name[0], s.user.startswith(KIND_MARK)


def _has_any(conn: Connection, user_name: UserName) -> bool:
    """Tell whether a user said something to such an agent, or had it written."""
    return any(
        conn.execute(select(column).where(column == user_name[1]).limit(1)).first() is not None
        for column in (m.said_by, p.written_by)
    )


def _remove_turns(conn: Connection, user_name: UserName) -> Counter[Owner]:
    """Remove some turns of a user; return whose they were."""
    rows = conn.execute(
        select(m.id, m.node, m.conversation, m.scope_id, s.user, s.agent)
        .join(t.scopes, s.id == m.scope_id)
        .where(m.said_by == user_name[1], *_shared(user_name))
        .limit(ROWS_PER_STATEMENT)
    ).all()
    if not rows:
        return Counter()
    nodes = [row.node for row in rows if row.node is not None]
    doomed = m.id.in_([row.id for row in rows]) | m.node.in_(nodes)
    names = list(conn.execute(select(m.public_id).where(doomed)).scalars())
    _drop_passages(conn, p.source.in_(names))
    messages.remove(conn, doomed)
    conn.execute(update(t.nodes).where(n.id.in_(nodes)).values(dict.fromkeys(QUOTING)))
    conn.execute(delete(t.explains).where(t.explains.c.id.in_(nodes)))
    _outdate(conn, {row.scope_id for row in rows}, [row.conversation for row in rows])
    return _owners_of(rows)


def _owners_of(rows: Sequence[Any]) -> Counter[Owner]:
    return Counter((row.user, split_memory_name(row.agent)[0]) for row in rows)


def _outdate(conn: Connection, scope_ids: set[int], conversations: Sequence[int]) -> None:
    """Remove what was made of conversations of a scope: the next turn begins an epoch."""
    conn.execute(delete(t.summaries).where(t.summaries.c.conversation.in_(conversations)))
    conn.execute(delete(t.epochs).where(t.epochs.c.scope_id.in_(scope_ids)))
    for scope_id in scope_ids:
        scopes.touch(conn, scope_id, outside=True)


def _remove_passages(conn: Connection, user_name: UserName) -> Counter[Owner]:
    """Remove some passages that a user had written; return whose they were.

    Those who read a layer begin new epochs, which hold nothing of it.
    """
    rows = conn.execute(
        select(p.id, p.scope_id, s.user, s.agent)
        .join(t.scopes, s.id == p.scope_id)
        .where(p.written_by == user_name[1], *_shared(user_name))
        .limit(ROWS_PER_STATEMENT)
    ).all()
    if rows:
        _drop_passages(conn, p.id.in_([row.id for row in rows]))
        for scope_id in {r.scope_id for r in rows if not r.user.startswith(AGENT_KIND)}:
            scopes.touch(conn, scope_id, outside=True)
            shared_blocks.raise_changes(conn, user_name[0], layered=True)
    return _owners_of(rows)


def _drop_passages(conn: Connection, condition: ColumnElement[bool]) -> None:
    for row in conn.execute(select(p.scope_id, p.public_id).where(condition)).all():
        passages.remove(conn, [row.scope_id], row.public_id)
