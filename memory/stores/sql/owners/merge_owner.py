"""Queries and repairs for a merge of one user's memory into another's.

The rows themselves are exported and imported; see `memory.management.merging`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, select, update

from memory.errors import Conflict, NotFound
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.application_tables import ApplicationTables
from memory.stores.sql.owners import agent_speakers, shared_erasure
from memory.stores.sql.owners.rename_owner import OwnerRename
from memory.stores.sql.rows import file_block, named_rows, skill_block, skills

b, c, m, n, p, s = (
    table.c for table in (t.blocks, t.conversations, t.messages, t.nodes, t.passages, t.scopes)
)
WRITTEN = (t.nodes, t.messages, t.passages, t.block_versions, t.file_tables.file_versions)
Mark = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block of the target. read_only: by its row, not by the operator's settings."""

    value: str
    description: str
    limit: int
    read_only: bool


@dataclass(slots=True)
class AgentHoldings:
    """What one agent of a user has. conversations: by name, when it began and its messages.

    deleted: labels of blocks that were there.
    """

    blocks: dict[str, StoredBlock] = field(default_factory=dict)
    conversations: dict[str, tuple[float, int]] = field(default_factory=dict)
    passages: int = 0
    deleted: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a user has, by agent. mark: changes with everything that is written for the user."""

    agents: dict[str, AgentHoldings]
    mark: Mark

    def count(self, kind: str) -> int:
        """Return how many blocks, passages, conversations or messages there are."""
        agents = self.agents.values()
        if kind == "messages":
            return sum(n for a in agents for _, n in a.conversations.values())
        counts = (getattr(agent, kind) for agent in agents)
        return sum(x if isinstance(x, int) else len(x) for x in counts)


def read_holdings(conn: Connection, owner: tuple[str, str]) -> Holdings:
    """Return what a user has. owner: tenant and user. Raises NotFound."""
    scopes = conn.execute(select(s.id, s.agent).where(s.tenant == owner[0], s.user == owner[1]))
    names = {row.id: row.agent for row in scopes}
    if not names:
        raise NotFound(f"nothing is stored about the user {owner[1]!r} of the tenant {owner[0]!r}")
    agents = {agent: _read_agent(conn, scope_id) for scope_id, agent in names.items()}
    return Holdings(agents, _read_mark(conn, list(names)))


def _read_agent(conn: Connection, scope_id: int) -> AgentHoldings:
    holdings = AgentHoldings()
    block_query = select(t.blocks).where(b.scope_id == scope_id, b.branch == 0)
    for row in conn.execute(block_query):
        if file_block.LIST.is_list(row) or skill_block.LIST.is_list(row):
            # Made again from the files or the skills.
            continue
        if row.deleted:
            holdings.deleted.add(row.label)
            continue
        holdings.blocks[row.label] = StoredBlock(
            row.value, row.description, row.limit, row.read_only
        )
    conversation_query = (
        select(c.name, c.created_at, func.count(m.node).label("messages"))
        .outerjoin(t.messages, m.conversation == c.id)
        .where(c.scope_id == scope_id)
        .group_by(c.id)
    )
    for row in conn.execute(conversation_query):
        holdings.conversations[row.name] = row.created_at, row.messages
    passage_count = select(func.count()).where(p.scope_id == scope_id)
    holdings.passages = conn.execute(passage_count).scalar() or 0
    return holdings


def _read_mark(conn: Connection, scopes: list[int]) -> Mark:
    counts_and_keys: list[int] = []
    for table in WRITTEN:
        count_query = select(func.count(), func.max(table.c.id)).where(table.c.scope_id.in_(scopes))
        counts_and_keys += [int(value or 0) for value in conn.execute(count_query).one()]
    return tuple(counts_and_keys)


def finish(
    conn: Connection, move: OwnerRename, source_mark: Mark, tables: list[ApplicationTables]
) -> None:
    """Give the application's rows to the target, and link superseded passages again.

    source_mark: of the source when it was read. Raises Conflict if it was written to since.
    """
    if read_holdings(conn, move.source).mark != source_mark:
        raise Conflict(
            f"the memory of {move.source[1]!r} was used meanwhile, so it is still there: stop what "
            "uses this name, and do it again"
        )
    agent_speakers.rename(conn, move.source, move.target)
    shared_erasure.rename(conn, move.source, move.target)
    named_rows.rename(conn, move.source, move.target)
    for application in tables:
        application.rename(conn, move.source, move.target)
    _move_skills(conn, move)
    for row in _superseded(conn, move):
        conn.execute(update(t.passages).where(p.id == row.id).values(superseded_by=row.newer))


def _move_skills(conn: Connection, move: OwnerRename) -> None:
    """Give the skills to the target, by agent."""
    agents = {
        owner: {
            row.agent: row.id
            for row in conn.execute(
                select(s.id, s.agent).where(s.tenant == owner[0], s.user == owner[1])
            )
        }
        for owner in (move.source, move.target)
    }
    for agent, scope_id in agents[move.source].items():
        if agent in agents[move.target]:
            target_id = agents[move.target][agent]
            skills.move(conn, scope_id, target_id)
            skill_block.extend(conn, target_id)


def _superseded(conn: Connection, move: OwnerRename) -> list[Any]:
    """Return the target's passages that name one of the source, each with the target's copy."""
    old_passages = t.passages.alias()
    copy = t.passages.alias()
    scope = t.scopes.alias()
    return list(
        conn.execute(
            select(p.id, copy.c.public_id.label("newer"))
            .join(t.scopes, s.id == p.scope_id)
            .join(old_passages, old_passages.c.public_id == p.superseded_by)
            .join(scope, scope.c.id == old_passages.c.scope_id)
            .join(copy, (copy.c.digest == old_passages.c.digest) & (copy.c.scope_id == p.scope_id))
            .where(
                s.tenant == move.target[0],
                s.user == move.target[1],
                scope.c.tenant == move.source[0],
                scope.c.user == move.source[1],
            )
        )
    )
