"""Rows of who sees a shared block, and the blocks that one memory sees."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from memory.core.blocks import CoreBlock
from memory.core.layers import PROJECT, TEAM
from memory.core.shared import Membership, SeenBlock
from memory.errors import Conflict, NotFound, TooManySharers
from memory.ids import clock
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import add_rows, execute
from memory.stores.sql.rows import layers, shared_blocks
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.layers import EVERYONE
from memory.stores.sql.rows.shared_blocks import BlockName, OutsideEdit, StoredShared, block_of

b = t.shared_blocks.c
m = t.shared_members.c
# Of a block.
MOST_MEMBERS = 10_000
# Of one member.
MOST_BLOCKS = 64
FULL = (
    f"this member sees {MOST_BLOCKS} shared blocks, and no more are possible: remove it from one "
    "first"
)
# Memberships that are looked at for one memory.
ROWS = 1024


class MemberName(NamedTuple):
    """A member. kind: see `shared.RANKS`. agent: of a user, "" for all their agents."""

    kind: str
    name: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A membership. joined_at: Unix time."""

    member: MemberName
    write: bool
    joined_at: float


_MINE = or_(
    and_(
        m.kind == "user",
        m.name == bindparam("user"),
        or_(m.agent == "", m.agent == bindparam("agent")),
    ),
    and_(m.kind == "agent", m.name == bindparam("agent")),
    and_(m.kind == TEAM, layers.is_in(TEAM, m.name)),
    and_(m.kind == PROJECT, layers.is_in(PROJECT, m.name)),
    and_(m.kind == EVERYONE, m.name == "", layers.reads_everyone()),
)
# Built once: it runs in turns.
SEEN = (
    select(
        m.kind,
        m.agent.label("member_agent"),
        m.name.label("member_name"),
        m.write,
        t.shared_blocks,
    )
    .join_from(t.shared_members, t.shared_blocks, b.id == m.block_id)
    .where(m.tenant == bindparam("tenant"), b.deleted.is_(False), _MINE)
    .order_by(b.id)
    .limit(ROWS)
)
HELD = SEEN.with_for_update(of=t.shared_blocks)


def seen_values(scope: Scope) -> dict[str, Any]:
    """Return the parameters of `SEEN` for a scope."""
    return {**layers.viewer_values(scope), "agent": scope.agent_name}


def list_seen(conn: Connection, scope: Scope, *, held: bool = False) -> list[SeenBlock]:
    """Return the blocks of which a named scope is a member. held: keep others from editing them."""
    rows = execute(conn, HELD if held else SEEN, seen_values(scope))
    seen_blocks = [_merge(list(group)) for _, group in groupby(rows, lambda row: row.id)]
    if not scope.is_home:
        return seen_blocks
    # It is a member by its name alone, so all of them are attached to it.
    return [replace(seen_block, attached=True) for seen_block in seen_blocks]


def _merge(rows: Sequence[Any]) -> SeenBlock:
    first_row = rows[0]
    memberships = [
        Membership(row.kind, row.member_agent, bool(row.write), row.member_name) for row in rows
    ]
    return SeenBlock.of(block_of(first_row), memberships, first_row.created_at, first_row.outside)


def _where(block_name: BlockName, member: MemberName) -> tuple[ColumnElement[bool], ...]:
    is_named = m.kind == member.kind, m.name == member.name, m.agent == member.agent
    return m.tenant == block_name[0], m.block_id == block_name[1], *is_named


def put(
    conn: Connection, block_name: BlockName, member: MemberName, write: bool | None
) -> StoredMember:
    """Let a member see a block. write: whether it may write, None for what the block says.

    Raises NotFound, TooManySharers, Conflict.
    """
    block = shared_blocks.find(conn, block_name)
    if write is None:
        may_write = block.default_write
    else:
        may_write = write
    if not conn.execute(
        update(t.shared_members).where(*_where(block_name, member)).values(write=may_write)
    ).rowcount:
        _check_space(conn, block_name, member)
        conn.execute(
            insert(t.shared_members).values(
                block_id=block_name[1],
                tenant=block_name[0],
                **member._asdict(),
                write=may_write,
                joined_at=clock.now(),
            )
        )
    shared_blocks.raise_changes(conn, block_name[0])
    return find(conn, block_name, member)


def add_all(
    conn: Connection,
    block: StoredShared,
    tenant: str,
    new_members: Sequence[tuple[MemberName, bool | None]],
) -> None:
    """Give a new block its members, the last word on each. Raises Conflict."""
    members = {
        member: block.default_write if write is None else write for member, write in new_members
    }
    place = m.kind, m.name, m.agent
    full_places = select(*place).where(m.tenant == tenant).group_by(*place)
    rows = conn.execute(full_places.having(func.count() >= MOST_BLOCKS))
    if not members.keys().isdisjoint(MemberName(*row) for row in rows):
        raise Conflict(FULL)
    now = clock.now()
    member_rows = [
        {
            "block_id": block.id,
            "tenant": tenant,
            **member._asdict(),
            "write": write,
            "joined_at": now,
        }
        for member, write in members.items()
    ]
    add_rows(conn, t.shared_members, member_rows)


def _check_space(conn: Connection, block_name: BlockName, member: MemberName) -> None:
    """Raise TooManySharers or Conflict if no membership more is possible."""
    members = select(func.count()).where(m.tenant == block_name[0], m.block_id == block_name[1])
    if (conn.execute(members).scalar() or 0) >= MOST_MEMBERS:
        raise TooManySharers(
            f"the shared block {block_name[1]!r} has {MOST_MEMBERS} members, "
            "and no more are possible"
        )
    is_named = m.kind == member.kind, m.name == member.name, m.agent == member.agent
    # Members of a deleted block stay, since undo restores it.
    is_alive = m.block_id == b.id, b.deleted.is_(False)
    blocks = select(func.count()).where(m.tenant == block_name[0], *is_named, *is_alive)
    if (conn.execute(blocks).scalar() or 0) >= MOST_BLOCKS:
        raise Conflict(FULL)


def find(conn: Connection, block_name: BlockName, member: MemberName) -> StoredMember:
    """Return a membership. Raises NotFound."""
    row = conn.execute(select(t.shared_members).where(*_where(block_name, member))).first()
    if row is None:
        raise NotFound(f"the shared block {block_name[1]!r} has no such member")
    return _stored(row)


def remove(conn: Connection, block_name: BlockName, member: MemberName) -> None:
    """Take a membership away. Raises NotFound."""
    shared_blocks.find(conn, block_name)
    if not conn.execute(delete(t.shared_members).where(*_where(block_name, member))).rowcount:
        raise NotFound(f"the shared block {block_name[1]!r} has no such member")
    shared_blocks.raise_changes(conn, block_name[0])


def list_blocks(conn: Connection, tenant: str, member: MemberName) -> list[CoreBlock]:
    """Return the blocks of which something is a member itself."""
    query = (
        select(t.shared_blocks)
        .join_from(t.shared_members, t.shared_blocks, b.id == m.block_id)
        .where(m.tenant == tenant, b.deleted.is_(False), m.kind == member.kind)
        .where(m.name == member.name, m.agent == member.agent)
    )
    return [block_of(row) for row in conn.execute(query.order_by(b.id).limit(ROWS))]


def leave(conn: Connection, block_name: BlockName, member: MemberName, source: EditSource) -> bool:
    """Take a membership away, and delete a block that was made with an agent and has no other.

    Tells whether it is deleted. A membership that is gone already is no fault.
    """
    other_members = [
        stored_member
        for stored_member in page(conn, block_name, None, 2)
        if stored_member.member != member
    ]
    if not other_members and shared_blocks.is_made_with_agent(conn, block_name[1]):
        shared_blocks.edit(conn, block_name, lambda _: None, source, OutsideEdit())
        return True
    with suppress(NotFound):
        remove(conn, block_name, member)
    return False


def page(
    conn: Connection, which: BlockName, after: MemberName | None, limit: int
) -> list[StoredMember]:
    """Return the members of a block in the order of their names, behind a place."""
    place = m.kind, m.name, m.agent
    query = select(t.shared_members).where(m.tenant == which[0], m.block_id == which[1])
    if after is not None:
        query = query.where(tuple_(*place) > tuple(after))
    return [_stored(row) for row in conn.execute(query.order_by(*place).limit(limit))]


def list_of(
    conn: Connection, tenant: str, blocks: Sequence[str], max_members: int
) -> dict[str, list[StoredMember]]:
    """Return the first members of each block, by its id."""
    members_by_block: dict[str, list[StoredMember]] = {ident: [] for ident in blocks}
    for ident in blocks:
        members_by_block[ident] = page(conn, (tenant, ident), None, max_members)
    return members_by_block


def _stored(row: Any) -> StoredMember:
    member = MemberName(row.kind, row.name, row.agent)
    return StoredMember(member, bool(row.write), row.joined_at)


def seen_by(users: Sequence[str], agent: str | None = None) -> ColumnElement[bool]:
    """Return the condition for blocks that users see. agent: with it; None for any of theirs."""
    scopes = t.scopes.c
    if agent is None:
        of_user = and_(m.kind == "user", m.name.in_(users))
        used_agents = select(scopes.agent).where(scopes.tenant == m.tenant, scopes.user.in_(users))
        of_agent = and_(m.kind == "agent", m.name.in_(used_agents))
    else:
        of_user = and_(m.kind == "user", m.name.in_(users), m.agent.in_(["", agent]))
        of_agent = and_(m.kind == "agent", m.name == agent)
    in_circles = [layers.is_of(kind, m, users) for kind in (TEAM, PROJECT)]
    return b.id.in_(
        select(m.block_id).where(or_(of_user, of_agent, *in_circles, m.kind == EVERYONE))
    )


def of_member(kind: str, name: str) -> ColumnElement[bool]:
    """Return the condition for blocks of which something is a member itself."""
    return b.id.in_(select(m.block_id).where(m.kind == kind, m.name == name))


def list_access(conn: Connection, block_name: BlockName, users: Sequence[str]) -> dict[str, bool]:
    """Return which of these users see a block, and whether each may write in it."""
    scopes = t.scopes.c
    is_here = m.tenant == block_name[0], m.block_id == block_name[1]
    by_name = select(m.name, m.write).where(*is_here, m.kind == "user", m.name.in_(users))
    by_agent = (
        select(scopes.user, m.write)
        .join(t.scopes, (scopes.tenant == m.tenant) & (scopes.agent == m.name))
        .where(*is_here, m.kind == "agent", scopes.user.in_(users))
    )
    access_by_user: dict[str, bool] = {}
    for name, write in (*conn.execute(by_name), *conn.execute(by_agent)):
        access_by_user[name] = access_by_user.get(name, False) or bool(write)
    for user in users:
        circles = [layers.is_of(kind, m, [user]) for kind in (TEAM, PROJECT)]
        for (write,) in conn.execute(select(m.write).where(*is_here, or_(*circles))):
            access_by_user[user] = access_by_user.get(user, False) or bool(write)
    everyone_row = conn.execute(select(m.write).where(*is_here, m.kind == EVERYONE)).first()
    if everyone_row is not None:
        access_by_user = {
            name: access_by_user.get(name, False) or bool(everyone_row.write) for name in users
        }
    return access_by_user
