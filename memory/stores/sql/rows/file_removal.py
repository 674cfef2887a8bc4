"""Removes uploads that no file shows any more, in pieces (see `batches`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, exists, select, update

from memory.stores.sql.engine.batches import ROWS_PER_STATEMENT, WriterShare
from memory.stores.sql.engine.file_tables import file_chunks, file_symbols, file_versions, files
from memory.stores.sql.rows import file_grams, file_passages

c = file_chunks.c
s = file_symbols.c
v = file_versions.c
f = files.c
GRAMS_TOGETHER = 200


class Upload(NamedTuple):
    """An upload of a scope."""

    scope_id: int
    key: int


def remove_upload(
    conn: Connection, share: WriterShare, upload: Upload, count: Callable[[int], None]
) -> bool:
    """Remove the next rows of an upload, but its own; return whether nothing is left.

    count: told of removed passages.
    """
    return remove_read_rows(conn, share, upload, count) and _remove_chunks(conn, share, upload.key)


def remove_read_rows(
    conn: Connection, share: WriterShare, upload_place: Upload, count: Callable[[int], None]
) -> bool:
    """Remove the next rows that were read of an upload; return whether nothing is left."""
    scope_id, upload = upload_place
    while removed_count := file_passages.remove_next(conn, upload, ROWS_PER_STATEMENT):
        count(removed_count)
        if share.count_row(removed_count):
            return False
    while removed_count := file_grams.remove_next(conn, scope_id, upload, GRAMS_TOGETHER):
        if share.count_row(removed_count // 10):
            return False
    while keys := list(
        conn.execute(select(s.id).where(s.upload == upload).limit(GRAMS_TOGETHER)).scalars()
    ):
        conn.execute(delete(file_symbols).where(s.id.in_(keys)))
        if share.count_row(len(keys) // 10):
            return False
    return True


def _remove_chunks(conn: Connection, share: WriterShare, upload: int) -> bool:
    """Remove the bytes of an upload, a chunk at a time; return whether nothing is left."""
    while (
        position := conn.execute(select(c.position).where(c.upload == upload).limit(1)).scalar()
    ) is not None:
        conn.execute(delete(file_chunks).where(c.upload == upload, c.position == position))
        if share.count_row():
            return False
    return True


def clean_upload(conn: Connection, share: WriterShare, upload: int) -> bool | None:
    """Remove the next rows of an upload that no file names; None once nothing is left."""
    row = conn.execute(select(file_versions).where(v.id == upload)).first()
    if row is None or _is_used(conn, row):
        return None
    if not remove_upload(conn, share, Upload(row.scope_id, upload), _count_nothing):
        return True
    if row.version and _has_file(conn, row):
        conn.execute(update(file_versions).where(v.id == upload).values(state="replaced"))
    else:
        conn.execute(delete(file_versions).where(v.id == upload))
    return None


def _count_nothing(removed_count: int) -> None:
    """Count nothing."""


def _is_used(conn: Connection, row: Any) -> bool:
    is_same_file = (f.scope_id == row.scope_id) & (f.name == row.name)
    query = select(f.id).where(is_same_file, (f.upload == row.id) | (f.shown == row.id)).limit(1)
    return conn.execute(query).first() is not None


def _has_file(conn: Connection, row: Any) -> bool:
    is_same_file = exists().where(f.scope_id == row.scope_id, f.name == row.name)
    return bool(conn.execute(select(is_same_file)).scalar())
