"""Proposals of reflections, what became of them, and when each scope was looked at last.

A proposal holds what a run would have changed, with the versions that it saw. It is applied as a
whole, or not at all; its undo too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from memory.core.blocks import CoreBlock
from memory.errors import Conflict, MemoryChanged, NotFound
from memory.ids import clock, new_id
from memory.stores.sql.engine.skill_tables import reflection_runs, reflections
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows import passage_lifecycle, passages
from memory.stores.sql.rows.blocks import BlockSet, EditSource
from memory.stores.sql.rows.passages import NewPassage

r = reflections.c
x = reflection_runs.c
PENDING = "pending"
APPLIED = "applied"
DISCARDED = "discarded"
CONFLICT = "conflict"
Decision = Literal["apply", "discard", "undo"]
# Of a scope; the oldest decided ones leave.
MAX_KEPT = 200


class ReflectionChange(msgspec.Struct, omit_defaults=True):
    """One change. kind: block or passage. label, passage: of what.

    before, after: the text, None where there is none. version: of the block that was seen.
    tags, type, importance: of a passage that is added. applied_version, applied_passages: what an
    apply made, for its undo.
    """

    kind: str
    label: str = ""
    passage: str = ""
    before: str | None = None
    after: str | None = None
    version: int = 0
    tags: list[str] = []
    type: str = "fact"
    importance: float = 0.5
    applied_version: int = 0
    applied_passages: list[str] = []


@dataclass(frozen=True, slots=True)
class StoredReflection:
    """One proposal. Times are Unix times."""

    id: str
    status: str
    changes: list[ReflectionChange]
    created_at: float
    decided_at: float | None
    decided_by: str | None


def add(conn: Connection, scope_id: int, changes: Sequence[ReflectionChange]) -> str:
    """Store a proposal; return its id. One that nobody decided on before it is discarded."""
    waiting = (r.scope_id == scope_id) & (r.status == PENDING)
    decided = {"status": DISCARDED, "decided_at": clock.now(), "decided_by": "reflection"}
    conn.execute(update(reflections).where(waiting).values(**decided))
    ident = new_id("refl")
    conn.execute(
        insert(reflections).values(
            id=ident,
            scope_id=scope_id,
            status=PENDING,
            changes=_encode(changes),
            created_at=clock.now(),
        )
    )
    newest_ids = (
        select(r.id).where(r.scope_id == scope_id).order_by(r.created_at.desc()).limit(MAX_KEPT)
    )
    oldest = (r.scope_id == scope_id) & r.id.not_in(newest_ids)
    conn.execute(delete(reflections).where(oldest))
    return ident


def list_page(
    conn: Connection, scope_id: int | None, after: tuple[float, str] | None, limit: int
) -> list[StoredReflection]:
    """Return proposals, newest first, behind a place."""
    if scope_id is None:
        return []
    query = select(reflections).where(r.scope_id == scope_id)
    if after is not None:
        created_at, ident = after
        is_older = (r.created_at < created_at) | ((r.created_at == created_at) & (r.id < ident))
        query = query.where(is_older)
    rows = conn.execute(query.order_by(r.created_at.desc(), r.id.desc()).limit(limit))
    return [_read(row) for row in rows]


def find(conn: Connection, scope_id: int | None, ident: str) -> StoredReflection:
    """Return a proposal of a scope. Raises NotFound."""
    query = select(reflections).where(r.scope_id == scope_id, r.id == ident)
    row = None
    if scope_id is not None:
        row = conn.execute(query).first()
    if row is None:
        raise NotFound(f"there is no reflection {ident[:64]!r}")
    return _read(row)


def decide(
    conn: Connection, block_set: BlockSet, ident: str, decision: Decision, source: EditSource
) -> StoredReflection:
    """Apply, discard or undo a proposal. Raises NotFound, Conflict, MemoryChanged.

    After MemoryChanged nothing of it is written; the caller notes the conflict.
    """
    stored_reflection = find(conn, block_set.scope_id, ident)
    allowed = {"apply": (PENDING, CONFLICT), "discard": (PENDING, CONFLICT), "undo": (APPLIED,)}
    if stored_reflection.status not in allowed[decision]:
        raise Conflict(
            f"the reflection is {stored_reflection.status}: it cannot be decided so any more"
        )
    changes = stored_reflection.changes
    editor = _ProposalEditor(conn, block_set, source)
    if decision == "apply":
        editor.check_seen(changes)
        changes = [editor.apply(change) for change in changes]
    elif decision == "undo":
        editor.check_applied(changes)
        for change in reversed(changes):
            editor.take_back(change)
    status = APPLIED if decision == "apply" else DISCARDED
    _note(conn, ident, status, source.actor, changes)
    return find(conn, block_set.scope_id, ident)


def note_conflict(conn: Connection, ident: str) -> None:
    """Note that a proposal could not be applied, as the memory changed."""
    is_pending = (r.id == ident) & (r.status == PENDING)
    conn.execute(update(reflections).where(is_pending).values(status=CONFLICT))


class _ProposalEditor:
    """Makes the changes of one proposal, or takes them back."""

    def __init__(self, conn: Connection, block_set: BlockSet, source: EditSource) -> None:
        self._conn = conn
        self._block_set = block_set
        self._source = source
        self._scope_id = block_set.scope_id or 0
        self._blocks = block_rows.all_of(conn, block_set)

    def check_seen(self, changes: Sequence[ReflectionChange]) -> None:
        """Raise MemoryChanged unless all is as the run saw it."""
        names = [
            change.label or change.passage for change in changes if not self._is_as_seen(change)
        ]
        if names:
            raise MemoryChanged(names)

    def check_applied(self, changes: Sequence[ReflectionChange]) -> None:
        """Raise MemoryChanged unless all is as the apply left it."""
        names = [
            change.label
            for change in changes
            if change.kind == "block" and self._version(change.label) != change.applied_version
        ]
        if names:
            raise MemoryChanged(names)

    def _is_as_seen(self, change: ReflectionChange) -> bool:
        if change.kind == "block":
            return self._version(change.label) == change.version
        if not change.passage:
            return True
        passage = passages.get(self._conn, [self._scope_id], change.passage)
        return passage is not None and passage["content"] == change.before

    def _version(self, label: str) -> int:
        block = self._blocks.get(label)
        if block is not None:
            return block.version
        return 0

    def apply(self, change: ReflectionChange) -> ReflectionChange:
        """Make a change; return it with what it made."""
        conn = self._conn
        scope_id = self._scope_id
        if change.kind == "block":
            block = self._write_block(change.label, change.after)
            version = block.version if block is not None else 0
            return msgspec.structs.replace(change, applied_version=version)
        made: list[str] = []
        if change.after is not None:
            new_passage = NewPassage(
                change.after, change.tags, change.type, change.importance, self._source.actor
            )
            hits, _ = passages.add(conn, scope_id, new_passage)
            made = [hit["id"] for hit in hits]
        if change.passage:
            successor = made[0] if made else None
            actor = self._source.actor
            passage_lifecycle.set_aside(conn, scope_id, change.passage, actor, successor)
        return msgspec.structs.replace(change, applied_passages=made)

    def take_back(self, change: ReflectionChange) -> None:
        """Undo a change, each as an edit of its own."""
        if change.kind == "block":
            self._write_block(change.label, change.before)
            return
        for ident in change.applied_passages:
            passage_lifecycle.set_aside(self._conn, self._scope_id, ident, self._source.actor)
        if change.passage:
            passage_lifecycle.restore(self._conn, self._scope_id, change.passage)

    def _write_block(self, label: str, value: str | None) -> CoreBlock | None:
        def edit(block: CoreBlock | None) -> CoreBlock | None:
            if value is None:
                return None
            return replace(block or CoreBlock(label), value=value)

        return block_rows.edit(self._conn, self._block_set, label, edit, self._source)


def _note(
    conn: Connection, ident: str, status: str, actor: str, changes: Sequence[ReflectionChange]
) -> None:
    values = {"status": status, "decided_at": clock.now(), "decided_by": actor}
    conn.execute(
        update(reflections).where(r.id == ident).values(**values, changes=_encode(changes))
    )


def find_settled(conn: Connection, scope_id: int) -> str:
    """Return the digest of the memory that a run last left as it was; "" for none."""
    query = select(x.settled).where(x.scope_id == scope_id)
    return str(conn.execute(query).scalar() or "")


def note_settled(conn: Connection, scope_id: int, digest: str) -> None:
    """Note that a run found nothing to change in a memory."""
    _note_run(conn, scope_id, settled=digest)


def note_run(conn: Connection, scope_id: int, before: float | None, now: float) -> bool:
    """Note when a scope's run was queued; return False if another worker did since `before`."""
    if before is not None:
        unchanged = (x.scope_id == scope_id) & (x.ran_at == before)
        return bool(
            conn.execute(update(reflection_runs).where(unchanged).values(ran_at=now)).rowcount
        )
    query = select(x.ran_at).where(x.scope_id == scope_id)
    if conn.execute(query).first() is not None:
        return False
    _note_run(conn, scope_id, ran_at=now)
    return True


def _note_run(conn: Connection, scope_id: int, **values: Any) -> None:
    changed = conn.execute(update(reflection_runs).where(x.scope_id == scope_id).values(**values))
    if not changed.rowcount:
        conn.execute(insert(reflection_runs).values(scope_id=scope_id, **values))


def _encode(changes: Sequence[ReflectionChange]) -> str:
    return msgspec.json.encode(list(changes)).decode()


def _read(row: Any) -> StoredReflection:
    changes = msgspec.json.decode(row.changes, type=list[ReflectionChange])
    return StoredReflection(
        row.id, row.status, changes, row.created_at, row.decided_at, row.decided_by
    )
