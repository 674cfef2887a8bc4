"""The documents of each search index, by the table whose rows they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection

from memory.stores.sql.engine.sqlite.fts import SearchDocument
from memory.stores.sql.index import message_index
from memory.stores.sql.rows import file_passages, passages

# Each returns row keys and documents, in order, after a row key.
ReadDocuments = Callable[[Connection, int, int], list[tuple[int, SearchDocument]]]
READERS: Final[dict[str, ReadDocuments]] = {
    "messages": message_index.docs,
    "passages": passages.docs,
    "file_passages": file_passages.docs,
}
