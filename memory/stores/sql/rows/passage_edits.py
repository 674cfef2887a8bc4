"""Passages that a person corrects: the id stays, the older wording is set aside, and can be undone.

Also what changed last in a memory, a block or a passage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, select, update

from memory.errors import NotFound
from memory.ids import new_id
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import passage_lifecycle
from memory.stores.sql.rows import passages as rows

b = t.blocks.c
p = t.passages.c
v = t.block_versions.c
# Who set aside what an undo took back.
UNDO = "undo"
MOST_SHOWN = 20
NOT_TO_UNDO = ("cleanup", UNDO)


@dataclass(frozen=True, slots=True)
class PassageChange:
    """What a passage is to be. None: as it is."""

    content: str | None = None
    tags: Sequence[str] | None = None
    type: str | None = None
    importance: float | None = None


class NewestChange(NamedTuple):
    """The newest change that can be undone.

    kind: `block`, or how a passage changed: edited, forgotten, added. name: the block's label, or
    the passage's id.
    """

    at: float
    kind: str
    name: str


def revise(
    conn: Connection, scope_id: int, ident: str, change: PassageChange, actor: str
) -> dict[str, Any]:
    """Return the passage as changed, under its id. Raises NotFound, BadArguments.

    Its older wording is set aside, superseded by it. A wording that another passage has already is
    not stored twice: that passage is returned.
    """
    old_row = _visible(conn, scope_id, ident)
    passage_hit = rows.to_hit(old_row)
    content = change.content if change.content is not None else old_row.content
    kind = change.type if change.type is not None else old_row.type
    importance = change.importance if change.importance is not None else old_row.importance
    tags = list(change.tags) if change.tags is not None else passage_hit["tags"]
    rows.check(content, kind, importance)
    new_values = {"content": content, "tags": tags, "type": kind, "importance": importance}
    if all(passage_hit[name] == value for name, value in new_values.items()):
        return passage_hit
    passage_lifecycle.set_aside(conn, scope_id, ident, actor)
    new_passage = rows.NewPassage(
        content,
        tags,
        kind,
        importance,
        actor,
        old_row.node,
        old_row.created_at,
        source=old_row.source,
        written_by=old_row.written_by,
    )
    stored_hits, made_count = rows.add(conn, scope_id, new_passage)
    new_hit = stored_hits[0]
    if not made_count:
        _supersede(conn, old_row.id, new_hit["id"])
        return new_hit
    _swap_ids(conn, old_row, new_hit["key"], new_hit["id"])
    _supersede(conn, old_row.id, ident)
    return _hit(conn, new_hit["key"])


def undo(conn: Connection, scope_id: int, ident: str) -> dict[str, Any]:
    """Return the passage with its wording from before its newest change. Raises NotFound."""
    now = _visible(conn, scope_id, ident)
    older = conn.execute(
        select(t.passages)
        .where(p.scope_id == scope_id, p.superseded_by == ident, p.deleted_at.is_not(None))
        .order_by(p.deleted_at.desc(), p.id.desc())
        .limit(1)
    ).first()
    if older is None:
        raise NotFound(f"nothing is left to undo in the passage {ident!r}")
    passage_lifecycle.set_aside(conn, scope_id, ident, UNDO)
    passage_lifecycle.restore(conn, scope_id, older.public_id)
    _swap_ids(conn, now, older.id, older.public_id)
    return _hit(conn, older.id)


def older_wordings(conn: Connection, scope_id: int, ident: str) -> list[dict[str, Any]]:
    """Return what a passage superseded, newest first, at most `MOST_SHOWN`."""
    query = select(t.passages).where(p.scope_id == scope_id, p.superseded_by == ident)
    older_rows = conn.execute(query.order_by(p.deleted_at.desc(), p.id.desc()).limit(MOST_SHOWN))
    return [rows.to_hit(row) for row in older_rows]


def find_newest(conn: Connection, scope_id: int) -> NewestChange | None:
    """Return the newest change that can be undone, of a block or a passage."""
    is_undoable = p.deleted_at.is_not(None) & p.deleted_by.not_in(NOT_TO_UNDO)
    set_aside_passages = select(p.deleted_at, p.superseded_by, p.public_id)
    set_aside_passages = set_aside_passages.where(p.scope_id == scope_id, p.node == 0, is_undoable)
    added_passages = select(p.created_at, p.public_id)
    added_passages = added_passages.where(
        p.scope_id == scope_id, p.node == 0, p.deleted_at.is_(None)
    )
    newest_changes: list[NewestChange] = []
    row: Any
    if row := conn.execute(
        set_aside_passages.order_by(p.deleted_at.desc(), p.id.desc()).limit(1)
    ).first():
        kind = "edited" if row.superseded_by else "forgotten"
        newest_changes.append(
            NewestChange(row.deleted_at, kind, row.superseded_by or row.public_id)
        )
    if row := conn.execute(
        added_passages.order_by(p.created_at.desc(), p.id.desc()).limit(1)
    ).first():
        newest_changes.append(NewestChange(row.created_at, "added", row.public_id))
    if row := _newest_edit(conn, scope_id):
        newest_changes.append(NewestChange(row.created_at, "block", row.label))
    return max(newest_changes, key=lambda change: change.at, default=None)


def _newest_edit(conn: Connection, scope_id: int) -> Any:
    """Return the newest version of a block that is not undone yet."""
    later_versions = t.block_versions.alias()
    undone = select(later_versions.c.id).where(
        later_versions.c.block_id == v.block_id, later_versions.c.undoes == v.version
    )
    query = (
        select(v.created_at, b.label)
        .join(t.blocks, b.id == v.block_id)
        .where(
            b.scope_id == scope_id,
            b.branch == 0,
            b.read_only.is_(False),
            v.undoes.is_(None),
            v.before.is_distinct_from(v.after),
            ~undone.exists(),
        )
    )
    return conn.execute(query.order_by(v.created_at.desc(), v.id.desc()).limit(1)).first()


def _visible(conn: Connection, scope_id: int, ident: str) -> Row[Any]:
    is_visible = (p.scope_id == scope_id) & (p.public_id == ident) & p.deleted_at.is_(None)
    row = conn.execute(select(t.passages).where(is_visible)).first()
    if row is None:
        raise NotFound(f"There is no passage {ident[:80]!r} here.")
    return row


def _hit(conn: Connection, key: int) -> dict[str, Any]:
    return rows.to_hit(conn.execute(select(t.passages).where(p.id == key)).one())


def _supersede(conn: Connection, key: int, successor: str) -> None:
    conn.execute(update(t.passages).where(p.id == key).values(superseded_by=successor))


def _swap_ids(conn: Connection, passage_row: Row[Any], key: int, ident: str) -> None:
    """Give a row and another one, of this key and id, each other's id."""
    for row, name in (
        (passage_row.id, new_id("passage")),
        (key, passage_row.public_id),
        (passage_row.id, ident),
    ):
        conn.execute(update(t.passages).where(p.id == row).values(public_id=name))
