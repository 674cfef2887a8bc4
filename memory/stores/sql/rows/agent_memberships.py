"""The shared blocks of which an agent is a member: left with its deletion, and joined again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, select

from memory.errors import Conflict, NotFound, ToolError
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import shared_blocks, shared_members
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.shared_blocks import OutsideEdit
from memory.stores.sql.rows.shared_members import MemberName

b = t.shared_blocks.c
m = t.shared_members.c
# The kind of member.
AGENT = "agent"


class HeldMembership(msgspec.Struct, frozen=True, omit_defaults=True):
    """A membership of a deleted agent. with_block: the block was deleted with it."""

    block: str
    label: str
    write: bool
    with_block: bool = False


class LostMembership(msgspec.Struct, frozen=True):
    """A membership that could not be restored, and why."""

    block: str
    label: str
    reason: str


read_held = msgspec.json.Decoder(list[HeldMembership]).decode


def leave_all(
    conn: Connection, who: tuple[str, str], source: EditSource, *, with_blocks: bool
) -> list[HeldMembership]:
    """Take an agent out of its blocks. who: tenant and agent.

    with_blocks: those that were made with an agent, and that only this one has, are deleted.
    """
    tenant, agent = who
    query = (
        select(b.id, b.label, m.write)
        .join_from(t.shared_members, t.shared_blocks, b.id == m.block_id)
        .where(m.tenant == tenant, m.kind == AGENT, m.name == agent, b.deleted.is_(False))
    )
    member = MemberName(AGENT, agent)
    held = []
    for row in conn.execute(query.order_by(b.id)).all():
        if with_blocks:
            is_deleted = shared_members.leave(conn, (tenant, row.id), member, source)
        else:
            is_deleted = False
            shared_members.remove(conn, (tenant, row.id), member)
        held.append(HeldMembership(row.id, row.label, bool(row.write), is_deleted))
    return held


def join_again(
    conn: Connection,
    who: tuple[str, str],
    held: Sequence[HeldMembership],
    source: EditSource,
) -> list[LostMembership]:
    """Make an agent a member of its blocks again; return those that it could not be.

    who: tenant and agent.
    """
    lost = []
    for one in held:
        which = who[0], one.block
        try:
            if one.with_block:
                _restore_block(conn, which, source)
            shared_members.put(conn, which, MemberName(AGENT, who[1]), one.write)
        except NotFound:
            lost.append(LostMembership(one.block, one.label, "the block is deleted"))
        except (Conflict, ToolError) as e:
            lost.append(LostMembership(one.block, one.label, str(e)))
    return lost


def _restore_block(conn: Connection, which: shared_blocks.BlockName, source: EditSource) -> None:
    """Undo a block's deletion, unless somebody did already. Raises NotFound, ToolError."""
    try:
        shared_blocks.find(conn, which)
    except NotFound:
        shared_blocks.undo(conn, which, source, OutsideEdit())
