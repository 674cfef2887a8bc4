"""Plain FTS5, to compare with: every word of the question, the text alone, bm25 as it comes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from tests.bench.retrieval.stored import Utterance


class Plain:
    def __init__(self, found: Sequence[Utterance]) -> None:
        self._ids = [u.id for u in found]
        self._db = sqlite3.connect(":memory:")
        self._db.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize='porter unicode61')")
        self._db.executemany(
            "INSERT INTO t (rowid, body) VALUES (?, ?)", list(enumerate(u.text for u in found))
        )

    def search(self, query: str, depth: int) -> list[str]:
        words = " OR ".join(f'"{w}"' for w in re.findall(r"\w+", query))
        rows = (
            self._db.execute(
                "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT ?", (words, depth)
            )
            if words
            else []
        )
        return [self._ids[row[0]] for row in rows]
