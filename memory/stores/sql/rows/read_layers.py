"""The layers that a request reads beside its own memory, for search and for the memory tools."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from sqlalchemy import Connection

from memory.core.layers import OWN, Layer, merge_hits
from memory.errors import BadArguments
from memory.scope import Scope
from memory.stores.sql.rows import layers as layer_rows
from memory.stores.sql.rows import passages, shared_blocks
from memory.stores.sql.rows.passages import PassageFilter

# Layers that are searched side by side.
TOGETHER = 8


class PassageSearch(Protocol):
    """Searches the passages of one scope."""

    async def passages(
        self, scope_id: int, passage_filter: PassageFilter
    ) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class ReadLayers:
    """The layers of one request. scope: whose memory reads them, None where there are none."""

    scope: Scope | None = None
    layers: Sequence[Layer] = ()

    @property
    def writer(self) -> str | None:
        """The user in whose name something is shared."""
        if self.scope is None or self.scope.is_home:
            return None
        return self.scope.user

    async def search(
        self, finder: PassageSearch, own_row: int | None, passage_filter: PassageFilter
    ) -> list[dict[str, Any]]:
        """Search the passages of a scope and of all layers together, best first.

        Each hit names its layer, unless there are none. Raises StoreUnavailable.
        """
        if not self.layers:
            if own_row is None:
                return []
            return await finder.passages(own_row, passage_filter)
        return await search_layers(finder, [(OWN, own_row), *self._rows()], passage_filter)

    def _rows(self) -> list[tuple[str, int | None]]:
        return [(layer.label, layer.scope_id) for layer in self.layers]

    def writable_row(self, conn: Connection, label: str) -> int:
        """Return the row of a layer to share with. Raises BadArguments."""
        if self.scope is None:
            raise BadArguments("`share` is not possible here: leave it out.")
        layer, row = layer_rows.writable_row(conn, self.scope, label)
        # Others look there from now on.
        if layer.scope_id is None:
            shared_blocks.raise_changes(conn, self.scope.tenant, layered=True)
        return row

    def row_of(self, conn: Connection, own_row: int, ident: str) -> int:
        """Return the row of the memory that holds a passage and that this request may write.

        own_row: its own, also where nothing holds the passage. Raises BadArguments where it may
        not.
        """
        if self.scope is None or passages.get(conn, [own_row], ident) is not None:
            return own_row
        for layer in self._read_now(conn):
            if layer.scope_id is None or passages.get(conn, [layer.scope_id], ident) is None:
                continue
            if not layer.write:
                raise BadArguments(
                    f"{ident!r:.80} is of {_described(layer)}, which cannot be written here."
                )
            return layer.scope_id
        return own_row

    def find_exact(self, conn: Connection, own_row: int, content: str) -> str | None:
        """Return the id of the passage that reads so, in the nearest memory that has it."""
        rows = [own_row, *[row for _, row in self._rows() if row is not None]]
        found_ids = (passages.find_exact(conn, row, content) for row in rows)
        return next((ident for ident in found_ids if ident), None)

    def _read_now(self, conn: Connection) -> list[Layer]:
        """Return the layers as they are in this transaction: somebody may have left one."""
        assert self.scope is not None  # noqa: S101 - the caller looked
        own_layers = [layer for layer in self.layers if layer.kind == OWN]
        return [*own_layers, *layer_rows.list_layers(conn, self.scope)]


NO_LAYERS = ReadLayers()


def _described(layer: Layer) -> str:
    if layer.kind == OWN:
        return "the user's general memory"
    return layer.label


async def search_layers(
    finder: PassageSearch, rows: Sequence[tuple[str, int | None]], passage_filter: PassageFilter
) -> list[dict[str, Any]]:
    """Search several memories together, best first. rows: of each layer, the nearest first.

    Raises StoreUnavailable.
    """
    query = passage_filter.query
    max_hits = query.offset + query.limit
    layer_filter = replace(passage_filter, query=replace(query, offset=0, limit=max_hits))
    existing = [(label, row) for label, row in rows if row is not None]
    hits_by_layer: list[tuple[str, list[dict[str, Any]]]] = []
    for i in range(0, len(existing), TOGETHER):
        some_layers = existing[i : i + TOGETHER]
        hits = await asyncio.gather(*(finder.passages(row, layer_filter) for _, row in some_layers))
        hits_by_layer += zip([label for label, _ in some_layers], hits, strict=True)
    return merge_hits(hits_by_layer, max_hits)[query.offset :]
