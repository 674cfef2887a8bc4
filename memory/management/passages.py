"""Archival memory from outside: list, add, search, set aside and delete passages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from memory.core.layers import OWN
from memory.errors import NotFound
from memory.management.reading import read
from memory.management.users import find_scope
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.rows import blocks, layers, passage_edits, passage_lifecycle, scopes
from memory.stores.sql.rows import passages as rows
from memory.stores.sql.rows.blocks import BlockSet
from memory.stores.sql.rows.jobs import QueuedJob, enqueue
from memory.stores.sql.rows.management_context import ManagementActor, touch_scope
from memory.stores.sql.rows.passage_edits import PassageChange
from memory.stores.sql.rows.passages import NewPassage, Passage, PassageFilter
from memory.stores.sql.rows.read_layers import search_layers

T = TypeVar("T")


class UndoneChange(NamedTuple):
    """A change that was undone. kind, name: see `NewestChange`.

    text: what the block or the passage says now; of one that was added, what it said; None for a
    block that is gone.
    """

    kind: str
    name: str
    text: str | None


async def _write(memory: Memory, actor: ManagementActor, work: Callable[[Connection], T]) -> T:
    try:
        return await memory.db.write(work, lock=actor.lock)
    finally:
        if actor.scope.is_layer:
            memory.shared.note(actor.scope.tenant, layered=True)


async def list_passages(
    memory: Memory, scope: Scope, before: int | None, limit: int, *, forgotten: bool = False
) -> list[Passage]:
    """List passages, newest first, before a row key. Raises StoreUnavailable.

    forgotten: list those that were set aside instead.
    """
    if forgotten:
        page = passage_lifecycle.list_superseded
    else:
        page = rows.page

    def work(conn: Connection) -> list[Passage]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return []
        return page(conn, scope_id, before, limit)

    return await read(memory, work)


async def list_oldest(memory: Memory, scope: Scope, after: int, limit: int) -> list[Passage]:
    """List passages, oldest first, after a row key. Raises StoreUnavailable."""

    def work(conn: Connection) -> list[Passage]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return []
        return rows.page_after(conn, scope_id, after, limit)

    return await read(memory, work)


async def get_passage(memory: Memory, scope: Scope, ident: str) -> Passage:
    """Return one passage. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> Passage | None:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return None
        return rows.get(conn, [scope_id], ident)

    passage = await read(memory, work)
    if passage is None:
        raise _not_found(ident[:80])
    return passage


async def search_passages(
    memory: Memory, scope: Scope, passage_filter: PassageFilter
) -> list[Passage]:
    """Search passages, best first; without words, the newest. Raises StoreUnavailable."""
    scope_id = await find_scope(memory, scope)
    if scope_id is None:
        return []
    return await memory.retrieval.passages(scope_id, passage_filter)


async def search_all(memory: Memory, scope: Scope, passage_filter: PassageFilter) -> list[Passage]:
    """Search the passages of a user and of all layers that they read, each hit with its layer.

    Raises StoreUnavailable.
    """

    def work(conn: Connection) -> list[tuple[str, int | None]]:
        if scope.project:
            own_scopes = [scope, scope.general]
        else:
            own_scopes = [scope]
        layer_list = layers.list_layers(conn, scope)
        return [
            *((OWN, scopes.find(conn, own_scope)) for own_scope in own_scopes),
            *((layer.label, layer.scope_id) for layer in layer_list),
        ]

    return await search_layers(memory.retrieval, await read(memory, work), passage_filter)


def check_passage(content: str, kind: str, importance: float) -> None:
    """Raise BadArguments if the values are not valid for a passage."""
    rows.check(content, kind, importance)


async def add_passage(
    memory: Memory, actor: ManagementActor, new_passage: NewPassage
) -> list[Passage]:
    """Store a text as passages; existing ones are returned unchanged.

    Raises StoreUnavailable.
    """
    return await _write(
        memory, actor, lambda conn: rows.add(conn, touch_scope(conn, actor.scope), new_passage)[0]
    )


async def edit_passage(
    memory: Memory, actor: ManagementActor, ident: str, change: PassageChange
) -> Passage:
    """Change a passage and return it; its older wording is set aside.

    Raises NotFound, BadArguments, StoreUnavailable.
    """

    def work(conn: Connection) -> Passage:
        scope_id = touch_scope(conn, actor.scope)
        return passage_edits.revise(conn, scope_id, ident, change, actor.source.actor)

    return await _write(memory, actor, work)


async def list_older(memory: Memory, scope: Scope, ident: str) -> list[Passage]:
    """List what a passage superseded, newest first. Raises StoreUnavailable."""

    def work(conn: Connection) -> list[Passage]:
        scope_id = scopes.find(conn, scope)
        if scope_id is None:
            return []
        return passage_edits.older_wordings(conn, scope_id, ident)

    return await read(memory, work)


async def undo_passage(memory: Memory, actor: ManagementActor, ident: str) -> Passage:
    """Undo the newest change of a passage. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> Passage:
        return passage_edits.undo(conn, touch_scope(conn, actor.scope), ident)

    return await _write(memory, actor, work)


async def undo_newest(memory: Memory, actor: ManagementActor) -> UndoneChange:
    """Undo the newest change, of a block or a passage, and say which it was.

    Raises NotFound, BlockReadOnly, BlockFull, StoreUnavailable.
    """

    def work(conn: Connection) -> UndoneChange:
        scope_id = touch_scope(conn, actor.scope)
        newest_edit = passage_edits.find_newest(conn, scope_id)
        if newest_edit is None:
            raise NotFound("There is no change to undo.")
        kind = newest_edit.kind
        name = newest_edit.name
        if kind == "block":
            block = blocks.undo(conn, BlockSet(scope_id, actor.defaults), name, actor.source)
            return UndoneChange(kind, name, None if block is None else block.value)
        if kind == "edited":
            return UndoneChange(kind, name, passage_edits.undo(conn, scope_id, name)["content"])
        if kind == "forgotten":
            passage = passage_lifecycle.restore(conn, scope_id, name)
            return UndoneChange(kind, name, passage["content"] if passage else None)
        passage = rows.get(conn, [scope_id], name)
        passage_lifecycle.set_aside(conn, scope_id, name, passage_edits.UNDO)
        return UndoneChange(kind, name, passage["content"] if passage else None)

    return await _write(memory, actor, work)


async def restore_passage(memory: Memory, actor: ManagementActor, ident: str) -> Passage:
    """Restore a passage that was set aside. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> Passage:
        passage = passage_lifecycle.restore(conn, touch_scope(conn, actor.scope), ident)
        if passage is None:
            raise _not_found(ident)
        return passage

    return await _write(memory, actor, work)


async def set_passage_aside(memory: Memory, actor: ManagementActor, ident: str) -> None:
    """Take a passage out of every search; `restore_passage` brings it back.

    Raises NotFound, StoreUnavailable.
    """

    def work(conn: Connection) -> None:
        scope_id = touch_scope(conn, actor.scope)
        if not passage_lifecycle.set_aside(conn, scope_id, ident, actor.source.actor):
            raise _not_found(ident)

    await _write(memory, actor, work)


async def delete_passage(memory: Memory, actor: ManagementActor, ident: str) -> None:
    """Remove a passage, in the indexes too. Raises NotFound, StoreUnavailable."""

    def work(conn: Connection) -> None:
        scope_id = touch_scope(conn, actor.scope)
        key = rows.remove(conn, [scope_id], ident)
        if key is None:
            raise _not_found(ident)
        enqueue(conn, QueuedJob("erase", {"scopes": [], "passages": {str(scope_id): [key]}}))

    await _write(memory, actor, work)


def _not_found(ident: str) -> NotFound:
    return NotFound(f"There is no passage {ident!r} here.")
