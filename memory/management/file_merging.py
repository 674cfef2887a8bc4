"""Copies one user's files to another, a chunk at a time; what has arrived is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection, select

from memory.core.blocks import CoreBlock
from memory.export_format import UserFileChunkLine, UserFileLine
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.owners.rename_owner import OwnerRename
from memory.stores.sql.rows import file_uploads, files, scopes
from memory.stores.sql.transfer import file_copies


async def copy_files(db: Database, owners: OwnerRename, blocks: Mapping[str, CoreBlock]) -> int:
    """Copy the source's files to the target, whatever its quota; return how many there are."""
    file_count = 0
    for scope_id, agent in await db.read(partial(_list_scopes, owner=owners.source)):
        target = Scope(*owners.target, agent, owners.secret)
        for row in await db.read(partial(files.list_files, scope_id=scope_id)):
            await _copy_file(db, target, row, blocks)
            file_count += 1
    return file_count


async def _copy_file(
    db: Database, target: Scope, row: Any, blocks: Mapping[str, CoreBlock]
) -> None:
    lock = owner_lock(target.tenant, target.user)
    line = UserFileLine(name=row.name, sha256=row.sha256, bytes=row.bytes)

    def begin(conn: Connection) -> int:
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, target))
        file_copies.begin_copy(conn, scope_id, line, file_copies.BOUNDLESS, lambda: blocks)
        return scope_id

    scope_id = await db.write(begin, lock=lock)
    position = 0
    while True:
        read_position = partial(file_uploads.read_chunk, upload=row.upload, position=position)
        data = await db.read(read_position)
        if data is None:
            return
        chunk = UserFileChunkLine(sha256=row.sha256, position=position, data=data)
        add = partial(
            file_copies.add_copied_chunk,
            scope_id=scope_id,
            line=chunk,
            limits=file_copies.BOUNDLESS,
            blocks=lambda: blocks,
        )
        await db.write(add, piece=True, lock=lock)
        position += 1


def _list_scopes(conn: Connection, owner: tuple[str, str]) -> list[tuple[int, str]]:
    scope_columns = t.scopes.c
    query = select(scope_columns.id, scope_columns.agent).where(
        scope_columns.tenant == owner[0], scope_columns.user == owner[1]
    )
    return [(row.id, row.agent) for row in conn.execute(query)]
