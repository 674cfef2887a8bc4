"""Search over one scope's archival and recall memory: keywords, and vectors if configured.

An embedder that fails or is slow only costs its part of the ranking, never the search; a text that
it refuses only lacks its vector. Scopes with fewer than `exact_below` vectors are scored exactly,
larger ones in the index. Of unnamed users only passages are embedded: their messages are found by
keywords, so that they cost no embedder calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from sys import getsizeof
from typing import Any, Protocol

from sqlalchemy import Connection

from memory.cache import Cache
from memory.embed.base import Embed, EmbedRefused, EmbedUnavailable
from memory.errors import StoreUnavailable
from memory.retrieval.indexer import Indexer
from memory.search.query import QUERY, without_names
from memory.search.ranking import NEAREST, SimilarityScores
from memory.search.similarity import near, pack_vector, unpack_vector
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.sqlite.fts import speakers
from memory.stores.sql.index import vectors as vector_rows
from memory.stores.sql.index.vectors import KINDS, MESSAGES, PASSAGES, VectorKind, VectorSet
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows import passage_lifecycle
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.rows.jobs import QueuedJob

log = logging.getLogger("mnemogate")
EMBED_SECONDS = 2.0
# Texts embedded and stored together.
BATCH = 64
# Harmless: an embedder that refuses it refuses every text.
PLAIN = "hello"
# Vectors written at once during turns, about one turn's.
SMALL_BATCH = 8
# Budget of one job; remaining work is queued again. Erasures share this worker and must not wait
# longer.
JOB_SECONDS = 10.0
# cache of query vectors: both searches of a turn, and the next page, use the same query
ASKED_BYTES = 1 << 20
ASKED_EACH = 300
# Bytes of each number of a vector.
NUMBER = 44
# One hour in row keys, so that a clock that was set back leaves no message without a vector.
OVERLAP = 3_600_000_000 << 12
# Vectors added to the index at once.
PAGE = 500
Hit = dict[str, Any]


class VectorIndex(Protocol):
    """An index for large scopes: named collections of vectors by row key.

    Every method raises StoreUnavailable.
    """

    async def upsert(self, name: str, items: Sequence[tuple[int, list[float]]]) -> None: ...

    async def nearest(self, name: str, vector: list[float], limit: int) -> dict[int, float]: ...

    async def forget(self, prefix: str, keys: Sequence[int] | None) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RecallHits:
    """What automatic recall chooses from.

    outdated: facts that were corrected or forgotten.
    """

    passages: Sequence[Hit] = ()
    messages: Sequence[Hit] = ()
    outdated: Sequence[str] = ()


@dataclass(slots=True)
class SemanticSearch:
    """The embedder, and the index for scopes with `exact_below` vectors or more.

    index: None to score all scopes exactly.
    """

    embed: Embed
    index: VectorIndex | None = None
    exact_below: int = 5000


def _weight(query: tuple[str, str], vector: list[float]) -> int:
    return sum(map(getsizeof, query)) + NUMBER * len(vector)


class Retriever:
    """Implements the tools' `MemorySearch` over the database. busy: see `Indexer`."""

    def __init__(
        self, db: Database, meaning: SemanticSearch | None = None, busy_scopes: Collection[int] = ()
    ) -> None:
        self._db = db
        self.indexing = Indexer(db, busy_scopes)
        self.meaning = meaning
        self.asked: Cache[tuple[str, str], list[float]] = Cache(ASKED_BYTES, ASKED_EACH, _weight)

    async def messages(self, scope_id: int, query: message_rows.SearchQuery) -> list[Hit]:
        """Search messages, best first.

        A hit has role, content, conversation, created_at, score and why.
        """
        query = replace(query, text=query.text[:QUERY])
        if query.text.strip():
            await self.indexing.ensure_indexed(scope_id)
        similarity = await self._near(
            MESSAGES, scope_id, query.text, message_rows.filter_keys(scope_id, query)
        )
        return await self._db.read(
            lambda conn: message_rows.search(conn, scope_id, query, similarity)
        )

    async def passages(
        self, scope_id: int, passage_filter: passage_rows.PassageFilter
    ) -> list[Hit]:
        """Search passages, best first.

        A hit has id, content, tags, created_at, score and why.
        """
        passage_filter = replace(
            passage_filter,
            query=replace(passage_filter.query, text=passage_filter.query.text[:QUERY]),
        )
        similarity = await self._near(
            PASSAGES,
            scope_id,
            passage_filter.query.text,
            passage_rows.filter_keys(scope_id, passage_filter),
        )
        return await self._db.read(
            lambda conn: passage_rows.search(conn, scope_id, passage_filter, similarity)
        )

    async def recall(
        self, scope_id: int, query: message_rows.SearchQuery, sent_id: int | None
    ) -> RecallHits:
        """Search passages and messages at once, as automatic recall does.

        Turns of other conversations are filed before. sent_id: the conversation whose messages are
        all in the request, so that they need no index.
        """
        if sent_id is not None and not await self._db.read(
            lambda conn: message_rows.is_more_than(conn, scope_id, sent_id),
            small=True,
            of=NO_TURNS,
        ):
            return RecallHits()
        filters = passage_rows.PassageFilter(query)
        await self.indexing.ensure_indexed(scope_id, sent_id, journal_key=NO_TURNS)
        close = SimilarityScores()
        similarity = SimilarityScores()
        if self.meaning is not None:
            keys = passage_rows.filter_keys(scope_id, filters)
            close = await self._near(PASSAGES, scope_id, query.text, keys)
            keys = message_rows.filter_keys(scope_id, query)
            similarity = await self._near(MESSAGES, scope_id, query.text, keys)

        def read(conn: Connection) -> RecallHits:
            passages = passage_rows.search(conn, scope_id, filters, close)
            messages = message_rows.search(conn, scope_id, query, similarity)
            if not passages and not messages:
                return RecallHits()
            return RecallHits(passages, messages, passage_lifecycle.list_outdated(conn, scope_id))

        # A few rows are read sooner than another thread is asked; many would hold the event loop.
        is_small = not self._db.is_shared and await self._db.read(
            lambda conn: message_rows.has_few(conn, scope_id), small=True, of=NO_TURNS
        )
        return await self._db.read(read, small=is_small, of=NO_TURNS)

    async def _near(
        self, kind: VectorKind, scope_id: int, words: str, row_filter: Any
    ) -> SimilarityScores:
        """Return the similarity of rows that may be shown; empty if no vectors are available.

        row_filter: a query of their row keys, None for all.
        """
        meaning = self.meaning
        if meaning is None or not words.strip():
            return SimilarityScores()
        part = VectorSet(kind, scope_id, meaning.embed.model)
        try:
            owner, vector_count, names = await self._db.read(
                lambda conn: (
                    vector_rows.owner(conn, scope_id),
                    vector_rows.count(conn, part, meaning.exact_below, row_filter),
                    speakers(conn, kind.name, scope_id, words),
                )
            )
            if owner is None or not vector_count:
                return SimilarityScores()
            # A name is similar to what is said to that person, not by them; speakers and tags are
            # matched by keyword.
            vector = await self._vector(meaning.embed, owner[0], without_names(words, names))
            if meaning.index is not None and vector_count >= meaning.exact_below:
                return SimilarityScores(
                    await meaning.index.nearest(
                        _name(part), unpack_vector(pack_vector(vector)), NEAREST
                    )
                )
            return await self._db.read(
                lambda conn: near(vector, vector_rows.of_scope(conn, part, row_filter))
            )
        except (EmbedRefused, EmbedUnavailable, StoreUnavailable, TimeoutError):
            return SimilarityScores()

    async def _vector(self, embed: Embed, tenant: str, words: str) -> list[float]:
        """Return the query's vector. Raises EmbedRefused, EmbedUnavailable, TimeoutError."""
        if (cached_vector := self.asked.get((tenant, words))) is not None:
            return cached_vector
        async with asyncio.timeout(EMBED_SECONDS):
            vector = (await embed(tenant, [words[: vector_rows.MAX_TEXT_CHARACTERS]]))[0]
        self.asked.put((tenant, words), vector)
        return vector

    def jobs(self, scope_id: int | None) -> list[QueuedJob]:
        """Return the jobs to queue when messages of a named user were recorded."""
        if self.meaning is not None and scope_id is not None:
            return [vector_rows.job_of(scope_id)]
        return []

    async def embed_scope(self, scope_id: int, all_rows: bool = False) -> bool:
        """Make the missing vectors of a scope, for a few seconds; idempotent.

        all_rows: check every row, and index a large scope completely. Returns whether more is to be
        done. Raises EmbedUnavailable, StoreUnavailable.
        """
        meaning = self.meaning
        owner = await self._db.read(lambda conn: vector_rows.owner(conn, scope_id))
        if meaning is None or owner is None:
            return False
        tenant, has_name = owner
        deadline = time.monotonic() + JOB_SECONDS
        for kind in KINDS if has_name else (PASSAGES,):
            part = VectorSet(kind, scope_id, meaning.embed.model)
            # Passages may be restored, messages are only appended.
            if all_rows or kind is PASSAGES:
                after_key = 0
            else:
                after_key = await self._db.read(partial(vector_rows.newest, part=part)) - OVERLAP
            size = BATCH
            while items := await self._db.read(
                partial(vector_rows.find_missing, part=part, after=after_key, limit=size)
            ):
                if time.monotonic() > deadline:
                    return True
                stored_count = await self._make(meaning, part, tenant, items)
                after_key = items[stored_count - 1][0]
                size = min(2 * stored_count, BATCH)
            if (
                all_rows
                and meaning.index is not None
                and await self._many(part, meaning) >= meaning.exact_below
            ):
                await self._put_whole(meaning.index, part)
        return False

    async def _make(
        self,
        meaning: SemanticSearch,
        part: VectorSet,
        tenant: str,
        items: Sequence[tuple[int, str]],
    ) -> int:
        """Make and store the vectors of texts.

        If the embedder refuses some text, retries with half of them, and so on, and skips that one.
        Returns how many of the first texts are done. Raises EmbedUnavailable, StoreUnavailable.
        """
        batch_items = items
        while True:
            try:
                vectors = await meaning.embed(tenant, [text for _, text in batch_items])
            except EmbedRefused:
                if batch_items is items:
                    await _works(meaning.embed, tenant)
                if len(batch_items) == 1:
                    await self._pass_over(part, batch_items[0][0])
                    return 1
                batch_items = batch_items[: len(batch_items) // 2]
            else:
                await self._keep(
                    meaning,
                    part,
                    {
                        key: pack_vector(vector)
                        for (key, _), vector in zip(batch_items, vectors, strict=True)
                    },
                )
                return len(batch_items)

    async def _pass_over(self, part: VectorSet, key: int) -> None:
        await self._db.write(
            lambda conn: vector_rows.pass_over(conn, part, key), small=True, lock=part.scope_id
        )
        log.warning(
            "%s refused a text (%s, row %d): only keyword search finds it",
            part.model,
            part.kind.name,
            key,
        )

    async def _keep(
        self, meaning: SemanticSearch, part: VectorSet, new_vectors: Mapping[int, bytes]
    ) -> None:
        """Store vectors, first in the index: what has a vector in SQL is in the index.

        A scope that has just become large is indexed completely. Rows that another worker deleted
        meanwhile are taken out of the index again: its own job may have run before they were put.
        """
        put_keys: set[int] = set()
        if meaning.index is not None:
            vector_count = await self._many(part, meaning)
            if vector_count + len(new_vectors) >= meaning.exact_below:
                if vector_count < meaning.exact_below:
                    await self._put_whole(meaning.index, part)
                put_keys = await self._still_there(part, new_vectors)
                await _put(meaning.index, part, {key: new_vectors[key] for key in put_keys})
        stored_keys = await self._db.write(
            lambda conn: vector_rows.store(conn, part, new_vectors),
            small=len(new_vectors) <= SMALL_BATCH,
            lock=part.scope_id,
        )
        await self._take_out(part, put_keys - stored_keys)

    async def _still_there(self, part: VectorSet, keys: Collection[int]) -> set[int]:
        return await self._db.read(lambda conn: vector_rows.still_there(conn, part, keys))

    async def _take_out(self, part: VectorSet, removed_keys: Collection[int]) -> None:
        """Take vectors out of the index whose rows are gone."""
        if removed_keys:
            await self.forget(part.scope_id, part.kind.name, sorted(removed_keys))

    async def _many(self, part: VectorSet, meaning: SemanticSearch) -> int:
        return await self._db.read(lambda conn: vector_rows.count(conn, part, meaning.exact_below))

    async def _put_whole(self, index: VectorIndex, part: VectorSet) -> None:
        after_key = 0
        while stored_vectors := await self._db.read(
            partial(vector_rows.page, part=part, after=after_key, limit=PAGE)
        ):
            await _put(index, part, stored_vectors)
            await self._take_out(
                part, stored_vectors.keys() - await self._still_there(part, stored_vectors)
            )
            after_key = max(stored_vectors)

    async def forget(self, scope_id: int, kind: str | None, keys: Sequence[int] | None) -> None:
        """Remove vectors from the index by row key.

        kind None: both kinds; keys None: all. Raises StoreUnavailable.
        """
        if self.meaning is not None and self.meaning.index is not None:
            await self.meaning.index.forget(
                f"scope-{scope_id}-{kind}-" if kind else f"scope-{scope_id}-", keys
            )


async def _works(embed: Embed, tenant: str) -> None:
    """Raise EmbedUnavailable if the embedder refuses every text, for example any model name."""
    try:
        await embed(tenant, [PLAIN])
    except EmbedRefused as e:
        raise EmbedUnavailable(f"the embedder refuses every text: {e}") from e


async def _put(index: VectorIndex, part: VectorSet, stored_vectors: Mapping[int, bytes]) -> None:
    if not stored_vectors:
        return
    await index.upsert(_name(part), [(k, unpack_vector(v)) for k, v in stored_vectors.items()])


def _name(part: VectorSet) -> str:
    """Return the collection of a scope, kind and model."""
    model = hashlib.blake2b(part.model.encode(), digest_size=6).hexdigest()
    return f"scope-{part.scope_id}-{part.kind.name}-{model}"
