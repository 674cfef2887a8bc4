"""Core memory rows: edits are pure functions applied in the write transaction, with version
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from memory.core.block_space import length_of, space_of
from memory.core.blocks import CoreBlock, rewrite_value
from memory.errors import Conflict, NotFound, UnknownBlock
from memory.ids import clock, new_id
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.statements import add_row, execute, run_pure
from memory.stores.sql.rows import scopes

b, v = t.blocks.c, t.block_versions.c
# Built once: they run in a turn.
_OF_SHELF = b.scope_id == bindparam("scope"), b.branch == bindparam("branch")
SHELF = select(t.blocks).where(*_OF_SHELF)
ONE = SHELF.where(b.label == bindparam("name"))
LENGTHS = select(
    b.label, b.deleted, (func.length(b.value) + func.length(b.description)).label("size")
).where(*_OF_SHELF)
CHANGED = (
    "label",
    "description",
    "value",
    "limit",
    "read_only",
    "version",
    "deleted",
    "updated_at",
)
REPLACE = (
    update(t.blocks)
    .where(b.id == bindparam("ident"), b.version == bindparam("former"))
    .values({name: bindparam(f"new_{name}") for name in CHANGED})
    .returning(b.id)
)


@dataclass(frozen=True, slots=True)
class EditSource:
    """Who makes a change.

    actor: model, api, cli, import, undo, reflection and so on; with ids, if any. expect: the
    version they saw, None for any. quote: the words of the user that it is taken from. user, agent:
    whose request it is, of a shared block.
    """

    actor: str
    request_id: str | None = None
    tool_call_id: str | None = None
    expect: int | None = None
    quote: str | None = None
    user: str | None = None
    agent: str | None = None


class ReadsBlocks(Protocol):
    """Other blocks of a user, see `general_memory`."""

    @property
    def write(self) -> bool: ...

    def read(self, conn: Connection) -> dict[str, CoreBlock]: ...

    def edit_shelf(self, conn: Connection) -> BlockSet: ...


class BlockSet(msgspec.Struct, frozen=True):
    """The blocks of a scope, or of one branch of an unnamed user's conversation.

    defaults: the operator's blocks, valid until a row replaces them. parent: the branch this one is
    copied from on its first edit. shared: whose shared blocks are shown over them, None for none.
    general: in a project the blocks outside of it, which are shown below them.
    """

    scope_id: int | None
    defaults: Mapping[str, CoreBlock]
    branch: int = 0
    parent: int = 0
    shared: Scope | None = None
    general: ReadsBlocks | None = None


def _block(row: Row[Any]) -> CoreBlock:
    return CoreBlock(
        row.label,
        row.value,
        row.description,
        row.limit,
        row.read_only,
        row.version,
        row.id,
        row.updated_at,
    )


def _rows(conn: Connection, scope_id: int, branch: int) -> list[Row[Any]]:
    return list(execute(conn, SHELF, {"scope": scope_id, "branch": branch}))


def all_of(conn: Connection, shelf: BlockSet) -> dict[str, CoreBlock]:
    """Return blocks by label: the operator's defaults, replaced by what is stored."""
    out = dict(shelf.defaults)
    if shelf.scope_id is not None:
        rows = _rows(conn, shelf.scope_id, shelf.branch)
        if not rows and shelf.parent != shelf.branch:
            rows = _rows(conn, shelf.scope_id, shelf.parent)
        for row in rows:
            out.pop(row.label, None)
            if not row.deleted:
                out[row.label] = _operators(_block(row), shelf.defaults)
    return out


def check_space(
    conn: Connection, shelf: BlockSet, before: CoreBlock | None, after: CoreBlock | None
) -> None:
    """Check that a user's blocks may grow so. Raises TooManyBlocks, BlockSpaceFull."""
    if after is None or (before is not None and length_of(after) <= length_of(before)):
        return
    lengths = {label: length_of(block) for label, block in shelf.defaults.items()}
    for row in execute(conn, LENGTHS, {"scope": shelf.scope_id, "branch": shelf.branch}):
        lengths.pop(row.label, None)
        if not row.deleted:
            lengths[row.label] = row.size
    space_of(shelf.defaults).check(lengths, (before, after))


def _operators(block: CoreBlock, defaults: Mapping[str, CoreBlock]) -> CoreBlock:
    """Return the block with `read_only` as the operator set it, for an operator's block."""
    mine = defaults.get(block.label)
    return (
        replace(block, read_only=mine.read_only)
        if mine and mine.read_only != block.read_only
        else block
    )


def _row(conn: Connection, shelf: BlockSet, label: str) -> Row[Any] | None:
    which = {"scope": shelf.scope_id, "branch": shelf.branch, "name": label}
    row: Row[Any] | None = execute(conn, ONE, which).first()
    return row


def _branch_off(conn: Connection, shelf: BlockSet) -> None:
    """Copy the parent's blocks to the branch on its first write."""
    if shelf.branch == shelf.parent or _rows(conn, shelf.scope_id or 0, shelf.branch):
        return
    for row in conn.execute(SHELF, {"scope": shelf.scope_id or 0, "branch": shelf.parent}).all():
        conn.execute(
            insert(t.blocks).values(
                **{**row._mapping, "id": new_id("block"), "branch": shelf.branch}
            )
        )


Edit = Callable[[CoreBlock | None], CoreBlock | None]


def edit(
    conn: Connection, shelf: BlockSet, label: str, how: Edit, source: EditSource
) -> CoreBlock | None:
    """Apply `how` to the block (None: absent; returning None deletes it), with a version row.

    Raises Conflict if the version is not the one that the source expects. An edit that changes
    nothing writes nothing. shelf.scope_id must exist. Returns the block as it is now.
    """
    _branch_off(conn, shelf)
    row = _row(conn, shelf, label)
    stored = None if row is None or row.deleted else _operators(_block(row), shelf.defaults)
    before = stored if row is not None else shelf.defaults.get(label)
    version = before.version if before else 0
    if source.expect is not None and source.expect != version:
        raise Conflict(
            f"the block {label!r} is at version {version}, not {source.expect}: read it again "
            "and repeat the edit"
        )
    after = run_pure(conn, how, before, len(before.value) if before else 0)
    if after == before:
        return before
    return _write(conn, shelf, row, BlockChange(before, after), source)


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block before and after (None: absent). undoes: the version that this undoes."""

    before: CoreBlock | None
    after: CoreBlock | None
    undoes: int | None = None


def _write(
    conn: Connection, shelf: BlockSet, row: Row[Any] | None, change: BlockChange, source: EditSource
) -> CoreBlock | None:
    """Write the block and its version row. Raises Conflict, TooManyBlocks, BlockSpaceFull."""
    before, after = change.before, change.after
    check_space(conn, shelf, before, after)
    now = clock.now()
    version = (row.version if row else 0) + 1
    ident = row.id if row else new_id("block")
    kept = after or before
    assert kept is not None  # noqa: S101 - one of the two exists
    values = {
        "label": kept.label,
        "description": kept.description,
        "value": after.value if after else "",
        "limit": kept.limit,
        "read_only": kept.read_only,
        "version": version,
        "deleted": after is None,
        "updated_at": now,
    }
    if row is None:
        where = {"scope_id": shelf.scope_id, "branch": shelf.branch}
        add_row(conn, t.blocks, id=ident, **where, **values)
    else:
        changed = {f"new_{name}": value for name, value in values.items()}
        which = {"ident": ident, "former": row.version}
        if execute(conn, REPLACE, {**which, **changed}).first() is None:
            raise Conflict(
                f"the block {kept.label!r} changed meanwhile: read it again and repeat the edit"
            )
    scopes.raise_version(conn, shelf.scope_id or 0)
    of = {"scope_id": shelf.scope_id, "block_id": ident, "version": version, "created_at": now}
    _add_version(conn, change, source, of)
    return replace(after, version=version, id=ident, updated_at=now) if after else None


def _add_version(
    conn: Connection, change: BlockChange, source: EditSource, of: dict[str, Any]
) -> None:
    """Write the version row of a change. of: the block and its version."""
    add_row(
        conn,
        t.block_versions,
        **of,
        before=change.before.value if change.before else None,
        after=change.after.value if change.after else None,
        actor=source.actor,
        request_id=source.request_id,
        tool_call_id=source.tool_call_id,
        undoes=change.undoes,
        quote=source.quote,
    )


def versions(
    conn: Connection, shelf: BlockSet, label: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return versions, newest first.

    Raises NotFound for a block that was never edited and is not a default.
    """
    row = _row(conn, shelf, label)
    if row is None:
        if label in shelf.defaults:
            return []
        raise NotFound(f"there is no block {label!r}")
    query = (
        select(t.block_versions).where(v.block_id == row.id).order_by(v.version.desc()).limit(limit)
    )
    if before is not None:
        query = query.where(v.version < before)
    names = (
        *("version", "before", "after", "actor", "request_id", "tool_call_id", "created_at"),
        "quote",
    )
    return [{n: getattr(r, n) for n in names} for r in conn.execute(query)]


def undo(conn: Connection, shelf: BlockSet, label: str, source: EditSource) -> CoreBlock | None:
    """Undo the newest edit of the value that is not undone yet, as a new version.

    Returns the block; None if that edit had created it. Raises NotFound if none is left,
    BlockReadOnly, and BlockFull if the limit is now below the value to restore.
    """
    row = _row(conn, shelf, label)
    if row is None:
        raise NotFound(f"there is no block {label!r} with a history")
    undone = select(v.undoes).where(v.block_id == row.id, v.undoes.is_not(None))
    edits = select(t.block_versions).where(
        v.block_id == row.id,
        v.undoes.is_(None),
        v.version.not_in(undone),
        v.before.is_distinct_from(v.after),
    )
    last = conn.execute(edits.order_by(v.version.desc()).limit(1)).first()
    if last is None:
        raise NotFound(f"nothing is left to undo in {label!r}")
    now = None if row.deleted else _operators(_block(row), shelf.defaults)
    if now is not None and now.read_only:
        rewrite_value(now, last.before or "")
    after = None if last.before is None else replace(_block(row), value=last.before)
    if after is not None:
        rewrite_value(replace(after, read_only=False), after.value)
    elif now is None:
        raise NotFound(f"nothing is left to undo in {label!r}")
    return _write(conn, shelf, row, BlockChange(now, after, last.version), source)


def list_labels(blocks: Mapping[str, CoreBlock]) -> str:
    return ", ".join(sorted(blocks)) or "none"


def require_block(
    block: CoreBlock | None, label: str, blocks: Mapping[str, CoreBlock]
) -> CoreBlock:
    """Return the block. Raises UnknownBlock, listing the existing ones."""
    if block is None:
        raise UnknownBlock(
            f"There is no memory block {label!r:.200}. The blocks are: {list_labels(blocks)}."
        )
    return block


def history(conn: Connection, scope_ids: Sequence[int], limit: int) -> list[dict[str, Any]]:
    """Return the newest versions of all blocks of these scopes, with labels."""
    query = (
        select(t.block_versions, b.label)
        .join(t.blocks, b.id == v.block_id)
        .where(v.scope_id.in_(scope_ids))
        .order_by(v.id.desc())
        .limit(limit)
    )
    return [dict(r._mapping) for r in conn.execute(query)]


def count(conn: Connection, scope_id: int) -> int:
    return int(
        conn.execute(
            select(func.count())
            .select_from(t.blocks)
            .where(b.scope_id == scope_id, b.deleted.is_(False))
        ).scalar()
        or 0
    )
