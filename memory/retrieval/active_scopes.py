"""Keeps the postings of active scopes in memory, so that a turn need not ask the index.

- The postings of a scope with few rows are read by the search that needs them; of one with more
  when it is searched for the second time, in a thread, and the search does not wait for them. A
  scope with too many rows has none.
- What was said a moment ago has no words in the index yet: they are made of the texts, and the
  index takes them over when it is idle.
- They hold what the index holds at any time: `Database.version` tells of every write but the small
  ones of this process, and those are followed one by one (see `index_changes`). After any doubt
  they are dropped and read again.
- They are bounded in bytes. What was used a moment ago is not given up for others: where more
  scopes are active than fit, the rest are searched in the index.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from memory.errors import StoreUnavailable
from memory.retrieval.gate import ScoredHit, find_passing, may_pass
from memory.retrieval.stored_forms import StoredForms
from memory.search.postings import (
    BITS,
    PostedRow,
    ScopePostings,
    Stale,
    StoredTerms,
    stored_terms,
)
from memory.search.query import query_terms, scope_mark
from memory.search.ranking import DIGITS, Ranked, SimilarityScores, asks_when, rank
from memory.stores.sql.engine.database import NO_TURNS, Database
from memory.stores.sql.engine.sqlite.fts import MESSAGES_INDEX, PASSAGES_INDEX, QUICK_POOL
from memory.stores.sql.index import message_index, scope_postings
from memory.stores.sql.index.index_changes import DocumentWords, IndexChange, count_characters
from memory.stores.sql.index.message_index import MadeDocuments
from memory.stores.sql.rows.messages import SearchQuery
from memory.stores.sql.rows.recall_rows import RankedRows

log = logging.getLogger("mnemogate")
# Of all postings.
BYTES = 12 << 20
# Of a scope, beside its postings.
SCOPE_BYTES = 600
# After which a scope's postings make room for another's.
IDLE_SECONDS = 60.0
# Documents that were put and are not read yet.
MOST_UNREAD = 64
# That are read at once.
FEW_ROWS = 32
# Messages without words in the index: that a search makes words of, and of these at once.
MOST_WAITING, WAITING_BATCH = 512, 32
# Of texts whose words are made at once.
WAITING_CHARACTERS = 1 << 16
# Scopes that are known to have been searched, or to have no postings.
MOST_SEEN = 20_000
TABLES = (MESSAGES_INDEX, PASSAGES_INDEX)
# What automatic recall asks, but for the words.
RECALLED = SearchQuery("", ("user", "assistant"), limit=10, thorough=False, talk=True)


@dataclass(slots=True)
class ActiveScope:
    """The postings of one scope, by table; one that is missing has to be read."""

    scope_id: int
    parts: dict[str, ScopePostings] = field(default_factory=dict)
    unread: list[IndexChange] = field(default_factory=list)
    unread_characters: int = 0
    used: float = 0.0

    @property
    def is_whole(self) -> bool:
        return len(self.parts) == len(TABLES)

    @property
    def size(self) -> int:
        parts = sum([part.size for part in self.parts.values()])
        return SCOPE_BYTES + parts + self.unread_characters

    def is_waiting(self, but: int | None) -> bool:
        """Tell whether a message has no document yet. but: one of another conversation."""
        pending_rows = self.parts[MESSAGES_INDEX].pending
        return any(place != but for place in pending_rows.values())

    def drop(self, table: str) -> None:
        self.parts.pop(table, None)
        if table == MESSAGES_INDEX:
            self.unread = []
            self.unread_characters = 0

    def follow(self, change: IndexChange) -> None:
        """Take over a change of this scope, or drop what it may concern."""
        part = self.parts.get(change.table)
        if part is None:
            return
        try:
            if change.table == PASSAGES_INDEX or not (change.rows or change.words):
                raise Stale
            for row in change.rows:
                part.add_row(_posted(row))
            if change.words is not None and not part.take_ahead(change.key):
                if len(self.unread) >= MOST_UNREAD:
                    raise Stale
                self.unread.append(change)
                self.unread_characters += count_characters(change)
        except Stale:
            self.drop(change.table)


def _posted(row: Mapping[str, Any]) -> PostedRow:
    """Return a stored message as a row; where a task is concerned all is read again."""
    is_recallable = row["role"] in RECALLED.roles and row["content"] != ""
    return PostedRow(
        row["id"], row["conversation"], row["created_at"], is_recallable, is_recallable
    )


def _columns_of_words(document: DocumentWords, forms: Mapping[str, str]) -> dict[str, int]:
    """Return the stored forms of a document's words with their columns."""
    columns_by_form: dict[str, int] = {}
    for column, words in document.items():
        column_bit = BITS[column]
        for form in map(forms.__getitem__, words):
            columns_by_form[form] = columns_by_form.get(form, 0) | column_bit
    return columns_by_form


def _rank(part: ScopePostings, query: str, terms: StoredTerms) -> dict[int, Ranked]:
    """Return the row keys that pass the gate, best first."""
    if not len(part.rows):
        return {}
    matches = part.weigh(terms.terms)
    if not may_pass(matches.best_coverage(), is_sharing=bool(matches.sharing)):
        return {}
    if terms.voice is not None:
        matches.voiced = part.said_by(terms.voice)
    limits = (max(QUICK_POOL, RECALLED.limit), RECALLED.limit)
    ranked_rows = rank(part.rows, query, matches, SimilarityScores(), limits)[0]
    numbers = list(ranked_rows)
    scored = [
        ScoredHit(round(x.score, DIGITS), round(x.coverage, DIGITS), x.is_sharing)
        for x in ranked_rows.values()
    ]
    passing = [numbers[i] for i in find_passing(scored)]
    return {part.rows.keys[n]: ranked_rows[n] for n in passing}


def _has(part: ScopePostings, change: IndexChange) -> bool:
    """Tell whether what was read has a change already."""
    if change.rows:
        return all(part.rows.number(row["id"]) is not None for row in change.rows)
    number = None
    if change.words is not None:
        number = part.rows.number(change.key)
    return number is not None and number not in part.pending


class ActiveScopes:
    """The postings of the scopes that are searched now. most: their bytes."""

    def __init__(self, db: Database, max_bytes: int = BYTES) -> None:
        self._db = db
        self._max_bytes = max_bytes
        self._forms = StoredForms()
        self._version: tuple[int, int] | None = None
        # The one used last comes last.
        self._scopes: dict[int, ActiveScope] = {}
        # Whether its postings can be read.
        self._seen_changes: dict[int, bool] = {}
        self._reading: dict[int, asyncio.Task[None]] = {}
        # What happened to scopes while they are read; None after what cannot be followed.
        self._meanwhile: dict[int, list[IndexChange] | None] = {}
        self.held = 0

    def find(self, scope_id: int) -> ActiveScope | None:
        """Return the postings of a scope as the index is now; None if they are not at hand."""
        if not self._catch_up():
            return None
        scope = self._scopes.get(scope_id)
        if scope is not None:
            self._read_documents(scope)
            if scope.is_whole:
                scope.used = time.monotonic()
                self._scopes[scope_id] = self._scopes.pop(scope_id)
                return scope
        return None

    def want(self, scope_id: int) -> None:
        """Read the postings of a scope that was searched before, if there is room.

        The search that asks for them does not wait.
        """
        scope = self._scopes.get(scope_id)
        is_read = scope_id in self._reading or scope_id in self._meanwhile
        if self._version is None or is_read or (scope and scope.is_whole):
            return
        if scope_id not in self._seen_changes:
            if len(self._seen_changes) >= MOST_SEEN:
                self._seen_changes.clear()
            self._seen_changes[scope_id] = True
        elif self._seen_changes[scope_id] and self._has_room():
            task = asyncio.create_task(self._read(scope_id), name="memory-postings")
            self._reading[scope_id] = task
            task.add_done_callback(lambda _: self._reading.pop(scope_id, None))

    def rank(self, scope: ActiveScope, query: str) -> RankedRows | None:
        """Return what passes the gate for a query; None if the index has to be asked."""
        if asks_when(query) or (terms := self.stored_query(scope.scope_id, query)) is None:
            # The first looks at texts.
            return None
        return RankedRows(
            _rank(scope.parts[PASSAGES_INDEX], query, terms),
            _rank(scope.parts[MESSAGES_INDEX], query, terms),
        )

    def stored_query(self, scope_id: int, query: str) -> StoredTerms | None:
        """Return the terms of a quick query as they are stored.

        None if there are none, or a word of it is several in the index.
        """
        terms = query_terms(query, thorough=False)
        words = [word for term in terms.terms for word in term.words]
        if terms.voice is not None:
            words += [terms.voice]
        if not words:
            return None
        try:
            forms = self._forms.look_up(words, scope_mark(scope_id), keep_all=True)
        except Stale:
            return None
        return stored_terms(terms, forms)

    async def read_few(self, scope_id: int) -> ActiveScope | None:
        """Read the postings of a scope with few rows; None if it has more, or they are not read.

        The search that asks for them waits.
        """
        if (
            self._version is None
            or scope_id in self._meanwhile
            or self._seen_changes.get(scope_id) is False
            or not self._has_room()
        ):
            return None
        await self._read(scope_id, FEW_ROWS)
        return self.find(scope_id)

    async def read_waiting(self, scope: ActiveScope) -> bool:
        """Add what waits for the index, by its texts; return whether that is all there is."""
        waiting_count = len(scope.parts[MESSAGES_INDEX].pending)
        if waiting_count > MOST_WAITING:
            return False
        while await self._read_some(scope):
            pending_count = len(scope.parts[MESSAGES_INDEX].pending)
            if not pending_count:
                return True
            if pending_count >= waiting_count:
                return False
            waiting_count = pending_count
            # Others run between the portions.
            await asyncio.sleep(0)
        return False

    async def _read_some(self, scope: ActiveScope) -> bool:
        """Add some documents that wait; return whether the scope is still whole and at hand."""
        part = scope.parts.get(MESSAGES_INDEX)
        if part is None:
            return False
        keys = [part.rows.keys[number] for number in islice(part.pending, WAITING_BATCH)]
        make = partial(message_index.make_documents, keys=keys, max_characters=WAITING_CHARACTERS)
        try:
            documents = await self._db.read(make, small=True, of=NO_TURNS)
        except StoreUnavailable:
            return False
        if documents is None or self.find(scope.scope_id) is not scope:
            return False
        self._weigh(scope, lambda s: self._add_made(s, documents))
        # Of others first, since this one was used just now.
        self._make_room()
        return scope.is_whole

    def _add_made(self, scope: ActiveScope, made_documents: MadeDocuments) -> None:
        """Add documents that the index does not have yet, and keep them for it."""
        part = scope.parts[MESSAGES_INDEX]
        pending_by_key = {part.rows.keys[number]: number for number in part.pending}
        documents = {
            key: made_documents.words[key] for key in pending_by_key if key in made_documents.words
        }
        try:
            self._add_documents(part, documents, scope_mark(scope.scope_id))
        except Stale:
            scope.drop(MESSAGES_INDEX)
            return
        part.ahead.update([pending_by_key[key] for key in documents])
        for key, document in documents.items():
            self._db.index_changes.keep_document(key, made_documents.limit, document)

    async def close(self) -> None:
        """Stop reading."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _catch_up(self) -> bool:
        """Follow what changed since the last time; return whether that is known at all."""
        version = self._db.version
        changes = self._db.index_changes
        if version is None or version != self._version:
            changes.start_anew()
            self._version = version
            self._scopes.clear()
            self._seen_changes.clear()
            self._meanwhile = dict.fromkeys(self._meanwhile)
            self.held = 0
            changes.reader = self._read_changes if self._meanwhile else None
            return version is not None
        self._read_changes()
        return True

    def _read_changes(self) -> None:
        for change in self._db.index_changes.take():
            self._follow(change)
        self._make_room()

    def _follow(self, change: IndexChange) -> None:
        if change.scope_id is None:
            self._meanwhile = dict.fromkeys(self._meanwhile)
            for scope in self._scopes.values():
                part = scope.parts.get(change.table)
                if part is not None and (
                    not change.gone or part.rows.number(change.gone) is not None
                ):
                    self._weigh(scope, lambda s: s.drop(change.table))
            return
        if (meanwhile := self._meanwhile.get(change.scope_id)) is not None:
            meanwhile.append(change)
        if (active_scope := self._scopes.get(change.scope_id)) is not None:
            self._weigh(active_scope, lambda s: s.follow(change))

    def _read_documents(self, scope: ActiveScope) -> None:
        """Add the documents that were put since the last search."""
        if not scope.unread or (part := scope.parts.get(MESSAGES_INDEX)) is None:
            return
        previous_size = scope.size
        changes = scope.unread
        scope.unread = []
        scope.unread_characters = 0
        documents = {c.key: c.words for c in changes if c.words is not None}
        try:
            self._add_documents(part, documents, scope_mark(scope.scope_id))
        except Stale:
            scope.drop(MESSAGES_INDEX)
        self.held += scope.size - previous_size

    def _add_documents(
        self, part: ScopePostings, documents: Mapping[int, DocumentWords], prefix: str
    ) -> None:
        """Add documents by their words. prefix: of their scope. Raises Stale."""
        words: set[str] = set()
        for document in documents.values():
            words.update(*document.values())
        forms = self._forms.look_up(words, prefix)
        part.add_documents({k: _columns_of_words(x, forms) for k, x in documents.items()})

    def _weigh(self, scope: ActiveScope, change: Callable[[ActiveScope], None]) -> None:
        previous_size = scope.size
        change(scope)
        self.held += scope.size - previous_size

    def _make_room(self) -> None:
        """Give up the scopes that were not used for longest."""
        while self.held > self._max_bytes and self._scopes:
            oldest_id = next(iter(self._scopes))
            self.held -= self._scopes.pop(oldest_id).size

    def _has_room(self) -> bool:
        """Tell whether another scope fits, or one has not been used lately."""
        if self.held < self._max_bytes:
            return True
        oldest_scope = next(iter(self._scopes.values()), None)
        return oldest_scope is None or time.monotonic() - oldest_scope.used > IDLE_SECONDS

    async def _read(self, scope_id: int, max_rows: int | None = None) -> None:
        """Read what is missing of a scope. max_rows: on this thread, if it has no more rows."""
        if scope_id in self._meanwhile:
            return
        scope = self._scopes.get(scope_id)
        missing_tables = [x for x in TABLES if scope is None or x not in scope.parts]
        self._db.index_changes.reader = self._read_changes
        self._meanwhile[scope_id] = []
        try:
            loaded_parts = await self._load(missing_tables, scope_id, max_rows)
            is_followed = self._catch_up()
        except Exception as e:
            # Nothing depends on it: the index is searched.
            self._seen_changes.pop(scope_id, None)
            log.warning("the words of a scope cannot be read: %s", type(e).__name__)
            return
        finally:
            changes = self._meanwhile.pop(scope_id)
        if loaded_parts is None or not is_followed or changes is None:
            # The next search reads again.
            return
        parts = {
            x: part
            for x, part in zip(missing_tables, loaded_parts, strict=True)
            if part is not None
        }
        if len(parts) == len(missing_tables):
            self._put(scope_id, parts, changes)
        else:
            self._seen_changes[scope_id] = False

    async def _load(
        self, tables: Sequence[str], scope_id: int, max_rows: int | None
    ) -> list[ScopePostings | None] | None:
        """Return the parts of a scope by table, each None if it cannot be kept.

        None for a scope with more than a few rows.
        """
        if max_rows is None:
            load = partial(scope_postings.load, scope_id=scope_id)
            return [await self._db.read(partial(load, table=t), of=NO_TURNS) for t in tables]
        load_few = partial(
            scope_postings.load_few, tables=tables, scope_id=scope_id, max_rows=max_rows
        )
        return await self._db.read(load_few, small=True, of=NO_TURNS)

    def _put(
        self,
        scope_id: int,
        parts: Mapping[str, ScopePostings],
        changes: Sequence[IndexChange],
    ) -> None:
        """Keep what was read of a scope. changes: those it may lack."""
        scope = self._scopes.pop(scope_id, None)
        if scope is None:
            scope = ActiveScope(scope_id)
        else:
            self.held -= scope.size
        scope.parts.update(parts)
        for change in changes:
            if change.table in parts and not _has(parts[change.table], change):
                scope.follow(change)
        scope.used = time.monotonic()
        self._scopes[scope_id] = scope
        self.held += scope.size
        self._make_room()
