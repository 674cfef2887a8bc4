"""Rows of definitions in source files, and the search among their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from memory.ids import STEP, new_key
from memory.stores.sql.engine.file_tables import file_symbols, files
from memory.stores.sql.engine.statements import add_rows

s = file_symbols.c
f = files.c
# Names that hold a part of the query.
MAX_NAMES = 2000
# Of a query.
PARTS = 8
PART = re.compile(r"[^\W_]+")


def add_symbols(
    conn: Connection, scope_id: int, upload: int, symbols: Sequence[Mapping[str, Any]]
) -> None:
    """Store definitions of an upload."""
    if not symbols:
        return
    first_key = new_key(len(symbols))
    rows = [
        {
            "id": first_key + i * STEP,
            "scope_id": scope_id,
            "upload": upload,
            "folded": symbol["name"].casefold(),
            **symbol,
        }
        for i, symbol in enumerate(symbols)
    ]
    add_rows(conn, file_symbols, rows)


def search(
    conn: Connection, scope_id: int, query: str, limit: int, upload: int = 0
) -> list[dict[str, Any]]:
    """Return definitions whose names hold the words of a query, best first."""
    parts = list(dict.fromkeys(PART.findall(query.casefold())))[:PARTS]
    folded_query = query.strip().casefold()
    if not parts:
        return []
    rows = (
        select(file_symbols, f.public_id.label("file"), f.name.label("file_name"))
        .join(files, f.shown == s.upload)
        .where(f.scope_id == scope_id, s.scope_id == scope_id)
    )
    if upload:
        rows = rows.where(s.upload == upload)
    for part in parts:
        rows = rows.where(s.folded.contains(part, autoescape=True))
    hits = [_describe(row, folded_query) for row in conn.execute(rows.limit(MAX_NAMES))]
    hits.sort(key=lambda hit: (-hit["score"], len(hit["symbol"]), hit["name"], hit["line_start"]))
    return hits[:limit]


def _describe(row: Any, folded_query: str) -> dict[str, Any]:
    if row.folded == folded_query:
        score = 1.0
    elif row.folded.startswith(folded_query):
        score = 0.8
    else:
        score = 0.5
    return {
        "file": row.file,
        "name": row.file_name,
        "page": row.page,
        "line_start": row.line_start,
        "line_end": row.line_end,
        "content": row.content,
        "score": score,
        "symbol": row.name,
        "kind": row.kind,
    }
