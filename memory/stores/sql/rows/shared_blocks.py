"""Rows of shared blocks: made, edited, undone, with versions that name their writer.

Each edit holds the block's row, compares its version, and raises the tenant's count of changes, by
which other workers notice it. Who edits several holds them in the order of their ids. A row of a
deleted block stays, so that undo restores it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, tuple_, update

from memory.core.blocks import CoreBlock
from memory.core.shared import Writers, attribute_lines, may_undo
from memory.errors import BlockReadOnly, Conflict, NotFound
from memory.ids import clock, new_id, new_key
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sql_driver import SqlDriver, sql_driver
from memory.stores.sql.engine.statements import execute, insert_with_conflict, run_pure
from memory.stores.sql.rows.blocks import EditSource

b = t.shared_blocks.c
v = t.shared_versions.c
c = t.shared_changes.c
BLOCKS_PER_TENANT = 100_000
# The actor of an erasure; undo does not go behind it.
ERASE = "erase"
encode = msgspec.json.encode
read_writers = msgspec.json.Decoder(Writers).decode
# Tenant and id.
BlockName = tuple[str, str]


class StoredShared(msgspec.Struct, frozen=True):
    """A shared block. writers: of its lines. actor, user, agent: of its newest version."""

    block: CoreBlock
    default_write: bool
    writers: Writers
    outside: int
    created_at: float
    actor: str
    user: str | None
    agent: str | None

    @property
    def id(self) -> str:
        return self.block.id


@dataclass(frozen=True, slots=True)
class OutsideEdit:
    """An edit by people, who begin new epochs. default_write: None leaves it as it is.

    only: the users whose edits it may undo, None for any.
    """

    default_write: bool | None = None
    only: Collection[str] | None = None


Edit = Callable[[CoreBlock], CoreBlock | None]


def block_of(row: Any) -> CoreBlock:
    return CoreBlock(
        row.label,
        row.value,
        row.description,
        row.limit,
        bool(row.read_only),
        row.version,
        row.id,
        row.updated_at,
        shared=True,
    )


def _stored(row: Any) -> StoredShared:
    return StoredShared(
        block_of(row),
        bool(row.default_write),
        read_writers(row.writers),
        row.outside,
        row.created_at,
        row.actor,
        row.user,
        row.agent,
    )


@cache
def _raise_statement(driver: SqlDriver) -> Any:
    statement = insert_with_conflict(driver, t.shared_changes, ("tenant", "changes"))
    return statement.on_conflict_do_update(
        index_elements=["tenant"], set_={"changes": c.changes + 1}
    )


def raise_changes(conn: Connection, tenant: str, *, layered: bool = False) -> None:
    """Outdate what is kept of a tenant's shared blocks, and of who sees them.

    layered: from now on the tenant has teams, projects, or passages of its own.
    """
    execute(conn, _raise_statement(sql_driver(conn)), {"tenant": tenant, "changes": 1})
    if layered:
        unmarked = c.tenant == tenant, c.layered.is_(False)
        conn.execute(update(t.shared_changes).where(*unmarked).values(layered=True))


class TenantChanges(NamedTuple):
    """How often what a tenant shares changed. layered: it has layers beside shared blocks."""

    changes: int
    layered: bool


def list_changes(conn: Connection) -> dict[str, TenantChanges]:
    """Return the counts of changes of the tenants that ever shared anything."""
    rows = conn.execute(select(c.tenant, c.changes, c.layered))
    return {row.tenant: TenantChanges(row.changes, bool(row.layered)) for row in rows}


def leave_all(conn: Connection, tenant: str, kind: str, name: str) -> int:
    """Take a member that is there no more out of every block; return of how many."""
    shared_members = t.shared_members.c
    is_member = (
        shared_members.tenant == tenant,
        shared_members.kind == kind,
        shared_members.name == name,
    )
    return conn.execute(delete(t.shared_members).where(*is_member)).rowcount


def find(conn: Connection, block_name: BlockName) -> StoredShared:
    """Return a block. Raises NotFound."""
    row = _row(conn, block_name)
    if row is None or row.deleted:
        raise _not_found(block_name)
    return _stored(row)


def _not_found(block_name: BlockName) -> NotFound:
    return NotFound(f"there is no shared block {block_name[1]!r:.80}")


def _row(conn: Connection, block_name: BlockName, *, held: bool = False) -> Row[Any] | None:
    query = select(t.shared_blocks).where(b.tenant == block_name[0], b.id == block_name[1])
    return conn.execute(query.with_for_update() if held else query).first()


def page(
    conn: Connection,
    tenant: str,
    which: Sequence[ColumnElement[bool]],
    after: tuple[str, str] | None,
    limit: int,
) -> list[StoredShared]:
    """Return blocks by label and id, behind a place. which: more conditions."""
    query = select(t.shared_blocks).where(b.tenant == tenant, b.deleted.is_(False), *which)
    if after is not None:
        query = query.where(tuple_(b.label, b.id) > after)
    return [_stored(r) for r in conn.execute(query.order_by(b.label, b.id).limit(limit))]


class BlockWalk(NamedTuple):
    """A way through blocks. after: the id behind which it begins, "" for the first."""

    after: str = ""
    newest: bool = False


def page_by_time(
    conn: Connection,
    tenant: str,
    clauses: Sequence[ColumnElement[bool]],
    walk: BlockWalk,
    limit: int,
) -> list[StoredShared]:
    """Return blocks in the order in which they were made; none behind an id that never was."""
    query = select(t.shared_blocks).where(b.tenant == tenant, b.deleted.is_(False), *clauses)
    if walk.after:
        begin = conn.execute(
            select(b.created_at, b.id).where(b.tenant == tenant, b.id == walk.after)
        ).first()
        if begin is None:
            return []
        place = tuple_(b.created_at, b.id)
        query = query.where(place < tuple(begin) if walk.newest else place > tuple(begin))
    order = [column.desc() if walk.newest else column for column in (b.created_at, b.id)]
    return [_stored(r) for r in conn.execute(query.order_by(*order).limit(limit))]


def is_made_with_agent(conn: Connection, ident: str) -> bool:
    """Tell whether a block was made together with an agent."""
    first_version = select(v.agent).where(v.block_id == ident, v.version == 1)
    return conn.execute(first_version).scalar() is not None


def create(
    conn: Connection, tenant: str, new_block: CoreBlock, source: EditSource, *, default_write: bool
) -> StoredShared:
    """Store a new block. Raises Conflict if there are too many."""
    count = select(func.count()).where(b.tenant == tenant, b.deleted.is_(False))
    if (conn.execute(count).scalar() or 0) >= BLOCKS_PER_TENANT:
        raise Conflict(
            f"there are {BLOCKS_PER_TENANT} shared blocks, and no more are possible: delete one "
            "first"
        )
    now = clock.now()
    ident = new_id("block")
    writers = attribute_lines(("", []), new_block.value, source.user)
    conn.execute(
        insert(t.shared_blocks).values(
            id=ident,
            tenant=tenant,
            label=new_block.label,
            description=new_block.description,
            value=new_block.value,
            writers=encode(writers).decode(),
            limit=new_block.limit,
            read_only=new_block.read_only,
            default_write=default_write,
            version=1,
            created_at=now,
            updated_at=now,
            **_by(source),
        )
    )
    version_values = {
        "block_id": ident,
        "version": 1,
        "before": None,
        "after": new_block.value,
        "writers": None,
    }
    _add_version(conn, version_values, source, now)
    raise_changes(conn, tenant)
    return find(conn, (tenant, ident))


def _by(source: EditSource) -> dict[str, str | None]:
    return {"actor": source.actor, "user": source.user, "agent": source.agent}


def _add_version(
    conn: Connection, version_values: Mapping[str, Any], source: EditSource, now: float
) -> None:
    """Write a version row. version_values: its block, number and values."""
    conn.execute(
        insert(t.shared_versions).values(
            id=new_key(),
            **version_values,
            **_by(source),
            request_id=source.request_id,
            tool_call_id=source.tool_call_id,
            created_at=now,
        )
    )


def edit(
    conn: Connection,
    block_name: BlockName,
    editor: Edit,
    source: EditSource,
    outside_edit: OutsideEdit | None = None,
) -> StoredShared | None:
    """Apply `editor` to a block (returning None deletes it), with a version row.

    outside_edit: None for an edit by a model. An edit that changes nothing writes nothing. Returns
    the block as it is now. Raises NotFound, Conflict, and what `editor` raises.
    """
    row = _row(conn, block_name, held=True)
    if row is None or row.deleted:
        raise _not_found(block_name)
    old_block = block_of(row)
    if source.expect is not None and source.expect != old_block.version:
        raise Conflict(
            f"the shared block {block_name[1]!r} is at version {old_block.version}, not "
            f"{source.expect}: "
            "read it again and repeat the edit"
        )
    new_block = run_pure(conn, editor, old_block, len(old_block.value))
    keeps = outside_edit is None or outside_edit.default_write in (None, bool(row.default_write))
    if new_block == old_block and keeps:
        return _stored(row)
    return _write(conn, row, new_block, source, outside_edit)


def _write(
    conn: Connection,
    row: Row[Any],
    after: CoreBlock | None,
    source: EditSource,
    outside_edit: OutsideEdit | None,
) -> StoredShared | None:
    """Write an edit of a row that is held, and its version. Raises Conflict."""
    writers: Writers = []
    if after is not None:
        writers = attribute_lines((row.value, read_writers(row.writers)), after.value, source.user)
    block_change = _BlockChange(row, after, writers)
    return block_change.write(conn, source, outside_edit)


@dataclass(frozen=True, slots=True)
class _BlockChange:
    """A change of a row. after: None to delete it. undoes: the version that this undoes."""

    row: Row[Any]
    after: CoreBlock | None
    writers: Writers
    undoes: int | None = None

    def write(
        self, conn: Connection, source: EditSource, outside_edit: OutsideEdit | None
    ) -> StoredShared | None:
        """Write the row and its version. Raises Conflict."""
        row = self.row
        new_block = self.after
        now = clock.now()
        version = row.version + 1
        shown_block = new_block or block_of(row)
        values = {
            "description": shown_block.description,
            "value": new_block.value if new_block else "",
            "writers": encode(self.writers).decode(),
            "limit": shown_block.limit,
            "read_only": shown_block.read_only,
            "version": version,
            "deleted": new_block is None,
            "updated_at": now,
            **_by(source),
        }
        if outside_edit is not None:
            values["outside"] = row.outside + 1
            if outside_edit.default_write is not None:
                values["default_write"] = outside_edit.default_write
        where = b.id == row.id, b.version == row.version
        if not conn.execute(update(t.shared_blocks).where(*where).values(values)).rowcount:
            raise Conflict(
                f"the shared block {row.id!r} changed meanwhile: read it again and repeat the edit"
            )
        version_values = {
            "block_id": row.id,
            "version": version,
            "before": None if row.deleted else row.value,
            "after": new_block.value if new_block else None,
            "writers": row.writers,
            "undoes": self.undoes,
        }
        _add_version(conn, version_values, source, now)
        raise_changes(conn, row.tenant)
        return find(conn, (row.tenant, row.id)) if new_block is not None else None


def versions(
    conn: Connection, block_name: BlockName, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return versions, newest first. Raises NotFound."""
    if _row(conn, block_name) is None:
        raise _not_found(block_name)
    query = select(t.shared_versions).where(v.block_id == block_name[1])
    if before is not None:
        query = query.where(v.version < before)
    names = (
        *("version", "before", "after", "actor", "user", "agent"),
        *("request_id", "tool_call_id", "created_at"),
    )
    rows = conn.execute(query.order_by(v.version.desc()).limit(limit))
    return [{name: getattr(row, name) for name in names} for row in rows]


def undo(
    conn: Connection, block_name: BlockName, source: EditSource, outside_edit: OutsideEdit
) -> StoredShared | None:
    """Undo the newest edit of the value that is not undone yet, as a new version.

    Returns the block; None if that edit had created it. Raises NotFound if none is left,
    BlockReadOnly for an edit of somebody else, and for a block that is read-only.
    """
    row = _row(conn, block_name, held=True)
    if row is None:
        raise _not_found(block_name)
    last_edit = newest_edit(conn, row.id)
    if last_edit is None:
        raise NotFound(f"nothing is left to undo in the shared block {block_name[1]!r}")
    if not may_undo(last_edit.user, outside_edit.only):
        raise BlockReadOnly(
            f"The newest edit of the shared block {block_name[1]!r} is somebody else's: "
            "it cannot be undone here."
        )
    new_block = None
    if last_edit.before is not None:
        new_block = replace(block_of(row), value=last_edit.before)
    if row.read_only or (new_block is None and row.deleted):
        raise BlockReadOnly(f"The shared block {block_name[1]!r} is read-only: nothing is undone.")
    if new_block is not None and last_edit.writers:
        writers = read_writers(last_edit.writers)
    else:
        writers = []
    return _BlockChange(row, new_block, writers, last_edit.version).write(
        conn, source, outside_edit
    )


def newest_edit(conn: Connection, ident: str) -> Row[Any] | None:
    """Return the newest edit of a block's value that can be undone."""
    undone = select(v.undoes).where(v.block_id == ident, v.undoes.is_not(None))
    erased_version = select(func.max(v.version)).where(v.block_id == ident, v.actor == ERASE)
    query = select(t.shared_versions).where(
        v.block_id == ident,
        v.undoes.is_(None),
        v.version.not_in(undone),
        v.version > func.coalesce(erased_version.scalar_subquery(), 0),
        v.before.is_distinct_from(v.after),
    )
    return conn.execute(query.order_by(v.version.desc()).limit(1)).first()
