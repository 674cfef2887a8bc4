"""Search over one scope's archival and recall memory: keywords always, vectors beside them where there are any."""
from __future__ import annotations

from typing import Any

from memory.stores.sql import messages as message_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql.engine import Database


class Retrieval:
    """Implements the tools' Finder over the database."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def passages(self, scope_id: int, wanted: passage_rows.Filter) -> list[dict[str, Any]]:
        """Passages, best first, with id, content, tags, created_at, score and why."""
        return await self._db.read(lambda conn: passage_rows.search(conn, scope_id, wanted))

    async def messages(self, scope_id: int, wanted: message_rows.Query) -> list[dict[str, Any]]:
        """Messages, best first, with role, content, conversation, created_at, score and why."""
        return await self._db.read(lambda conn: message_rows.search(conn, scope_id, wanted))
