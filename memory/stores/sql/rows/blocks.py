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

b = t.blocks.c
v = t.block_versions.c
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


def all_of(conn: Connection, block_set: BlockSet) -> dict[str, CoreBlock]:
    """Return blocks by label: the operator's defaults, replaced by what is stored."""
    blocks_by_label = dict(block_set.defaults)
    if block_set.scope_id is not None:
        rows = _rows(conn, block_set.scope_id, block_set.branch)
        if not rows and block_set.parent != block_set.branch:
            rows = _rows(conn, block_set.scope_id, block_set.parent)
        for row in rows:
            blocks_by_label.pop(row.label, None)
            if not row.deleted:
                blocks_by_label[row.label] = _operators(_block(row), block_set.defaults)
    return blocks_by_label


def check_space(
    conn: Connection, block_set: BlockSet, before: CoreBlock | None, after: CoreBlock | None
) -> None:
    """Check that a user's blocks may grow so. Raises TooManyBlocks, BlockSpaceFull."""
    if after is None or (before is not None and length_of(after) <= length_of(before)):
        return
    lengths = {label: length_of(block) for label, block in block_set.defaults.items()}
    for row in execute(conn, LENGTHS, {"scope": block_set.scope_id, "branch": block_set.branch}):
        lengths.pop(row.label, None)
        if not row.deleted:
            lengths[row.label] = row.size
    space_of(block_set.defaults).check(lengths, (before, after))


def _operators(block: CoreBlock, defaults: Mapping[str, CoreBlock]) -> CoreBlock:
    """Return the block with `read_only` as the operator set it, for an operator's block."""
    default_block = defaults.get(block.label)
    if default_block and default_block.read_only != block.read_only:
        return replace(block, read_only=default_block.read_only)
    return block


def _row(conn: Connection, block_set: BlockSet, label: str) -> Row[Any] | None:
    parameters = {"scope": block_set.scope_id, "branch": block_set.branch, "name": label}
    row: Row[Any] | None = execute(conn, ONE, parameters).first()
    return row


def _branch_off(conn: Connection, block_set: BlockSet) -> None:
    """Copy the parent's blocks to the branch on its first write."""
    if block_set.branch == block_set.parent or _rows(
        conn, block_set.scope_id or 0, block_set.branch
    ):
        return
    for row in conn.execute(
        SHELF, {"scope": block_set.scope_id or 0, "branch": block_set.parent}
    ).all():
        conn.execute(
            insert(t.blocks).values(
                **{**row._mapping, "id": new_id("block"), "branch": block_set.branch}
            )
        )


Edit = Callable[[CoreBlock | None], CoreBlock | None]


def edit(
    conn: Connection, block_set: BlockSet, label: str, editor: Edit, source: EditSource
) -> CoreBlock | None:
    """Apply `editor` to the block (None: absent; returning None deletes it), with a version row.

    Raises Conflict if the version is not the one that the source expects. An edit that changes
    nothing writes nothing. block_set.scope_id must exist. Returns the block as it is now.
    """
    _branch_off(conn, block_set)
    row = _row(conn, block_set, label)
    stored_block = (
        None if row is None or row.deleted else _operators(_block(row), block_set.defaults)
    )
    if row is not None:
        old_block = stored_block
    else:
        old_block = block_set.defaults.get(label)
    version = old_block.version if old_block else 0
    if source.expect is not None and source.expect != version:
        raise Conflict(
            f"the block {label!r} is at version {version}, not {source.expect}: read it again "
            "and repeat the edit"
        )
    new_block = run_pure(conn, editor, old_block, len(old_block.value) if old_block else 0)
    if new_block == old_block:
        return old_block
    return _write(conn, block_set, row, BlockChange(old_block, new_block), source)


@dataclass(frozen=True, slots=True)
class BlockChange:
    """A block before and after (None: absent). undoes: the version that this undoes."""

    before: CoreBlock | None
    after: CoreBlock | None
    undoes: int | None = None


def _write(
    conn: Connection,
    block_set: BlockSet,
    row: Row[Any] | None,
    change: BlockChange,
    source: EditSource,
) -> CoreBlock | None:
    """Write the block and its version row. Raises Conflict, TooManyBlocks, BlockSpaceFull."""
    old_block, new_block = change.before, change.after
    check_space(conn, block_set, old_block, new_block)
    now = clock.now()
    version = (row.version if row else 0) + 1
    ident = row.id if row else new_id("block")
    shown_block = new_block or old_block
    assert shown_block is not None  # noqa: S101 - one of the two exists
    values = {
        "label": shown_block.label,
        "description": shown_block.description,
        "value": new_block.value if new_block else "",
        "limit": shown_block.limit,
        "read_only": shown_block.read_only,
        "version": version,
        "deleted": new_block is None,
        "updated_at": now,
    }
    if row is None:
        where = {"scope_id": block_set.scope_id, "branch": block_set.branch}
        add_row(conn, t.blocks, id=ident, **where, **values)
    else:
        new_values = {f"new_{name}": value for name, value in values.items()}
        row_key = {"ident": ident, "former": row.version}
        if execute(conn, REPLACE, {**row_key, **new_values}).first() is None:
            raise Conflict(
                f"the block {shown_block.label!r} changed meanwhile: read it again and repeat the "
                "edit"
            )
    scopes.raise_version(conn, block_set.scope_id or 0)
    place = {"scope_id": block_set.scope_id, "block_id": ident}
    _add_version(conn, change, source, {**place, "version": version, "created_at": now})
    return replace(new_block, version=version, id=ident, updated_at=now) if new_block else None


def _add_version(
    conn: Connection, change: BlockChange, source: EditSource, version_values: dict[str, Any]
) -> None:
    """Write the version row of a change. version_values: the block and its version."""
    add_row(
        conn,
        t.block_versions,
        **version_values,
        before=change.before.value if change.before else None,
        after=change.after.value if change.after else None,
        actor=source.actor,
        request_id=source.request_id,
        tool_call_id=source.tool_call_id,
        undoes=change.undoes,
        quote=source.quote,
    )


def versions(
    conn: Connection, block_set: BlockSet, label: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return versions, newest first.

    Raises NotFound for a block that was never edited and is not a default.
    """
    row = _row(conn, block_set, label)
    if row is None:
        if label in block_set.defaults:
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


def undo(conn: Connection, block_set: BlockSet, label: str, source: EditSource) -> CoreBlock | None:
    """Undo the newest edit of the value that is not undone yet, as a new version.

    Returns the block; None if that edit had created it. Raises NotFound if none is left,
    BlockReadOnly, and BlockFull if the limit is now below the value to restore.
    """
    row = _row(conn, block_set, label)
    if row is None:
        raise NotFound(f"there is no block {label!r} with a history")
    undone = select(v.undoes).where(v.block_id == row.id, v.undoes.is_not(None))
    edits = select(t.block_versions).where(
        v.block_id == row.id,
        v.undoes.is_(None),
        v.version.not_in(undone),
        v.before.is_distinct_from(v.after),
    )
    last_edit = conn.execute(edits.order_by(v.version.desc()).limit(1)).first()
    if last_edit is None:
        raise NotFound(f"nothing is left to undo in {label!r}")
    now = None
    if not row.deleted:
        now = _operators(_block(row), block_set.defaults)
    if now is not None and now.read_only:
        rewrite_value(now, last_edit.before or "")
    new_block = None
    if last_edit.before is not None:
        new_block = replace(_block(row), value=last_edit.before)
    if new_block is not None:
        rewrite_value(replace(new_block, read_only=False), new_block.value)
    elif now is None:
        raise NotFound(f"nothing is left to undo in {label!r}")
    return _write(conn, block_set, row, BlockChange(now, new_block, last_edit.version), source)


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
