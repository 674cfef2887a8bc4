"""Fills a Postgres database with conversations, as the rows of turns that were had here.

The columns that name a history are computed by the product's own functions for each conversation,
so that it is recognised when it goes on. All others are copied from a turn that was really had.
The rows go in by COPY, users side by side, as time would have them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from sqlalchemy import Connection, select

from memory.context.epoch import EpochPolicy
from memory.conversation.history import Messages
from memory.conversation.matching import RequestHistory, TurnNode, complete_node
from memory.conversation.messages import Json
from memory.core.blocks import CoreBlock
from memory.ids import new_id
from memory.scope import Scope
from memory.search.similarity import pack_vector
from memory.service import Memory
from memory.session.request import Policy, TurnRequest
from memory.session.turn_record import TurnOutcome
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.postgres import postgres_index
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.sqlite.fts import IndexLimit, SearchDocument
from memory.stores.sql.rows import messages
from memory.stores.sql.rows.message_pieces import contents_of
from memory.stores.sql.rows.messages import MessagePlace
from memory.stores.sql.turns.turn_reader import columns
from tests.bench.retrieval.latency import DIMENSIONS, Random, said

TENANT = "bench"
BLOCKS = {"human": CoreBlock("human", "Likes tea. " * 20), "persona": CoreBlock("persona", "")}
# A conversation that rested long would begin an epoch, which is not the plain turn.
POLICY = Policy(blocks=BLOCKS, rules=EpochPolicy(idle_seconds=1e9), read_deadline=10.0)
# Of a conversation.
TURNS = 25
MESSAGES = 2 * TURNS
# Over which the messages were said.
DAYS = 30
# Users whose messages have vectors.
EMBEDDED = 50
# Every so many conversations have explain records, which are kept for a week.
EXPLAINED = 10
USED: dict[str, Any] = {
    "tenant": TENANT, "key": "anonymous", "model": "gpt-4.1-mini", "target": "openai/gpt-4.1-mini",
    "path": "/v1/chat/completions", "mode": "full", "attempts": 1, "rounds": 1, "input": 1900,
    "cached_input": 1024, "cache_write": 0, "output": 120, "reasoning": 0, "hidden_input": 0,
    "hidden_output": 0, "estimated": False, "cost": 0.0008, "latency_ms": 912.4, "status": 200,
}  # fmt: skip
Rows = dict[str, list[dict[str, Any]]]


@dataclass(slots=True)
class Line:
    """A conversation that is stored. more: what was said since it was filled."""

    scope: Scope
    number: int
    scope_id: int = 0
    conversation: int = 0
    more: list[Json] = field(default_factory=list)

    @property
    def said(self) -> list[Json]:
        """All its messages: those it was filled with come from its seed."""
        chosen = random.Random(f"{self.scope.user} {self.number}")
        roles = ("user", "assistant")
        first = [{"role": roles[i % 2], "content": said(chosen)} for i in range(MESSAGES)]
        return [*first, *self.more]

    @property
    def name(self) -> str:
        return f"conv_{random.Random(f'{self.scope.user} {self.number}').getrandbits(128):032x}"


@dataclass(slots=True)
class Filler:
    """Adds users to one database.

    each: conversations of a user. lines: all there are. embedded: those whose messages have
    vectors.
    """

    memory: Memory
    url: str
    each: int
    # Messages that will ever be there: they are said over DAYS.
    most: int
    lines: list[Line] = field(default_factory=list)
    embedded: list[Line] = field(default_factory=list)
    _at: float = 0.0
    _like: dict[str, dict[str, Any]] = field(default_factory=dict)
    _key: bytes = b""
    _tag: str = ""

    async def grow(self, count: int) -> None:
        """Add users until there are so many messages."""
        if not self._like:
            await self._have_a_turn()
            self._at = time.time() - DAYS * 86400
        there = len(self.lines) // self.each
        users = range(there, max(1, count // (MESSAGES * self.each)))
        scopes = [self.memory.scope(TENANT, f"user-{i}", "default") for i in users]
        raw = await asyncpg.connect(self.url.replace("+asyncpg", ""))
        try:
            ids = [self._next() for _ in scopes]
            owners = zip(ids, scopes, strict=True)
            await _copy(raw, {"scopes": [self._scope(*owner) for owner in owners]})
            for number in range(self.each):
                for at in range(0, len(scopes), 20):
                    rows: Rows = {}
                    for scope, ident in list(zip(scopes, ids, strict=True))[at : at + 20]:
                        line = Line(scope, number, ident, self._next())
                        self.lines.append(line)
                        self._add(line, rows)
                    await _copy(raw, rows)
            await self._embed(raw)
        finally:
            await raw.close()

    async def _embed(self, raw: asyncpg.Connection) -> None:
        """Give the messages of the first users vectors: of random directions, which cost the same.

        Its model is also the one that searches ask.
        """
        wanted = list(dict.fromkeys(line.scope_id for line in self.lines))[:EMBEDDED]
        have = {line.scope_id for line in self.embedded}
        for scope_id in (s for s in wanted if s not in have):
            of_scope = {"scope_id": scope_id, "model": Random.model}
            told = await raw.fetch("SELECT id FROM messages WHERE scope_id = $1", scope_id)
            made = [pack_vector([random.gauss(0, 1) for _ in range(DIMENSIONS)]) for _ in told]
            rows = [
                {"message": row[0], **of_scope, "vector": vector}
                for row, vector in zip(told, made, strict=True)
            ]
            await _copy(raw, {"message_vectors": rows})
        self.embedded = [line for line in self.lines if line.scope_id in set(wanted)]

    async def _have_a_turn(self) -> None:
        """Have the second turn of a conversation, whose rows the others are like."""
        history: list[Json] = []
        scope = self.memory.scope(TENANT, "the first", "default")
        self._tag = scope.tag
        for i in range(2):
            history.append({"role": "user", "content": f"hello {i}"})
            ask = TurnRequest(scope, Messages.of(list(history)), "gpt-4.1-mini", new_id("req"))
            session = await self.memory.begin(ask)
            history.append({"role": "assistant", "content": "hello"})
            if await session.finish(TurnOutcome(history[-1:])) and session.is_late:
                raise RuntimeError("the store did not take a turn")

        def read(conn: Connection) -> None:
            self._key = bytes(conn.info["key"])
            for table in (t.scopes, t.conversations, t.epochs, t.nodes, t.messages, t.explains):
                found = conn.execute(select(table).order_by(table.c.id.desc()).limit(1)).one()
                self._like[table.name] = dict(found._mapping)

        await self.memory.db.read(read)

    def _next(self) -> int:
        """Return a row key, and let time pass."""
        self._at += DAYS * 86400 / (2 * self.most)
        return int(self._at * 1e6) << 12

    def _scope(self, ident: int, scope: Scope) -> dict[str, Any]:
        values = {"id": ident, "user": scope.user, "created_at": self._at, "active_at": self._at}
        return {**self._like["scopes"], **values}

    def _add(self, line: Line, rows: Rows) -> None:
        """Add the rows of a conversation."""
        words, parent, before = line.said, None, ""
        chain = RequestHistory.of(line.scope.key, Messages.of(list(words))).chain
        epoch = new_id("epoch")
        of_scope = {"scope_id": line.scope_id}
        core = self._like["epochs"]["core"].replace(self._tag, line.scope.tag)
        began = {**of_scope, "id": epoch, "core": core, "created_at": self._at}
        _put(rows, "epochs", {**self._like["epochs"], **began})
        for i in range(0, MESSAGES, 2):
            node = TurnNode(self._next(), line.conversation, parent.id if parent else None)
            node.asked, node.epoch, node.recall, node.at = chain.link(i), epoch, "", self._at
            complete_node(node, parent, chain.digest(i + 1), chain.link(i + 1))
            request = {"request": random.randbytes(16)}
            made = {**self._like["nodes"], **columns(node, line.scope_id), **request}
            _put(rows, "nodes", made)
            for k, source in ((i, "chat"), (i + 1, "answer")):
                place = MessagePlace(line.conversation, node.id, source, self._at)
                content = contents_of([(words[k], chain.digest(k))])
                for row in messages.rows_of(line.scope_id, place, content):
                    self._add_message(row, before, rows)
                before = words[k]["content"]
            if line.number % EXPLAINED == EXPLAINED - 1:
                explain = {**of_scope, "id": node.id, "created_at": self._at}
                _put(rows, "explains", {**self._like["explains"], **explain})
            used = {"request_id": new_id("req"), "created_at": self._at, "user": line.scope.user}
            _put(rows, "usage", {**USED, **used, "id": self._next()})
            parent = node
        moved = {"id": line.conversation, "name": line.name, "head": parent.id if parent else None}
        times = {"created_at": self._at, "updated_at": self._at, "version": TURNS}
        _put(rows, "conversations", {**self._like["conversations"], **of_scope, **moved, **times})

    def _add_message(self, row: dict[str, Any], before: str, rows: Rows) -> None:
        key, scope_id = self._next(), row["scope_id"]
        _put(rows, "messages", {"id": key, **row})
        doc = SearchDocument(scope_id, row["content"], row["role"], before, row["created_at"])
        indexed = fts.document_columns("messages_fts", doc, IndexLimit())
        numbers = postgres_index.term_numbers(self._key, scope_id, indexed)
        _put(rows, "message_terms", {"id": key, "scope_id": scope_id, "terms": numbers})


def _put(rows: Rows, table: str, row: dict[str, Any]) -> None:
    rows.setdefault(table, []).append(row)


async def _copy(raw: asyncpg.Connection, rows: Rows) -> None:
    for table, found in rows.items():
        names = list(found[0])
        records: Iterator[tuple[Any, ...]] = (tuple(row[n] for n in names) for row in found)
        await raw.copy_records_to_table(table, records=records, columns=names)
