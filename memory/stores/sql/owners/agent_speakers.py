"""What users said to agents that have one memory, whoever talks to them: its erasure."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, select, update

from memory.scope import AGENT_KIND
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import (
    ROWS_PER_STATEMENT,
    BatchedWork,
    WriterShare,
    write_batches,
)
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import messages, passages, scopes
from memory.stores.sql.rows.scopes import UserName

m, p, s, n = t.messages.c, t.passages.c, t.scopes.c, t.nodes.c
# What of a turn may quote what was said in it.
QUOTING = ("note", "recall", "told", "hidden", "text", "rounds", "recalled")


async def erase(db: BatchedWork, who: UserName) -> list[str]:
    """Remove what a user said to such agents, the answers, and passages made from them.

    who: tenant and user. Returns the names of the agents. Raises StoreUnavailable; a repetition
    continues.
    """
    # The usual case: no other write has to wait for it.
    if not await db.write(lambda conn: _has_any(conn, who), lock=NOTHING):
        return []
    agents: set[str] = set()
    for named in await write_batches(db, lambda conn, share: _erase_some(conn, share, who)):
        agents |= named
    return sorted(agents)


def rename(conn: Connection, source: UserName, target: UserName) -> None:
    """Give what a user said to such agents to another name of the same tenant."""
    if source[0] != target[0]:
        return
    homes = select(s.id).where(*_at_home(source))
    for table, name in ((t.messages, m.said_by), (t.passages, p.written_by)):
        said = name == source[1], table.c.scope_id.in_(homes)
        conn.execute(update(table).where(*said).values({name: target[1]}))


def _erase_some(conn: Connection, share: WriterShare, who: UserName) -> set[str] | None:
    """Remove the next turns and passages; return whose they were, None if none was left."""
    agents: set[str] = set()
    for remove in (_remove_turns, _remove_passages):
        while found := remove(conn, who):
            agents |= found
            if share.count_row(ROWS_PER_STATEMENT):
                return agents
    return agents or None


def _at_home(who: UserName) -> tuple[ColumnElement[bool], ...]:
    return s.tenant == who[0], s.user.startswith(AGENT_KIND, autoescape=True)


def _has_any(conn: Connection, who: UserName) -> bool:
    """Tell whether a user said something to such an agent, or had it written."""
    return any(
        conn.execute(select(column).where(column == who[1]).limit(1)).first() is not None
        for column in (m.said_by, p.written_by)
    )


def _remove_turns(conn: Connection, who: UserName) -> set[str]:
    """Remove some turns of a user; return the agents."""
    rows = conn.execute(
        select(m.id, m.node, m.conversation, m.scope_id, s.agent)
        .join(t.scopes, s.id == m.scope_id)
        .where(m.said_by == who[1], *_at_home(who))
        .limit(ROWS_PER_STATEMENT)
    ).all()
    if not rows:
        return set()
    nodes = [row.node for row in rows if row.node is not None]
    doomed = m.id.in_([row.id for row in rows]) | m.node.in_(nodes)
    names = list(conn.execute(select(m.public_id).where(doomed)).scalars())
    _drop_passages(conn, p.source.in_(names))
    messages.remove(conn, doomed)
    conn.execute(update(t.nodes).where(n.id.in_(nodes)).values(dict.fromkeys(QUOTING)))
    conn.execute(delete(t.explains).where(t.explains.c.id.in_(nodes)))
    _outdate(conn, {row.scope_id for row in rows}, [row.conversation for row in rows])
    return {row.agent for row in rows}


def _outdate(conn: Connection, scope_ids: set[int], conversations: Sequence[int]) -> None:
    """Remove what was made of conversations of a scope: the next turn begins an epoch."""
    conn.execute(delete(t.summaries).where(t.summaries.c.conversation.in_(conversations)))
    conn.execute(delete(t.epochs).where(t.epochs.c.scope_id.in_(scope_ids)))
    for scope_id in scope_ids:
        scopes.touch(conn, scope_id, outside=True)


def _remove_passages(conn: Connection, who: UserName) -> set[str]:
    """Remove some passages that a user had written; return the agents."""
    rows = conn.execute(
        select(p.id, s.agent)
        .join(t.scopes, s.id == p.scope_id)
        .where(p.written_by == who[1], *_at_home(who))
        .limit(ROWS_PER_STATEMENT)
    ).all()
    if rows:
        _drop_passages(conn, p.id.in_([row.id for row in rows]))
    return {row.agent for row in rows}


def _drop_passages(conn: Connection, which: ColumnElement[bool]) -> None:
    for row in conn.execute(select(p.scope_id, p.public_id).where(which)).all():
        passages.remove(conn, [row.scope_id], row.public_id)
