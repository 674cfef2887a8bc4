"""Rows of files: what a user has, and what a reading found out about each."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from memory.errors import BadFileName, NotFound
from memory.ids import clock, new_id, new_key
from memory.stores.sql.engine.file_tables import file_versions, files
from memory.stores.sql.rows import file_block, file_uploads
from memory.stores.sql.rows.file_uploads import clean_later
from memory.stores.sql.rows.jobs import QueuedJob, enqueue

f = files.c
v = file_versions.c
NAME_CHARACTERS = 255
READ_JOB = "read_file"
RECEIVED = "received"
READING = "reading"
READY = "ready"
FAILED = "failed"
# Names that an error lists.
NEAREST = 3
FileRow = Row[Any]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a reading found out. pages: None where the file has none."""

    media_type: str
    pages: int | None
    lines: int
    characters: int
    passages: int
    page_lines: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class NewUpload:
    """An upload that is whole."""

    key: int
    name: str
    byte_count: int
    sha256: str
    media_type: str


def check_name(name: str) -> str:
    """Return a name that a file may have. Raises BadFileName."""
    if not name.strip() or len(name) > NAME_CHARACTERS:
        raise BadFileName(
            f"The name of a file has 1 to {NAME_CHARACTERS} characters, not all of them blank; "
            f"this one has {len(name)}."
        )
    bad_character = next(
        (c for c in name if c == "/" or unicodedata.category(c) in ("Cc", "Cs")), None
    )
    if bad_character is not None or name in (".", ".."):
        if bad_character is None:
            fault = f"{name!r} is none"
        else:
            fault = f"{bad_character!r} is not allowed in it"
        raise BadFileName(
            f"The name of a file is one part of a path: {fault}. Choose another name."
        )
    return name


def put_file(
    conn: Connection, scope_id: int, upload: NewUpload, blocks: file_block.BlockDefaults
) -> tuple[FileRow, bool]:
    """Make a whole upload the newest version of its file, and queue its reading.

    Returns the file, and whether it is new or changed: the same bytes change nothing.
    """
    row = conn.execute(select(files).where(f.scope_id == scope_id, f.name == upload.name)).first()
    if row is not None and row.sha256 == upload.sha256:
        file_uploads.drop_received(conn, upload.key)
        return row, False
    now = clock.now()
    version = (row.version if row else 0) + 1
    values = {
        "version": version,
        "upload": upload.key,
        "type": upload.media_type,
        "bytes": upload.byte_count,
        "sha256": upload.sha256,
        "status": RECEIVED,
        "reason": "",
        "updated_at": now,
    }
    if row is None:
        ident = new_key()
        public_id = new_id("file")
        new_row = {"id": ident, "public_id": public_id, "scope_id": scope_id, "created_at": now}
        conn.execute(insert(files).values(**new_row, name=upload.name, **values))
    else:
        ident = row.id
        conn.execute(update(files).where(f.id == ident).values(**values))
        if row.upload != row.shown:
            clean_later(conn, [row.upload])
    file_uploads.finish(conn, upload.key, upload.sha256, version)
    dedupe = f"{READ_JOB}:{upload.key}"
    enqueue(conn, QueuedJob(READ_JOB, {"upload": upload.key}, scope_id, dedupe=dedupe))
    file_block.refresh(conn, scope_id, blocks)
    return conn.execute(select(files).where(f.id == ident)).one(), True


def list_files(conn: Connection, scope_id: int) -> list[FileRow]:
    """Return a scope's files by name; there are few."""
    return list(conn.execute(select(files).where(f.scope_id == scope_id).order_by(f.name)))


def get_file(conn: Connection, scope_id: int, ident: str) -> FileRow:
    """Return a file by its id or its name. Raises NotFound with the nearest names."""
    row = find_file(conn, scope_id, ident)
    if row is None:
        names = [file_row.name for file_row in list_files(conn, scope_id)]
        nearest_names = (
            get_close_matches(ident[:NAME_CHARACTERS], names, NEAREST, 0.4) or names[:NEAREST]
        )
        name_hint = ""
        if nearest_names:
            name_hint = f" The nearest names are: {', '.join(nearest_names)}."
        raise NotFound(f"There is no file {ident[:80]!r} here.{name_hint}")
    return row


def find_file(conn: Connection, scope_id: int, ident: str) -> FileRow | None:
    """Return a file by its id or its name."""
    scope_files = select(files).where(f.scope_id == scope_id)
    row = conn.execute(scope_files.where(f.public_id == ident)).first()
    return row or conn.execute(scope_files.where(f.name == ident)).first()


def delete_file(
    conn: Connection, scope_id: int, ident: str, blocks: file_block.BlockDefaults
) -> str:
    """Remove a file by its id or name; what was read of it follows. Returns its id.

    Raises NotFound.
    """
    row = get_file(conn, scope_id, ident)
    conn.execute(delete(files).where(f.id == row.id))
    kept_uploads = select(v.id).where(
        v.scope_id == scope_id, v.name == row.name, v.state == "whole"
    )
    clean_later(conn, list(conn.execute(kept_uploads).scalars()))
    conn.execute(
        delete(file_versions).where(
            v.scope_id == scope_id, v.name == row.name, v.state == "replaced"
        )
    )
    file_block.refresh(conn, scope_id, blocks)
    return str(row.public_id)


def find_upload(conn: Connection, upload: int) -> FileRow | None:
    """Return the file whose newest version an upload is, None if it is so no more."""
    is_same_file = (v.scope_id == f.scope_id) & (v.name == f.name)
    query = (
        select(files).join(file_versions, is_same_file).where(v.id == upload, f.upload == upload)
    )
    return conn.execute(query).first()


def note_reading(conn: Connection, upload: int) -> None:
    """Note that a file is being read."""
    if (row := find_upload(conn, upload)) is not None:
        conn.execute(update(files).where(f.id == row.id).values(status=READING))


def show_upload(
    conn: Connection, upload: int, result: ReadResult, blocks: file_block.BlockDefaults
) -> None:
    """Show the passages of an upload from now on, and no more those of the one before."""
    conn.execute(
        update(file_versions)
        .where(v.id == upload)
        .values(page_lines=msgspec.json.encode(list(result.page_lines)).decode())
    )
    values = {
        "status": READY,
        "reason": "",
        "type": result.media_type,
        "pages": result.pages,
        "lines": result.lines,
        "characters": result.characters,
        "passages": result.passages,
    }
    _replace(conn, upload, {**values, "shown": upload}, blocks)


def note_failure(
    conn: Connection, upload: int, reason: str, blocks: file_block.BlockDefaults
) -> None:
    """Note why a file cannot be read; it has no text from now on."""
    no_text = dict.fromkeys(("lines", "characters", "passages", "shown"), 0)
    values = {**no_text, "pages": None, "status": FAILED, "reason": reason}
    _replace(conn, upload, values, blocks)


def _replace(
    conn: Connection, upload: int, values: dict[str, Any], blocks: file_block.BlockDefaults
) -> None:
    row = find_upload(conn, upload)
    if row is None:
        return
    conn.execute(update(files).where(f.id == row.id).values(**values, updated_at=clock.now()))
    if row.shown and row.shown != upload:
        clean_later(conn, [row.shown])
    file_block.refresh(conn, row.scope_id, blocks)


def list_versions(conn: Connection, scope_id: int, name: str, limit: int) -> list[FileRow]:
    """Return the versions of a file, newest first."""
    query = select(file_versions).where(
        v.scope_id == scope_id, v.name == name, v.state.in_(("whole", "replaced"))
    )
    return list(conn.execute(query.order_by(v.version.desc()).limit(limit)))
