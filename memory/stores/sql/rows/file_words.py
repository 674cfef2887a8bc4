"""Which words of a query can stand in the names of a scope's files, and of their definitions.

A frequent word is looked up in each column of the index, and a column that has it nowhere costs
most of the time. The few names of a scope tell that before.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, bindparam, select

from memory.search.query import TermLookup, index_words, scope_mark
from memory.stores.sql.engine.file_tables import file_symbols, file_versions, files
from memory.stores.sql.engine.statements import execute

if TYPE_CHECKING:
    from memory.stores.sql.index.stems import Stemmer

STEM_BYTES = 2 << 20
f = files.c
v = file_versions.c
s = file_symbols.c
SHOWN_FILES = (
    select(v.name, f.shown, f.passages)
    .join(files, f.shown == v.id)
    .where(f.scope_id == bindparam("scope"))
)
ANY_SYMBOL = select(s.id).where(s.scope_id == bindparam("scope")).limit(1)


@cache
def _stems() -> Stemmer:
    from memory.stores.sql.index.stems import Stemmer

    return Stemmer(STEM_BYTES)


class FileWords(NamedTuple):
    """The words of a scope's files beside their text.

    passages: of all files. name_tokens: of their names, as the index stores them. prefix_length: of
    what stands before each word in the index.
    """

    passages: int
    name_tokens: frozenset[str]
    has_symbols: bool
    prefix_length: int

    def may_hold(self, lookup: TermLookup) -> bool:
        """Tell whether any passage of the scope can have a word in a column of the index."""
        if lookup.column == "body":
            return True
        if lookup.column == "prev":
            tokens = _stems().tokens(lookup.words, self.prefix_length)
            return any(self.name_tokens.issuperset(word_tokens) for word_tokens in tokens)
        return self.has_symbols and lookup.column != "day"


def read_file_words(conn: Connection, scope_id: int, upload: int) -> FileWords:
    """Return the words of a scope's files. upload: of one file, 0 for all."""
    rows = list(execute(conn, SHOWN_FILES, {"scope": scope_id}))
    prefix_length = len(scope_mark(scope_id))
    names = {row.name for row in rows if upload in (0, row.shown)}
    tokens = frozenset[str]().union(*(_name_tokens(name, prefix_length) for name in names))
    has_symbols = execute(conn, ANY_SYMBOL, {"scope": scope_id}).first() is not None
    passages = sum(row.passages for row in rows)
    return FileWords(passages, tokens, has_symbols, prefix_length)


@lru_cache(4096)
def _name_tokens(name: str, prefix_length: int) -> frozenset[str]:
    words = index_words(name, telling=True)
    return frozenset(token for tokens in _stems().tokens(words, prefix_length) for token in tokens)
