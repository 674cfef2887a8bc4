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

NOTHING_RANKED = RankedRows({}, {})


class RecallSearch:
    """The search that each turn makes. Both ways find the same."""

    def __init__(self, db: Database, retriever: Retriever) -> None:
        self._db, self._retriever = db, retriever
        self.active = ActiveScopes(db)

    async def find(self, scope_id: int, wanted: SearchQuery, sent: int | None) -> RecallHits:
        """Return the passages and messages that pass the gate. sent: see `Retriever.recall`.

        Raises StoreUnavailable.
        """
        # What follows reads nothing else that may wait in the journal.
        await self._db.filer.file_of(self._db.journal.key_of(scope_id), None, sent)
        if (ranked := await self._rank_in_memory(scope_id, wanted, sent)) is not None:
            if ranked.is_empty:
                return RecallHits()
            read = partial(recall_rows.read, scope_id=scope_id, ranked=ranked, sent=sent)
            return RecallHits(*await self._db.read(read, small=True, of=NO_TURNS))
        if self._is_plain(wanted):
            self.active.want(scope_id)
        found = await self._retriever.recall(scope_id, replace(wanted, least=MIN_COVERAGE), sent)
        passages, messages = pass_gate(found.passages), pass_gate(found.messages)
        return RecallHits(passages, messages, found.outdated)

    async def find_in_layers(
        self, own: tuple[int | None, int | None], wanted: SearchQuery, layers: Sequence[Layer]
    ) -> RecallHits:
        """Return what passes the gate, of layers passages alone; see `find`.

        own: the scope's row, and the conversation that is sent. Raises StoreUnavailable.
        """
        scope_id, sent = own
        hits = RecallHits() if scope_id is None else await self.find(scope_id, wanted, sent)
        hits_by_layer = [(OWN, hits.passages)]
        for layer in layers:
            if layer.scope_id is not None:
                more = await self.find(layer.scope_id, wanted, None)
                hits_by_layer.append((layer.label, more.passages))
        if len(hits_by_layer) == 1:
            return hits
        return replace(hits, passages=merge_hits(hits_by_layer, wanted.limit))

    async def _rank_in_memory(
        self, scope_id: int, wanted: SearchQuery, sent: int | None
    ) -> RankedRows | None:
        """Return what passes the gate by the postings in memory; None if the index is needed."""
        if not self._is_plain(wanted):
            return None
        scope = self.active.find(scope_id)
        if scope is None:
            if sent is not None:
                look = partial(message_rows.is_more_than, scope_id=scope_id, conversation=sent)
                if not await self._db.read(look, small=True, of=NO_TURNS):
                    return NOTHING_RANKED  # of such a scope nothing is worth keeping either
            scope = await self.active.read_few(scope_id)
        if scope is None or (scope.is_waiting(sent) and not await self.active.read_waiting(scope)):
            return None
        return self.active.rank(scope, wanted.text)

    def _is_plain(self, wanted: SearchQuery) -> bool:
        """Tell whether words alone decide, of all that a named user said."""
        return self._retriever.meaning is None and wanted == replace(RECALLED, text=wanted.text)
