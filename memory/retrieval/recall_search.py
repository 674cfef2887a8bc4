"""What passes the gate of automatic recall, by the postings in memory or by the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from memory.core.layers import OWN, Layer, merge_hits
from memory.retrieval.active_scopes import RECALLED, ActiveScopes
from memory.retrieval.gate import MIN_COVERAGE, pass_gate
from memory.retrieval.retriever import RecallHits, Retriever
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.rows import messages as message_rows
from memory.stores.sql.rows import recall_rows
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.recall_rows import RankedRows


class RecallSearch:
    """The search that each turn makes. Both ways find the same."""

    def __init__(self, db: Database, retriever: Retriever) -> None:
        self._db = db
        self._retriever = retriever
        self.active = ActiveScopes(db)

    async def may_find(self, scope_id: int, sent_id: int | None) -> bool:
        """Tell whether a scope holds anything but the conversation that is sent.

        Asked before a query is made of the message. Raises StoreUnavailable.
        """
        if sent_id is None or self.active.find(scope_id) is not None:
            return True
        await self._db.filer.file_of(self._db.journal.key_of(scope_id), None, sent_id)
        look = partial(message_rows.is_more_than, scope_id=scope_id, conversation=sent_id)
        return await self._db.read(look, small=True, of=NO_TURNS)

    async def find(self, scope_id: int, query: SearchQuery, sent_id: int | None) -> RecallHits:
        """Return the passages and messages that pass the gate. sent_id: see `Retriever.recall`.

        Raises StoreUnavailable.
        """
        # What follows reads nothing else that may wait in the journal.
        await self._db.filer.file_of(self._db.journal.key_of(scope_id), None, sent_id)
        if (ranked_rows := await self._rank_in_memory(scope_id, query, sent_id)) is not None:
            if ranked_rows.is_empty:
                return RecallHits()
            read_rows = partial(
                recall_rows.read, scope_id=scope_id, ranked_rows=ranked_rows, sent=sent_id
            )
            return RecallHits(*await self._db.read(read_rows, small=True, of=NO_TURNS))
        if self._is_plain(query):
            self.active.want(scope_id)
        recall_hits = await self._retriever.recall(
            scope_id, replace(query, least=MIN_COVERAGE), sent_id
        )
        passages = pass_gate(recall_hits.passages)
        messages = pass_gate(recall_hits.messages)
        return RecallHits(passages, messages, recall_hits.outdated)

    async def find_in_layers(
        self, own_scope: tuple[int | None, int | None], query: SearchQuery, layers: Sequence[Layer]
    ) -> RecallHits:
        """Return what passes the gate, of layers passages alone; see `find`.

        own_scope: the scope's row, and the conversation that is sent. Raises StoreUnavailable.
        """
        scope_id, sent_id = own_scope
        if scope_id is None:
            hits = RecallHits()
        else:
            hits = await self.find(scope_id, query, sent_id)
        hits_by_layer = [(OWN, hits.passages)]
        for layer in layers:
            if layer.scope_id is not None:
                layer_hits = await self.find(layer.scope_id, query, None)
                hits_by_layer.append((layer.label, layer_hits.passages))
        if len(hits_by_layer) == 1:
            return hits
        return replace(hits, passages=merge_hits(hits_by_layer, query.limit))

    async def _rank_in_memory(
        self, scope_id: int, query: SearchQuery, sent_id: int | None
    ) -> RankedRows | None:
        """Return what passes the gate by the postings in memory; None if the index is needed."""
        if not self._is_plain(query):
            return None
        scope = self.active.find(scope_id) or await self.active.read_few(scope_id)
        if scope is None or (
            scope.is_waiting(sent_id) and not await self.active.read_waiting(scope)
        ):
            return None
        return self.active.rank(scope, query.text)

    def _is_plain(self, query: SearchQuery) -> bool:
        """Tell whether words alone decide, of all that a named user said."""
        return self._retriever.meaning is None and query == replace(RECALLED, text=query.text)
