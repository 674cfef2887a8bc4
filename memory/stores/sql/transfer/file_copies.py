"""Files that come from an export, or from another user's memory.

A file arrives as an upload does, a chunk at a time, and may be continued by a later import. One
whose bytes are there already is left out; one whose name is taken gets another name.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import Connection, select, update

from memory.errors import FilesFull, FileTooLarge, TooManyFiles
from memory.export_format import UserFileChunkLine, UserFileLine
from memory.formats.documents.file_types import detect_type
from memory.stores.sql.engine.file_tables import file_versions
from memory.stores.sql.engine.file_tables import files as file_table
from memory.stores.sql.rows import file_uploads, files
from memory.stores.sql.rows.file_block import BlockDefaults
from memory.stores.sql.rows.file_uploads import CHUNK_BYTES, ExpectedFile, FileLimits

f = file_table.c
v = file_versions.c
BOUNDLESS = FileLimits(1 << 30, 1 << 30, 1 << 40)


def begin_copy(
    conn: Connection, scope_id: int, line: UserFileLine, limits: FileLimits, blocks: BlockDefaults
) -> str:
    """Begin to take a file, unless that was begun. Returns why it is left out, "" if it is not."""
    if has_bytes(conn, scope_id, line.sha256):
        return "already there"
    if _find_arriving(conn, scope_id, line.sha256) is not None:
        return ""
    expected_file = ExpectedFile(free_name(conn, scope_id, line.name), line.bytes, "import")
    try:
        upload = file_uploads.begin(conn, scope_id, expected_file, limits)
    except TooManyFiles:
        return "too_many_files"
    except (FilesFull, FileTooLarge):
        return "files_quota"
    conn.execute(update(file_versions).where(v.id == upload).values(sha256=line.sha256))
    if not line.bytes:
        return _finish(conn, _find_arriving(conn, scope_id, line.sha256), blocks)[1]
    return ""


def add_copied_chunk(
    conn: Connection,
    scope_id: int,
    line: UserFileChunkLine,
    limits: FileLimits,
    blocks: BlockDefaults,
) -> tuple[bool, str]:
    """Add a chunk; the last one makes the file. Returns whether it did, and why it was left out."""
    row = _find_arriving(conn, scope_id, line.sha256)
    if row is None:
        return False, "" if has_bytes(conn, scope_id, line.sha256) else "no such file"
    arrived = row.bytes // CHUNK_BYTES
    if line.position < arrived:
        return False, ""
    if line.position > arrived or len(line.data) > CHUNK_BYTES:
        return False, "out of order"
    try:
        file_uploads.add_chunk(conn, row.id, line.position, line.data, limits)
    except (FilesFull, FileTooLarge):
        file_uploads.drop_received(conn, row.id)
        return False, "files_quota"
    if row.bytes + len(line.data) < row.reserved:
        return False, ""
    return _finish(conn, row, blocks)


def _finish(conn: Connection, row: Any, blocks: BlockDefaults) -> tuple[bool, str]:
    """Make a file of an upload whose bytes are those that were told."""
    digest = hashlib.sha256()
    position = 0
    first_bytes = b""
    size = 0
    while (data := file_uploads.read_chunk(conn, row.id, position)) is not None:
        digest.update(data)
        first_bytes = first_bytes or data
        size += len(data)
        position += 1
    if digest.hexdigest() != row.sha256:
        file_uploads.drop_received(conn, row.id)
        return False, "its bytes are not those of its sha256"
    media_type = detect_type(row.name, first_bytes)
    new_upload = files.NewUpload(row.id, row.name, size, row.sha256, media_type)
    files.put_file(conn, row.scope_id, new_upload, blocks)
    return True, ""


def has_bytes(conn: Connection, scope_id: int, sha256: str) -> bool:
    """Tell whether a file of the scope has these bytes."""
    query = select(f.id).where(f.scope_id == scope_id, f.sha256 == sha256).limit(1)
    return conn.execute(query).first() is not None


def free_name(conn: Connection, scope_id: int, name: str) -> str:
    """Return a name that no file of the scope has: "a.txt", "a (2).txt" and so on."""
    taken_names = set(conn.execute(select(f.name).where(f.scope_id == scope_id)).scalars())
    path = PurePosixPath(name)
    number = 1
    free_name = name
    while free_name in taken_names:
        number += 1
        ending = f" ({number}){path.suffix[:20]}"
        free_name = f"{path.stem[: files.NAME_CHARACTERS - len(ending)]}{ending}"
    return free_name


def _find_arriving(conn: Connection, scope_id: int, sha256: str) -> Any:
    """Return the upload of these bytes that is not whole yet."""
    query = select(file_versions).where(
        v.scope_id == scope_id, v.sha256 == sha256, v.state == "receiving"
    )
    return conn.execute(query.limit(1)).first()
