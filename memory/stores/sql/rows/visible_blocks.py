"""The blocks that a memory shows: its own, and in their place shared ones of the same label."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from memory.core.block_space import BlockSpace, space_of
from memory.core.blocks import CoreBlock
from memory.core.layers import Layer
from memory.core.shared import ShownBlocks, choose_shown
from memory.scope import Scope
from memory.stores.sql.engine import schema as t
from memory.stores.sql.rows import blocks, general_memory, shared_blocks, shared_members
from memory.stores.sql.rows.blocks import BlockSet, Edit, EditSource
from memory.stores.sql.rows.layers import list_layers

Layers = Sequence[Layer]
General = general_memory.GeneralBlocks
read_general = general_memory.read_general
NOTHING_SHARED = ShownBlocks({})
BOUNDLESS = BlockSpace(sys.maxsize, sys.maxsize, sys.maxsize)


def read_own(
    conn: Connection, scope_id: int, defaults: Mapping[str, CoreBlock], branch: int
) -> dict[str, CoreBlock]:
    """Return the own blocks of a scope, or of a branch of it."""
    return blocks.all_of(conn, BlockSet(scope_id, defaults, branch, branch))


def read_shared(
    conn: Connection, scope: Scope, defaults: Mapping[str, CoreBlock], *, held: bool = False
) -> ShownBlocks:
    """Return the shared blocks that a named scope shows. held: keep others from editing them."""
    seen_blocks = shared_members.list_seen(conn, scope, held=held)
    return choose_shown(seen_blocks, space_of(defaults))


def read_with_layers(
    conn: Connection, scope: Scope, defaults: Mapping[str, CoreBlock], *, layered: bool
) -> ShownBlocks:
    """Return the shared blocks that a named scope shows, and the layers that it reads.

    layered: the tenant has layers.
    """
    shown_blocks = read_shared(conn, scope, defaults)
    if layered:
        return replace(shown_blocks, layers=list_layers(conn, scope))
    return shown_blocks


def read_layers(conn: Connection, scope: Scope, general: General | None) -> Layers:
    """Return the layers that a named scope reads beside its own memory, the nearest first.

    general: of a memory in a project, the blocks outside of it.
    """
    own_layers = [] if general is None else [read_general(conn, general).layer]
    return [*own_layers, *list_layers(conn, scope)]


def read_all(conn: Connection, block_set: BlockSet, scope: Scope) -> dict[str, CoreBlock]:
    """Return the blocks of a named scope, whether they fit its prompt or not."""
    seen_blocks = shared_members.list_seen(conn, scope)
    return choose_shown(seen_blocks, BOUNDLESS).over(blocks.all_of(conn, block_set))


def hide_own(
    conn: Connection,
    scope: Scope,
    own_blocks: Mapping[str, CoreBlock],
    defaults: Mapping[str, CoreBlock],
) -> dict[str, CoreBlock]:
    """Return own blocks, each with the id of the shared one that is shown in its place."""
    shown_blocks = read_shared(conn, scope, defaults).blocks
    hidden_blocks = {
        label: replace(block, hidden_by=shown_blocks[label].block.id)
        for label, block in own_blocks.items()
        if label in shown_blocks
    }
    return {**own_blocks, **hidden_blocks}


def is_hidden(conn: Connection, scope_id: int, label: str) -> bool:
    """Tell whether a shared block is shown in the place of an own one."""
    scopes = t.scopes.c
    query = (
        select(scopes.tenant, scopes.user, scopes.agent)
        .join(t.shared_changes, t.shared_changes.c.tenant == scopes.tenant)
        .where(scopes.id == scope_id)
    )
    row = conn.execute(query).first()
    if row is None or row.user is None:
        return False
    seen_blocks = shared_members.list_seen(conn, Scope(row.tenant, row.user, row.agent, b""))
    return any(seen_block.block.label == label for seen_block in seen_blocks)


class VisibleBlocks:
    """The blocks of one memory, as a transaction that may edit them reads them.

    Shared ones are held from the first edit on, all of them, so that no two wait for each other.
    """

    def __init__(self, conn: Connection, block_set: BlockSet) -> None:
        self._conn = conn
        self._shelf = block_set
        self._held = False
        self._shared = self._read()

    def _read(self) -> ShownBlocks:
        scope = self._shelf.shared
        if scope is None or not scope.is_named:
            return NOTHING_SHARED
        return read_shared(self._conn, scope, self._shelf.defaults, held=self._held)

    def hold(self, label: str) -> bool:
        """Keep others from editing a block, if it is shared; tell whether it is."""
        if label in self._shared.blocks and not self._held:
            self._held = True
            self._shared = self._read()
        return label in self._shared.blocks

    def read(self) -> dict[str, CoreBlock]:
        """Return the blocks by label, as they are now."""
        own_blocks = blocks.all_of(self._conn, self._shelf)
        if (general_blocks := self._shelf.general) is not None:
            own_blocks = {**general_blocks.read(self._conn), **own_blocks}
        return self._shared.over(own_blocks)

    def edit(self, label: str, editor: Edit, source: EditSource) -> CoreBlock | None:
        """Apply `editor` to a block, shared or not; see `blocks.edit`."""
        scope = self._shelf.shared
        if scope is None or not self.hold(label):
            return self._edit_own(label, editor, source)
        shown_block = self._shared.blocks[label].block

        def edit(block: CoreBlock) -> CoreBlock | None:
            new_block = editor(replace(block, read_only=shown_block.read_only))
            return new_block and replace(new_block, read_only=block.read_only)

        edited_block = shared_blocks.edit(
            self._conn, (scope.tenant, shown_block.id), edit, _by(source, scope)
        )
        self._shared = self._read()
        if edited_block is None:
            return None
        return replace(edited_block.block, read_only=shown_block.read_only)

    def _edit_own(self, label: str, editor: Edit, source: EditSource) -> CoreBlock | None:
        """Edit a block that is not shared: an own one, or in a project one outside of it."""
        conn = self._conn
        general_blocks = self._shelf.general
        if general_blocks is None or label in blocks.all_of(conn, self._shelf):
            return blocks.edit(conn, self._shelf, label, editor, source)
        if (general_block := general_blocks.read(conn).get(label)) is None:
            return blocks.edit(conn, self._shelf, label, editor, source)
        if not general_blocks.write:
            # Which refuses it, since it is read-only there.
            return editor(general_block)
        return blocks.edit(conn, general_blocks.edit_shelf(conn), label, editor, source)


def _by(source: EditSource, scope: Scope) -> EditSource:
    """Return who makes an edit, with whose request it is."""
    user = source.user
    if user is None and not scope.is_home:
        user = scope.user
    return replace(source, user=user, agent=scope.agent_name)
