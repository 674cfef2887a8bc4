"""A user's files from outside: upload, list, read back and delete."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection

from memory.errors import MemoryFault, NotFound
from memory.formats.documents.file_types import detect_type
from memory.management.reading import read
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.rows import file_uploads, files, scopes
from memory.stores.sql.rows.file_uploads import CHUNK_BYTES, ExpectedFile, FileLimits
from memory.stores.sql.rows.files import NewUpload
from memory.stores.sql.rows.management_context import ManagementActor

# That are listed of a file.
VERSIONS = 100


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as it is now. pages: None where it has none. Times are Unix times."""

    id: str
    name: str
    type: str
    bytes: int
    sha256: str
    status: str
    reason: str
    pages: int | None
    lines: int
    characters: int
    passages: int
    version: int
    created_at: float
    updated_at: float
    upload: int


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A version of a file. actor: who uploaded it. is_kept: its bytes are still there."""

    version: int
    bytes: int
    sha256: str
    actor: str
    is_kept: bool
    created_at: float


@dataclass(frozen=True, slots=True)
class IncomingFile:
    """A file to store. byte_count: as declared, 0 if it was not. pieces: of any size."""

    name: str
    byte_count: int
    pieces: AsyncIterator[bytes]


async def receive_file(
    memory: Memory, actor: ManagementActor, incoming: IncomingFile, limits: FileLimits
) -> tuple[StoredFile, bool]:
    """Store a file and queue its reading; return it, and whether it is new or changed.

    Raises BadFileName, TooManyFiles, FilesFull, FileTooLarge, Conflict, StoreUnavailable.
    """
    expected_file = ExpectedFile(
        files.check_name(incoming.name), incoming.byte_count, actor.source.actor
    )

    def begin(conn: Connection) -> int:
        owner = scopes.current_owner(conn, actor.scope)
        scope_id = scopes.get_or_create(conn, owner)
        return file_uploads.begin(conn, scope_id, expected_file, limits)

    upload = await memory.db.write(begin, lock=actor.lock)
    intake = _Intake(memory, actor, upload, limits)
    try:
        await intake.receive(incoming.pieces)
        return await intake.finish(expected_file.name)
    except BaseException:
        await asyncio.shield(intake.drop())
        raise


class _Intake:
    """One upload under way."""

    def __init__(
        self, memory: Memory, actor: ManagementActor, upload: int, limits: FileLimits
    ) -> None:
        self._memory = memory
        self._actor = actor
        self._upload = upload
        self._limits = limits
        self._digest = hashlib.sha256()
        self._size = self._position = 0
        self._first = b""

    async def receive(self, chunks: AsyncIterator[bytes]) -> None:
        """Store the bytes in chunks as they arrive."""
        unsaved_bytes = bytearray()
        async for chunk in chunks:
            unsaved_bytes += chunk
            while len(unsaved_bytes) >= CHUNK_BYTES:
                await self._add(bytes(unsaved_bytes[:CHUNK_BYTES]))
                del unsaved_bytes[:CHUNK_BYTES]
        if unsaved_bytes:
            await self._add(bytes(unsaved_bytes))

    async def _add(self, data: bytes) -> None:
        self._first = self._first or data
        self._digest.update(data)
        self._size += len(data)
        add = partial(
            file_uploads.add_chunk,
            upload=self._upload,
            position=self._position,
            data=data,
            limits=self._limits,
        )
        filed_work = self._memory.db.apart_from_turns(add)
        await self._memory.db.write(filed_work, piece=True, lock=self._actor.lock)
        self._position += 1

    async def finish(self, name: str) -> tuple[StoredFile, bool]:
        media_type = detect_type(name, self._first)
        new_upload = NewUpload(self._upload, name, self._size, self._digest.hexdigest(), media_type)

        def work(conn: Connection) -> tuple[StoredFile, bool]:
            scope_id = scopes.find(conn, self._actor.scope)
            if scope_id is None:
                raise NotFound("This user's memory was removed meanwhile.")
            row, is_new = files.put_file(conn, scope_id, new_upload, lambda: self._actor.defaults)
            return _describe(row), is_new

        return await self._memory.db.write(work, lock=self._actor.lock)

    async def drop(self) -> None:
        """Give the upload up; what came of it is removed later."""
        with contextlib.suppress(MemoryFault):
            drop = partial(file_uploads.drop_received, upload=self._upload)
            await self._memory.db.write(drop, lock=self._actor.lock)


def _describe(row: Any) -> StoredFile:
    return StoredFile(
        row.public_id,
        row.name,
        row.type,
        row.bytes,
        row.sha256,
        row.status,
        row.reason,
        row.pages,
        row.lines,
        row.characters,
        row.passages,
        row.version,
        row.created_at,
        row.updated_at,
        row.upload,
    )


async def list_files(memory: Memory, scope: Scope) -> list[StoredFile]:
    """Return a user's files, by name. Raises StoreUnavailable."""

    def work(conn: Connection) -> list[StoredFile]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            rows = []
        else:
            rows = files.list_files(conn, scope_id)
        return [_describe(row) for row in rows]

    return await read(memory, work)


async def get_file(memory: Memory, scope: Scope, ident: str) -> StoredFile:
    """Return one file, by id or name. Raises NotFound, StoreUnavailable."""
    return await read(
        memory,
        lambda conn: _describe(files.get_file(conn, scopes.find(conn, scope) or 0, ident)),
    )


async def list_versions(memory: Memory, scope: Scope, ident: str) -> list[FileVersion]:
    """Return the versions of a file, newest first. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> list[FileVersion]:
        scope_id = scopes.find(conn, scope) or 0
        row = files.get_file(conn, scope_id, ident)
        return [
            FileVersion(
                version_row.version,
                version_row.bytes,
                version_row.sha256,
                version_row.actor,
                version_row.id in (row.upload, row.shown),
                version_row.created_at,
            )
            for version_row in files.list_versions(conn, scope_id, row.name, VERSIONS)
        ]

    return await read(memory, work)


async def read_bytes(memory: Memory, file: StoredFile) -> AsyncIterator[bytes]:
    """Yield the bytes of a file as they came. Raises StoreUnavailable."""
    position = 0
    while True:
        get = partial(file_uploads.read_chunk, upload=file.upload, position=position)
        chunk = await read(memory, get)
        if chunk is None:
            return
        yield chunk
        position += 1


async def delete_file(memory: Memory, actor: ManagementActor, ident: str) -> str:
    """Remove a file, by id or name; return its id. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> str:
        scope_id = scopes.find(conn, actor.scope) or 0
        return files.delete_file(conn, scope_id, ident, lambda: actor.defaults)

    return await memory.db.write(work, lock=actor.lock)
