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

TOGETHER = 8  # layers that are searched side by side


class PassageSearch(Protocol):
    """Searches the passages of one scope."""

    async def passages(self, scope_id: int, wanted: PassageFilter) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class ReadLayers:
    """The layers of one request. scope: whose memory reads them, None where there are none."""

    scope: Scope | None = None
    layers: Sequence[Layer] = ()

    @property
    def writer(self) -> str | None:
        """The user in whose name something is shared."""
        return None if self.scope is None or self.scope.is_home else self.scope.user

    async def search(
        self, finder: PassageSearch, own: int | None, wanted: PassageFilter
    ) -> list[dict[str, Any]]:
        """Search the passages of a scope and of all layers together, best first.

        Each hit names its layer, unless there are none. Raises StoreUnavailable.
        """
        if not self.layers:
            return [] if own is None else await finder.passages(own, wanted)
        return await search_layers(finder, [(OWN, own), *self._rows()], wanted)

    def _rows(self) -> list[tuple[str, int | None]]:
        return [(layer.label, layer.scope_id) for layer in self.layers]

    def writable_row(self, conn: Connection, label: str) -> int:
        """Return the row of a layer to share with. Raises BadArguments."""
        if self.scope is None:
            raise BadArguments("`share` is not possible here: leave it out.")
        layer, row = layer_rows.writable_row(conn, self.scope, label)
        if layer.scope_id is None:  # others look there from now on
            shared_blocks.raise_changes(conn, self.scope.tenant, layered=True)
        return row

    def row_of(self, conn: Connection, own: int, ident: str) -> int:
        """Return the row of the memory that holds a passage and that this request may write.

        own: its own, also where nothing holds the passage. Raises BadArguments where it may not.
        """
        if self.scope is None or passages.get(conn, [own], ident) is not None:
            return own
        for layer in self._read_now(conn):
            if layer.scope_id is None or passages.get(conn, [layer.scope_id], ident) is None:
                continue
            if not layer.write:
                raise BadArguments(
                    f"{ident!r:.80} is of {_described(layer)}, which cannot be written here."
                )
            return layer.scope_id
        return own

    def find_exact(self, conn: Connection, own: int, content: str) -> str | None:
        """Return the id of the passage that reads so, in the nearest memory that has it."""
        rows = [own, *[row for _, row in self._rows() if row is not None]]
        found = (passages.find_exact(conn, row, content) for row in rows)
        return next((ident for ident in found if ident), None)

    def _read_now(self, conn: Connection) -> list[Layer]:
        """Return the layers as they are in this transaction: somebody may have left one."""
        assert self.scope is not None  # noqa: S101 - the caller looked
        general = [layer for layer in self.layers if layer.kind == OWN]
        return [*general, *layer_rows.list_layers(conn, self.scope)]


NO_LAYERS = ReadLayers()


def _described(layer: Layer) -> str:
    return "the user's general memory" if layer.kind == OWN else layer.label


async def search_layers(
    finder: PassageSearch, rows: Sequence[tuple[str, int | None]], wanted: PassageFilter
) -> list[dict[str, Any]]:
    """Search several memories together, best first. rows: of each layer, the nearest first.

    Raises StoreUnavailable.
    """
    query = wanted.query
    most = query.offset + query.limit
    each = replace(wanted, query=replace(query, offset=0, limit=most))
    existing = [(label, row) for label, row in rows if row is not None]
    hits_by_layer: list[tuple[str, list[dict[str, Any]]]] = []
    for i in range(0, len(existing), TOGETHER):
        some = existing[i : i + TOGETHER]
        hits = await asyncio.gather(*(finder.passages(row, each) for _, row in some))
        hits_by_layer += zip([label for label, _ in some], hits, strict=True)
    return merge_hits(hits_by_layer, most)[query.offset :]
