"""Search over one scope's archival and recall memory: keywords always, vectors beside them where an embedder is configured.

An embedder that fails or is slow costs its part of the ranking, never the search. Scopes under `exact_below` vectors are
scored exactly, larger ones in the index.
"""
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memory.embed.base import Embed, EmbedUnavailable
from memory.errors import StoreUnavailable
from memory.indexing import Indexing
from memory.stores.sql import messages as message_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql import vectors as vector_rows
from memory.stores.sql.engine import Database
from memory.vectors import packed, scored, unpacked

POOL = 50  # candidates of each ranking that are fused
EMBED_SECONDS = 2.0
BATCH = 64  # passages embedded and kept together
Hit = dict[str, Any]


class VectorIndex(Protocol):
    """An index of large scopes, by row key. Every method raises StoreUnavailable."""

    async def upsert(self, scope_id: int, items: Sequence[tuple[int, list[float]]]) -> None: ...

    async def nearest(self, scope_id: int, vector: list[float], limit: int) -> dict[int, float]: ...

    async def forget(self, scope_id: int, keys: Sequence[int] | None) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Meaning:
    """Search by meaning: the embedder, the index for scopes of `exact_below` vectors and more (None: always exact)."""

    embed: Embed
    index: VectorIndex | None = None
    exact_below: int = 5000


class Retrieval:
    """Implements the tools' Finder over the database."""

    def __init__(self, db: Database, meaning: Meaning | None = None) -> None:
        self._db = db
        self.indexing = Indexing(db)
        self.meaning = meaning

    async def messages(self, scope_id: int, wanted: message_rows.Query) -> list[Hit]:
        """Messages, best first, with role, content, conversation, created_at, score and why."""
        if wanted.text.strip():
            await self.indexing.caught_up(scope_id)
        return await self._db.read(lambda conn: message_rows.search(conn, scope_id, wanted))

    async def passages(self, scope_id: int, wanted: passage_rows.Filter) -> list[Hit]:
        """Passages, best first, with id, content, tags, created_at, score and why."""
        near = await self._near(scope_id, wanted)
        return await self._db.read(lambda conn: passage_rows.search(conn, scope_id, wanted, near))

    async def _near(self, scope_id: int, wanted: passage_rows.Filter) -> dict[int, float]:
        """Row key to similarity of the nearest passages; nothing where meaning cannot be asked now."""
        meaning, words = self.meaning, wanted.query.text
        if meaning is None or not words.strip():
            return {}
        try:
            tenant, many = await self._db.read(lambda conn: vector_rows.extent(conn, scope_id, meaning.embed.model))
            if not many:
                return {}
            async with asyncio.timeout(EMBED_SECONDS):
                vector = (await meaning.embed(tenant, [words]))[0]
            if meaning.index is not None and many >= meaning.exact_below:
                return await meaning.index.nearest(scope_id, unpacked(packed(vector)), POOL)
            stored = await self._db.read(lambda conn: vector_rows.of_scope(conn, scope_id, meaning.embed.model))
            return scored(vector, stored, POOL)
        except (EmbedUnavailable, StoreUnavailable, TimeoutError):
            return {}

    async def embed_scope(self, scope_id: int, whole: bool = False) -> None:
        """Makes the missing vectors of a scope's passages; doing it again does nothing. whole: and puts all of a large scope into
        the index anew. Raises EmbedUnavailable, StoreUnavailable."""
        meaning = self.meaning
        if meaning is None:
            return
        model = meaning.embed.model
        tenant, _ = await self._db.read(lambda conn: vector_rows.extent(conn, scope_id, model))
        while items := await self._db.read(lambda conn: vector_rows.missing(conn, scope_id, model, BATCH)):
            made = await meaning.embed(tenant, [content for _, content in items])
            found = {key: packed(vector) for (key, _), vector in zip(items, made, strict=True)}
            await self._db.write(lambda conn, found=found: vector_rows.store(conn, scope_id, model, found))  # type: ignore[misc]
            await self._index(meaning, scope_id, found)
        if whole:
            await self._index(meaning, scope_id, await self._db.read(lambda conn: vector_rows.of_scope(conn, scope_id, model)))

    async def _index(self, meaning: Meaning, scope_id: int, new: dict[int, bytes]) -> None:
        """Keeps the index of a large scope complete: a scope that just grew large is put into it whole."""
        if meaning.index is None:
            return
        model = meaning.embed.model
        _, many = await self._db.read(lambda conn: vector_rows.extent(conn, scope_id, model))
        if many < meaning.exact_below:
            return
        stored = new
        if many - len(new) < meaning.exact_below:
            stored = await self._db.read(lambda conn: vector_rows.of_scope(conn, scope_id, model))
        await meaning.index.upsert(scope_id, [(k, unpacked(v)) for k, v in stored.items()])
