"""Conversations put into a store of the gateway's own, and asked for through the gateway's own
tool.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory.core.blocks import escape
from memory.retrieval.retriever import SemanticSearch
from memory.scope import Scope
from memory.search.query import iso
from memory.service import Memory
from memory.session.request import Policy
from memory.stores.sql.engine.database import Database
from memory.stores.sql.rows import blocks, passages, scopes
from memory.stores.sql.transfer.transcripts import (
    ConversationHeader,
    ImportedMessage,
    Transcriber,
    steps_of,
)
from memory.tools import ToolCall, ToolContext, run_searches

SECRET = b"b" * 32
# The most that the tool gives.
DEPTH = 50


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message to find again.

    id: what a question's evidence names. session: the conversation it is part of.
    """

    id: str
    session: str
    speaker: str
    role: str
    text: str
    at: float


class Stored:
    """A scope of one user, filled with utterances; `search` gives their ids, the likeliest
    first.
    """

    def __init__(self, memory: Memory, scope: Scope) -> None:
        self.memory, self.scope, self.scope_id = memory, scope, 0
        self._ids: dict[tuple[str, str, str], list[str]] = {}
        self._kept: dict[str, list[str]] = {}

    async def fill(self, found: Sequence[Utterance]) -> None:
        sessions: dict[str, list[Utterance]] = {}
        for one in found:
            sessions.setdefault(one.session, []).append(one)
            self._ids.setdefault((one.session, escape(one.text[:2000]), iso(one.at)), []).append(
                one.id
            )

        def work(conn: Any) -> int:
            scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, self.scope))
            transcriber = Transcriber(conn, scope_id, self.scope.key)
            for name, said in sessions.items():
                steps = steps_of(
                    [
                        ImportedMessage(
                            {"role": u.role, "name": u.speaker, "content": u.text}, u.at
                        )
                        for u in said
                    ]
                )
                # Step names are the transcript's.
                for step in steps:
                    step.id, step.parent = (
                        f"{name} {step.id}",
                        step.parent and f"{name} {step.parent}",
                    )
                transcriber.conversation(
                    ConversationHeader(name, created_at=said[0].at, updated_at=said[-1].at), steps
                )
            return scope_id

        self.scope_id = await self.memory.db.write(work)

    def ids_of(self, hit: dict[str, Any]) -> list[str]:
        """The utterances that a hit of the store is."""
        place = (hit["conversation"], escape(hit["content"][:2000]), iso(hit["created_at"]))
        return self._ids.get(place, [])

    async def keep(self, found: Sequence[Utterance]) -> None:
        """The same as archival memory: a passage each, tagged with who said it."""

        def work(conn: Any) -> int:
            scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, self.scope))
            for one in found:
                for made in passages.add(
                    conn, scope_id, passages.NewPassage(one.text, [one.speaker], created_at=one.at)
                )[0]:
                    self._kept.setdefault(escape(made["content"]), []).append(one.id)
            return scope_id

        self.scope_id = await self.memory.db.write(work)

    async def archival(self, query: str, depth: int = DEPTH) -> list[str]:
        hits = await self._told("archival_memory_search", query, depth)
        return list(dict.fromkeys(ident for hit in hits for ident in self._kept[hit["content"]]))

    async def search(self, query: str, depth: int = DEPTH) -> list[str]:
        hits = await self._told("conversation_search", query, depth)
        return list(
            dict.fromkeys(
                ident
                for hit in hits
                for ident in self._ids[hit["conversation"], hit["content"], hit["time"]]
            )
        )

    async def _told(self, tool: str, query: str, depth: int) -> list[dict[str, Any]]:
        hands = ToolContext(
            self.scope_id, blocks.BlockSet(self.scope_id, {}), self.memory.retrieval, "bench", {}
        )
        told = await run_searches(
            [ToolCall("1", tool, json.dumps({"query": query, "limit": min(depth, DEPTH)}))], hands
        )
        return [json.loads(line) for line in told[0].splitlines() if line.startswith("{")]


class Store:
    """A database for a bench, a SQLite file of its own if none is given.

    meaning: search by meaning too.
    """

    def __init__(
        self, meaning: SemanticSearch | None = None, database: Database | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mnemogate-bench-")
        file = Database(f"sqlite+aiosqlite:///{Path(self._folder.name) / 'm.db'}")
        self.memory = Memory(database or file, Policy(), SECRET, meaning=meaning)

    async def __aenter__(self) -> Store:
        await self.memory.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.memory.close()
        self._folder.cleanup()

    async def embedded(self, user: Stored) -> None:
        """Embed what there is of the user, if the store searches by meaning."""
        while await self.memory.retrieval.embed_scope(user.scope_id):
            pass

    async def user(self, name: str, found: Sequence[Utterance]) -> Stored:
        out = Stored(self.memory, Scope("bench", name, "default", SECRET))
        await out.fill(found)
        return out
