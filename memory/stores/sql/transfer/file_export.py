"""The lines of an export that tell of files."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from memory.export_format import ExportLine, UserFileChunkLine, UserFileLine
from memory.scope import split_memory_name
from memory.search.query import iso
from memory.stores.sql.engine.file_tables import files
from memory.stores.sql.rows.file_uploads import read_chunk

DONE = object()
# Chunks read in one transaction.
TOGETHER = 4
f = files.c


def list_file_lines(
    conn: Connection, scope_id: int, after: Any, agent: str
) -> tuple[list[ExportLine], Any]:
    """Return the next lines: a file, and its chunks behind it.

    after: the file's key and the position of its next chunk, None to begin.
    """
    key, position = after or (0, 0)
    if not position:
        return _begin_file(conn, scope_id, key, agent)
    row = conn.execute(select(files).where(f.id == key)).first()
    name, project = split_memory_name(agent)
    lines: list[ExportLine] = []
    while row is not None and len(lines) < TOGETHER:
        data = read_chunk(conn, row.upload, position - 1)
        if data is None:
            return lines, (key, 0)
        lines.append(
            UserFileChunkLine(
                agent=name,
                project=project,
                kind="file_chunk",
                sha256=row.sha256,
                position=position - 1,
                data=data,
            )
        )
        position += 1
    return lines, (key, position if row is not None else 0)


def _begin_file(
    conn: Connection, scope_id: int, key: int, agent: str
) -> tuple[list[ExportLine], Any]:
    query = select(files).where(f.scope_id == scope_id, f.id > key).order_by(f.id).limit(1)
    row = conn.execute(query).first()
    if row is None:
        return [], DONE
    name, project = split_memory_name(agent)
    line = UserFileLine(
        agent=name,
        project=project,
        kind="file",
        name=row.name,
        sha256=row.sha256,
        bytes=row.bytes,
        id=row.public_id,
        type=row.type,
        version=row.version,
        created_at=iso(row.created_at),
    )
    return [line], (row.id, 1)
