"""Files as they arrive: reserved, received in chunks, and taken or dropped.

The quota counts what is there and what is reserved, in the transaction that reserves; so it holds
for any number of uploads at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from memory.errors import Conflict, FilesFull, FileTooLarge, TooManyFiles
from memory.ids import clock, new_key
from memory.stores.sql.engine.file_tables import file_chunks, file_versions, files
from memory.stores.sql.rows.jobs import QueuedJob, enqueue

f = files.c
v = file_versions.c
c = file_chunks.c
CHUNK_BYTES = 1 << 18
CLEAN_JOB = "clean_files"
# After which an upload arrives no more.
STALE_SECONDS = 3600.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FileLimits:
    """What a user may keep. per_user: files. quota_mib: of all of them."""

    max_mib: int = 50
    per_user: int = 200
    quota_mib: int = 1024
    pages: int = 10_000
    characters: int = 20_000_000


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """A file that arrives. byte_count: as it was declared, 0 if it was not."""

    name: str
    byte_count: int
    actor: str


def begin(conn: Connection, scope_id: int, expected_file: ExpectedFile, limits: FileLimits) -> int:
    """Reserve what a file needs; return the upload's key.

    Raises TooManyFiles, FilesFull, FileTooLarge.
    """
    _check_size(expected_file.byte_count, limits)
    _drop_stale(conn, scope_id)
    usage = _read_usage(conn, scope_id)
    if expected_file.name not in usage and len(usage) >= limits.per_user:
        raise TooManyFiles(
            f"there are {len(usage)} files already, and a user may have {limits.per_user}: delete "
            "one first"
        )
    _check_quota(usage, expected_file.name, expected_file.byte_count, limits)
    key = new_key()
    conn.execute(
        insert(file_versions).values(
            id=key,
            scope_id=scope_id,
            name=expected_file.name,
            state="receiving",
            reserved=expected_file.byte_count,
            actor=expected_file.actor,
            created_at=clock.now(),
        )
    )
    return key


def add_chunk(
    conn: Connection, upload: int, position: int, data: bytes, limits: FileLimits
) -> None:
    """Add the next chunk. Raises FilesFull, FileTooLarge; Conflict if the upload was given up."""
    row = conn.execute(select(file_versions).where(v.id == upload, v.state == "receiving")).first()
    if row is None:
        raise Conflict("the upload was given up meanwhile: send the file again")
    size = row.bytes + len(data)
    _check_size(size, limits)
    if size > row.reserved:
        _check_quota(_read_usage(conn, row.scope_id), row.name, size - row.reserved, limits)
    conn.execute(
        update(file_versions)
        .where(v.id == upload)
        .values(bytes=size, reserved=max(size, row.reserved))
    )
    conn.execute(
        insert(file_chunks).values(
            upload=upload, position=position, scope_id=row.scope_id, data=data
        )
    )


def finish(conn: Connection, upload: int, sha256: str, version: int) -> None:
    """Note that an upload is whole. Raises Conflict if it was given up."""
    values = {"state": "whole", "sha256": sha256, "version": version, "reserved": 0}
    update_result = conn.execute(
        update(file_versions).where(v.id == upload, v.state == "receiving").values(**values)
    )
    if not update_result.rowcount:
        raise Conflict("the upload was given up meanwhile: send the file again")


def drop_received(conn: Connection, upload: int) -> None:
    """Give up an upload that is not whole; a job removes what came of it."""
    update_result = conn.execute(
        update(file_versions)
        .where(v.id == upload, v.state == "receiving")
        .values(state="dropped", reserved=0)
    )
    if update_result.rowcount:
        clean_later(conn, [upload])


def clean_later(conn: Connection, uploads: Sequence[int]) -> None:
    """Queue the removal of uploads that nobody finds any more."""
    if uploads:
        keys = list(uploads)
        enqueue(conn, QueuedJob(CLEAN_JOB, {"uploads": keys}, dedupe=f"{CLEAN_JOB}:{keys[0]}"))


def _drop_stale(conn: Connection, scope_id: int) -> None:
    stale_uploads = select(v.id).where(
        v.scope_id == scope_id,
        v.state == "receiving",
        v.created_at < clock.now() - STALE_SECONDS,
    )
    for upload in conn.execute(stale_uploads).scalars().all():
        drop_received(conn, upload)


def _read_usage(conn: Connection, scope_id: int) -> dict[str, int]:
    """Return the bytes by name: of what is there, or of what arrives, whichever is more."""
    usage: dict[str, int] = {
        row.name: row.bytes
        for row in conn.execute(select(f.name, f.bytes).where(f.scope_id == scope_id))
    }
    arriving = (
        select(v.name, func.sum(v.reserved).label("size"))
        .where(v.scope_id == scope_id, v.state == "receiving")
        .group_by(v.name)
    )
    for row in conn.execute(arriving):
        usage[row.name] = max(usage.get(row.name, 0), int(row.size or 0))
    return usage


def _check_size(size: int, limits: FileLimits) -> None:
    if size > limits.max_mib * MIB:
        raise FileTooLarge(
            f"the file has more than {limits.max_mib} MiB, the most that a file may have"
        )


def _check_quota(usage: dict[str, int], name: str, added_bytes: int, limits: FileLimits) -> None:
    """Raise FilesFull if `added_bytes` bytes of a name do not fit."""
    other_bytes = sum(size for file_name, size in usage.items() if file_name != name)
    if other_bytes + max(usage.get(name, 0), added_bytes) > limits.quota_mib * MIB:
        raise FilesFull(
            f"the files of this user would have more than {limits.quota_mib} MiB: delete some first"
        )


def read_chunk(conn: Connection, upload: int, position: int) -> bytes | None:
    """Return a chunk of an upload, None behind the last."""
    data: Any = conn.execute(
        select(c.data).where(c.upload == upload, c.position == position)
    ).scalar()
    if data is None:
        return None
    return bytes(data)
