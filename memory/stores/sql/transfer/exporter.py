"""Reads a user's memory page by page, each page in its own read transaction.

So an export of any size blocks nobody and needs little memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Table, select

from memory.core.layers import LAYER_KINDS
from memory.export_format import (
    BlockLine,
    ConversationLine,
    Export,
    ExportEnd,
    ExportLine,
    MessageLine,
    NodeLine,
    PassageLine,
    PolicyLine,
    SharedBlockLine,
    VersionLine,
)
from memory.scope import Scope, split_memory_name
from memory.search.query import iso
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import file_block, policies, shared_members, skill_block
from memory.stores.sql.rows.messages import message_of as given
from memory.stores.sql.transfer.file_export import DONE, list_file_lines
from memory.stores.sql.transfer.skill_transfer import list_skill_lines

PAGE = 200
decode = msgspec.json.decode
Rows = Sequence[Row[Any]]


async def export(
    db: Database, tenant: str, user: str, agent: str | None = None
) -> AsyncIterator[ExportLine]:
    """Yield every line of the user's memory, of one agent or all. Raises StoreUnavailable."""
    count = 1
    yield Export(user=user)
    policy = await db.read(lambda conn: policies.find(conn, (tenant, user)))
    if policy != policies.NO_POLICY:
        count += 1
        yield PolicyLine(
            memory=policy.memory,  # type: ignore[arg-type]
            timezone=policy.timezone or None,
            layers=None if policy.layers == LAYER_KINDS else list(policy.layers),  # type: ignore[arg-type]
        )
    for scope_id, name in await db.read(lambda conn: _scopes(conn, tenant, user, agent)):
        for kind in (
            _blocks,
            _versions,
            _passages,
            list_file_lines,
            list_skill_lines,
            _conversations,
            _nodes,
        ):
            after_key: Any = None
            while after_key is not DONE:
                lines, after_key = await db.read(
                    lambda conn, k=kind, s=scope_id, a=after_key, n=name: k(conn, s, a, n)  # type: ignore[misc]
                )
                for line in lines:
                    count += 1
                    yield line
    for shared in await db.read(lambda conn: _shared_blocks(conn, tenant, user, agent)):
        count += 1
        yield shared
    yield ExportEnd(lines=count)


def _name_members(memory: str) -> dict[str, str]:
    """Return the agent and the project of a memory, as members of a line."""
    agent, project = split_memory_name(memory)
    return {"agent": agent, "project": project}


Page = tuple[list[ExportLine], Any]


def _shared_blocks(
    conn: Connection, tenant: str, user: str, agent: str | None
) -> list[SharedBlockLine]:
    """Return the shared blocks that a user sees, with an agent or with any of theirs."""
    if agent is not None:
        agents = [agent]
    else:
        agents = [a for _, a in _scopes(conn, tenant, user, None)]
    lines: dict[str, SharedBlockLine] = {}
    for name in agents or ["default"]:
        for seen_block in shared_members.list_seen(conn, Scope(tenant, user, name, b"")):
            block = seen_block.block
            write = not block.read_only or (block.id in lines and lines[block.id].write)
            lines[block.id] = SharedBlockLine(
                kind="shared_block",
                id=block.id,
                label=block.label,
                description=block.description,
                value=block.value,
                write=write,
            )
    return sorted(lines.values(), key=lambda line: (line.label, line.id))


def _scopes(conn: Connection, tenant: str, user: str, agent: str | None) -> list[tuple[int, str]]:
    scopes = t.scopes.c
    query = select(scopes.id, scopes.agent).where(
        scopes.tenant == tenant,
        scopes.user == user,
        *([scopes.agent == agent] if agent is not None else []),
    )
    return [(row.id, row.agent) for row in conn.execute(query.order_by(scopes.agent))]


def _read_page(
    conn: Connection,
    table: Table,
    scope_id: int,
    after: Any,
    line: Callable[[Row[Any]], ExportLine],
) -> Page:
    query = select(table).where(table.c.scope_id == scope_id).order_by(table.c.id).limit(PAGE)
    rows = conn.execute(query if after is None else query.where(table.c.id > after)).all()
    return [line(row) for row in rows], rows[-1].id if len(rows) == PAGE else DONE


def _blocks(conn: Connection, scope_id: int, after: Any, agent: str) -> Page:
    """Return the blocks ordered by label; a scope has few."""
    rows = conn.execute(
        select(t.blocks)
        .where(t.blocks.c.scope_id == scope_id, t.blocks.c.branch == 0)
        .order_by(t.blocks.c.label)
    )
    return [
        BlockLine(
            **_name_members(agent),
            label=r.label,
            value=r.value,
            description=r.description,
            limit=r.limit,
            read_only=r.read_only,
            version=r.version,
            deleted=r.deleted,
            updated_at=iso(r.updated_at),
        )
        for r in rows
        if not (file_block.LIST.is_list(r) or skill_block.LIST.is_list(r))
    ], DONE


def _versions(conn: Connection, scope_id: int, after: Any, agent: str) -> Page:
    block_versions = t.block_versions.c
    blocks = t.blocks.c
    query = (
        select(t.block_versions, blocks.label, blocks.read_only, blocks.description)
        .join(t.blocks, blocks.id == block_versions.block_id)
        .where(block_versions.scope_id == scope_id, blocks.branch == 0)
        .order_by(block_versions.id)
        .limit(PAGE)
    )
    rows = conn.execute(query if after is None else query.where(block_versions.id > after)).all()
    return [
        VersionLine(
            **_name_members(agent),
            label=r.label,
            version=r.version,
            before=r.before,
            after=r.after,
            actor=r.actor,
            request_id=r.request_id,
            tool_call_id=r.tool_call_id,
            undoes=r.undoes,
            quote=r.quote,
            created_at=iso(r.created_at),
        )
        for r in rows
        if not (file_block.LIST.is_list(r) or skill_block.LIST.is_list(r))
    ], rows[-1].id if len(rows) == PAGE else DONE


def _passages(conn: Connection, scope_id: int, after: Any, agent: str) -> Page:
    return _read_page(
        conn,
        t.passages,
        scope_id,
        after,
        lambda r: PassageLine(
            **_name_members(agent),
            id=r.public_id,
            content=r.content,
            tags=decode(r.tags),
            type=r.type,
            importance=r.importance,
            actor=r.actor,
            created_at=iso(r.created_at),
            forgotten_at=None if r.deleted_at is None else iso(r.deleted_at),
            forgotten_by=r.deleted_by,
            superseded_by=r.superseded_by,
            quote=r.quote,
            speaker=r.speaker,
        ),
    )


def _conversations(conn: Connection, scope_id: int, after: Any, agent: str) -> Page:
    return _read_page(
        conn,
        t.conversations,
        scope_id,
        after,
        lambda r: ConversationLine(
            **_name_members(agent),
            id=r.name,
            explicit=r.explicit,
            resent=r.resent,
            forked_from=r.forked_from,
            head=None if r.head is None else str(r.head),
            created_at=iso(r.created_at),
            updated_at=iso(r.updated_at),
        ),
    )


def _nodes(conn: Connection, scope_id: int, after: Any, agent: str) -> Page:
    """Return each node, followed by its messages."""
    nodes = t.nodes.c
    messages = t.messages.c
    names = t.conversations.c
    query = (
        select(t.nodes, names.name)
        .join(t.conversations, names.id == nodes.conversation)
        .where(nodes.scope_id == scope_id)
        .order_by(nodes.id)
        .limit(PAGE)
    )
    rows = conn.execute(query if after is None else query.where(nodes.id > after)).all()
    messages_by_node: dict[int, list[Row[Any]]] = {}
    for message in conn.execute(
        select(t.messages)
        .where(messages.scope_id == scope_id, messages.node.in_([r.id for r in rows]))
        .order_by(messages.id)
    ):
        messages_by_node.setdefault(message.node, []).append(message)
    lines = [
        line for row in rows for line in _node(conn, row, messages_by_node.get(row.id, ()), agent)
    ]
    return lines, rows[-1].id if len(rows) == PAGE else DONE


def _node(conn: Connection, row: Row[Any], message_rows: Rows, agent: str) -> Iterator[ExportLine]:
    ident = str(row.id)
    yield NodeLine(
        **_name_members(agent),
        conversation=row.name,
        id=ident,
        parent=None if row.parent is None else str(row.parent),
        first=None if row.turn == row.id else str(row.turn),
        state=row.state,
        created_at=iso(row.at),
    )
    for message_row in message_rows:
        yield MessageLine(
            **_name_members(agent),
            conversation=row.name,
            node=ident,
            message=given(conn, message_row),
            id=message_row.public_id,
            source=message_row.source,
            aborted=message_row.aborted,
            created_at=iso(message_row.created_at),
        )
