"""Removes what belonged to users and conversations that are gone, in pieces (see `batches`).

Nobody finds a row whose scope or conversation is gone, so these are removed first, in one
transaction, and the many rows follow. Each step may be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, select

from memory.stores.sql.engine import file_tables, skill_tables
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.batches import ROWS, ROWS_PER_STATEMENT, WriterShare
from memory.stores.sql.engine.sqlite import fts as index
from memory.stores.sql.index import vectors
from memory.stores.sql.index.vectors import MESSAGES, PASSAGES, VectorKind
from memory.stores.sql.rows import file_removal
from memory.stores.sql.rows.message_pieces import remove_next

n = t.nodes.c
m = t.messages.c
p = t.passages.c
b = t.blocks.c
v = file_tables.file_versions.c
OF_A_SCOPE = {
    "versions": t.block_versions,
    "blocks": t.blocks,
    "conversations": t.conversations,
    "summaries": t.summaries,
    "vectors": t.vectors,
    "jobs": t.jobs,
    "dropped": t.dropped,
    "job_records": t.job_records,
    "explain": t.call_records,
    "tool_calls": t.tool_calls,
    "tool_results": t.tool_results,
    "skills": skill_tables.skills,
}
OF_FILES = (
    file_tables.files,
    file_tables.file_versions,
    file_tables.file_chunks,
    file_tables.file_passages,
    file_tables.file_symbols,
    file_tables.file_grams,
)
ALSO = (
    t.message_vectors,
    t.message_pieces,
    t.epochs,
    t.shared_members,
    skill_tables.skill_versions,
    skill_tables.skill_uses,
    skill_tables.reflections,
    skill_tables.reflection_runs,
)


@dataclass(frozen=True, slots=True)
class RowsToRemove:
    """A scope, or conversations of one, whose rows are to be removed."""

    scope_id: int
    conversations: tuple[int, ...] = ()

    def of(self, table: Table) -> ColumnElement[bool]:
        """Return the condition for these rows, phrased so that the best index is used."""
        if not self.conversations:
            return table.c.scope_id == self.scope_id
        scope = table.c.scope_id if table is t.summaries else table.c.scope_id + 0
        return and_(scope == self.scope_id, table.c.conversation.in_(self.conversations))


class RemovedRows:
    """What one piece removed.

    counts: rows by kind. passages, messages: row keys that may be in an external index.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.passages: list[int] = []
        self.messages: list[int] = []


def wipe(conn: Connection, share: WriterShare, target: RowsToRemove) -> RemovedRows | None:
    """Remove the next rows; return None if none was left."""
    wiping = _Removal(conn, share, target)
    is_finished = (
        wiping.messages()
        and (bool(target.conversations) or wiping.passages())
        and (bool(target.conversations) or wiping.files())
        and (wiping.nodes() and wiping.rest())
    )
    if is_finished and not wiping.wiped.counts:
        return None
    return wiping.wiped


class _Removal:
    """One piece. Each step returns whether nothing of its kind is left."""

    def __init__(self, conn: Connection, share: WriterShare, target: RowsToRemove) -> None:
        self._conn = conn
        self._share = share
        self._target = target
        self.wiped = RemovedRows()

    def messages(self) -> bool:
        return self._pieces() and self._remove_indexed(
            MESSAGES, "messages_fts", self._target.of(t.messages)
        )

    def _pieces(self) -> bool:
        """Remove the pieces of large messages, which are megabytes each."""
        piece_columns = t.message_pieces.c
        is_scopes = piece_columns.scope_id == self._target.scope_id
        if self._target.conversations:
            is_named = exists().where(m.pieces == piece_columns.body, self._target.of(t.messages))
            is_scopes = and_(is_scopes, is_named)
        while remove_next(self._conn, is_scopes):
            self.wiped.counts["pieces"] += 1
            if self._share.count_row():
                return False
        return True

    def passages(self) -> bool:
        return self._remove_indexed(PASSAGES, "passages_fts", self._target.of(t.passages))

    def files(self) -> bool:
        """Remove files with what was read of them, an upload at a time."""
        scope_id = self._target.scope_id
        query = select(v.id).where(v.scope_id == scope_id).limit(1)
        while (upload := self._conn.execute(query).scalar()) is not None:
            if not file_removal.remove_upload(
                self._conn, self._share, file_removal.Upload(scope_id, upload), self._count_passages
            ):
                return False
            self._delete(file_tables.file_versions, [upload])
        return self._all("files", file_tables.files, self._target.of(file_tables.files))

    def _count_passages(self, removed_count: int) -> None:
        self.wiped.counts["file_passages"] += removed_count

    def _remove_indexed(self, kind: VectorKind, fts: str, condition: ColumnElement[bool]) -> bool:
        """Remove rows that have a search document and may have a vector."""
        query = select(kind.rows.c.id).where(condition).limit(ROWS_PER_STATEMENT)
        while keys := list(self._conn.execute(query).scalars()):
            for key in keys:
                index.drop(self._conn, fts, key)
            vector_keys = [
                key
                for scope_keys in vectors.drop(self._conn, kind, keys).values()
                for key in scope_keys
            ]
            if kind is MESSAGES:
                self.wiped.messages += vector_keys
            else:
                self.wiped.passages += keys
            self.wiped.counts["vectors"] += len(vector_keys)
            if self._remove(kind.name, kind.rows, keys):
                return False
        return True

    def nodes(self) -> bool:
        """Remove nodes with their explain records and their branches' memory."""
        query = select(n.id, n.epoch).where(self._target.of(t.nodes)).limit(ROWS)
        while rows := self._conn.execute(query).all():
            if self._target.conversations and not self._branches([row.id for row in rows]):
                return False
            for i in range(0, len(rows), ROWS_PER_STATEMENT):
                some_rows = rows[i : i + ROWS_PER_STATEMENT]
                keys = [row.id for row in some_rows]
                self.wiped.counts["explain"] += self._delete(t.explains, keys)
                if self._remove("nodes", t.nodes, keys):
                    self._epochs(rows[: i + ROWS_PER_STATEMENT])
                    return False
            self._epochs(rows)
        return True

    def _branches(self, nodes: Sequence[int]) -> bool:
        """Remove what an unnamed user's conversation keeps for itself."""
        scope_id = self._target.scope_id
        scopes = t.scopes.c
        if self._conn.execute(
            select(scopes.id).where(scopes.id == scope_id, scopes.user.is_not(None))
        ).first():
            return True
        hung = and_(p.scope_id == scope_id, p.node.in_(nodes))
        if not self._remove_indexed(PASSAGES, "passages_fts", hung):
            return False
        blocks = select(b.id).where(b.scope_id == scope_id, b.branch.in_(nodes))
        of_them = t.block_versions.c.block_id.in_(list(self._conn.execute(blocks).scalars()))
        return self._all("versions", t.block_versions, of_them) and self._all(
            "blocks", t.blocks, and_(b.scope_id == scope_id, b.branch.in_(nodes))
        )

    def _epochs(self, rows: Sequence[Any]) -> None:
        """Remove epochs that no node uses any more; a fork may continue in one."""
        epochs = {row.epoch for row in rows if row.epoch}
        if self._target.conversations and epochs:
            still = select(n.epoch).where(n.scope_id == self._target.scope_id, n.epoch.in_(epochs))
            self._delete(t.epochs, list(epochs - set(self._conn.execute(still).scalars())))

    def rest(self) -> bool:
        """Remove everything else, which is small."""
        if self._target.conversations:
            condition_of = self._target.of
            tables = {"jobs": t.jobs, "summaries": t.summaries, "dropped": t.dropped}
            return all(
                self._all(name, table, condition_of(table)) for name, table in tables.items()
            )
        kinds = [
            *OF_A_SCOPE.items(),
            *(("vectors" if x is t.message_vectors else x.name, x) for x in ALSO),
        ]
        return all(self._all(name, table, self._target.of(table)) for name, table in kinds)

    def _all(self, name: str, table: Table, condition: ColumnElement[bool]) -> bool:
        query = select(*table.primary_key.columns).where(condition).limit(ROWS_PER_STATEMENT)
        while keys := [row[0] for row in self._conn.execute(query)]:
            if self._remove(name, table, keys, condition):
                return False
        return True

    def _remove(
        self, name: str, table: Table, keys: Sequence[Any], *conditions: ColumnElement[bool]
    ) -> bool:
        """Remove rows; return whether the piece has to end after them."""
        self.wiped.counts[name] += self._delete(table, keys, *conditions)
        return self._share.count_row(len(keys))

    def _delete(self, table: Table, keys: Sequence[Any], *conditions: ColumnElement[bool]) -> int:
        key: Any = next(iter(table.primary_key.columns))
        return self._conn.execute(delete(table).where(key.in_(keys), *conditions)).rowcount
