"""The port for the kind of a database, SQLite or Postgres: how statements and the search index run.

A connection carries its driver from the moment it is opened. Whoever needs what differs asks the
driver, and never for the name of a dialect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from sqlalchemy import Connection, Table
from sqlalchemy.sql.base import Executable

from memory.ids import MAX_KEY
from memory.search.query import TermLookup

A = TypeVar("A")
T = TypeVar("T")
DRIVER_OPTION = "mnemogate_driver"
# After which a worker is taken for gone, as `postgres_lease` has it.
SILENT_SECONDS = 15.0


class SharedWords(NamedTuple):
    """What near duplicates share: any two of `pairs`, or all of `every`.

    newest: how many of the newest rows are looked at for pairs. most: rows returned of either.
    """

    pairs: Sequence[str]
    every: Sequence[str]
    newest: int
    most: int


class ScopeBacklog(msgspec.Struct):
    """The messages of one scope that wait to be indexed, newest first.

    before: when the one that was indexed last was said, and its row key; those behind it are not
    looked at again. after: a row key up to which all were indexed. newest: of those that were
    indexed since.
    """

    scope_id: int
    after: int = 0
    before: tuple[float, int] = (math.inf, MAX_KEY)
    newest: int = 0


class IndexPlace(NamedTuple):
    """A part of an index: of one scope, and of row keys from `first` to `last`.

    drops_frequent: a word with as many rows as are read at most may be told to have none.
    """

    table: str
    scope_id: int
    first: int = 0
    last: int = MAX_KEY
    drops_frequent: bool = False

    @property
    def is_bounded(self) -> bool:
        return self.first > 0 or self.last < MAX_KEY


class SearchIndex(Protocol):
    """The search index of a kind of database. Its documents have the keys of their rows.

    newest: of a conversation (`:conversation`), what the keys of its new messages have to be above,
    as columns `stored` and `indexed`.
    """

    newest: Sequence[Any]

    def put_document(
        self, conn: Connection, table: str, place: tuple[int, int], columns: Mapping[str, str]
    ) -> None:
        """Add one document, replacing one with the same key. place: its key and its scope."""
        ...

    def drop(self, conn: Connection, table: str, keys: Sequence[int]) -> None:
        """Remove documents."""
        ...

    def postings(
        self, conn: Connection, place: IndexPlace, lookups: Sequence[TermLookup], max_rows: int
    ) -> list[list[int]]:
        """Return the newest rows of each lookup, at most so many."""
        ...

    def list_sharing_words(self, conn: Connection, scope_id: int, shared: SharedWords) -> list[int]:
        """Return the row keys of passages that share words."""
        ...

    def list_speakers(
        self, conn: Connection, place: tuple[str, int], words: Sequence[str]
    ) -> list[str]:
        """Return the words that are part of a speaker's name. place: table and scope."""
        ...

    def count_rows(self, conn: Connection, rows: str, scope_id: int, max_rows: int) -> int:
        """Return how many rows a scope has, counted up to `max_rows`. rows: the table."""
        ...

    def is_outdated(self, conn: Connection) -> bool:
        """Tell whether an older version made the index in another format."""
        ...

    def empty(self, conn: Connection) -> None:
        """Remove every document of both indexes."""
        ...

    def list_beside_rows(
        self, conn: Connection, tables: tuple[str, str], after: int, limit: int
    ) -> list[tuple[int, int | None]]:
        """Return the next documents after a key, each with its row's key if there is one.

        tables: of the documents, and of their rows.
        """
        ...

    def newest_key(self, conn: Connection, conversation: int) -> int:
        """Return the key that a new message of the conversation has to be above."""
        ...

    def add_waiting(self, conn: Connection, scope_id: int, keys: Sequence[int]) -> None:
        """Let messages that were stored wait to be indexed."""
        ...

    def list_waiting(
        self, conn: Connection, max_rows: int, backlog: ScopeBacklog | None
    ) -> Sequence[Any]:
        """Return the next messages that wait, of all scopes or of one.

        They are kept from other indexers until the transaction ends.
        """
        ...

    def waiting_size(self, conn: Connection, max_rows: int, backlog: ScopeBacklog | None) -> int:
        """Return how many characters these messages have, without reading them."""
        ...

    def settle(
        self, conn: Connection, rows: Sequence[Any], max_rows: int, scope_id: int | None
    ) -> int:
        """Note that messages wait no more; return how many were done.

        That is `max_rows` if more may wait.
        """
        ...

    def has_waiting(self, conn: Connection, backlog: ScopeBacklog, but: int | None) -> bool:
        """Tell whether a message of the scope waits. but: one of another conversation."""
        ...

    def note_indexed(self, conn: Connection, key: int, before: Any) -> None:
        """Note that messages were indexed as they were stored.

        key: the greatest of them. before: what `read_newest` returned before they were stored.
        """
        ...

    def read_newest(self, conn: Connection) -> Any:
        """Return what `note_indexed` asks for."""
        ...


class SqlDriver(Protocol):
    """A kind of database. Two drivers are the same if their kind is.

    is_shared: several processes write, so rows have versions and turns under way have holders.
    """

    is_shared: bool
    index: SearchIndex

    def __hash__(self) -> int: ...

    def execute(
        self, conn: Connection, statement: Executable, values: Mapping[str, Any]
    ) -> Sequence[Any]:
        """Run a statement that is built once and kept, with its compiled form."""
        ...

    def execute_sql(self, conn: Connection, sql: str, *values: Any) -> list[Any]:
        """Run SQL in the database's own words that contains no input; return its rows."""
        ...

    def add_rows(
        self,
        conn: Connection,
        statement: Executable,
        rows: Sequence[Mapping[str, Any]],
        shared: Collection[str],
    ) -> None:
        """Run an insert for each row. shared: columns that say the same in each."""
        ...

    def rows_of_keys(self, conn: Connection, sql: str, keys: Sequence[int]) -> list[Any]:
        """Run SQL in which `{listed}` is a table of these row keys."""
        ...

    def rows_of_pairs(
        self, conn: Connection, sql: str, pairs: Sequence[tuple[int, int]]
    ) -> list[Any]:
        """Run SQL in which `{listed}` is a table of these pairs."""
        ...

    def insert(self, table: Table) -> Any:
        """Return an insert that takes a conflict clause."""
        ...

    def is_listed(self, column: Any) -> Any:
        """Return the condition that a column is one of `list_keys`."""
        ...

    def list_keys(self, keys: Sequence[int]) -> Any:
        """Return the parameter of `is_listed`."""
        ...

    def run_pure(self, conn: Connection, work: Callable[[A], T], argument: A) -> T:
        """Run long work that asks the store nothing, off the event loop."""
        ...

    def is_worker_alive(self, conn: Connection, incarnation: int) -> bool:
        """Tell whether a worker still works on what it holds."""
        ...

    def create_tables(self, conn: Connection) -> None:
        """Create all tables of an empty database."""
        ...

    def table_names(self) -> set[str]:
        """Return the names of all tables."""
        ...


def sql_driver(conn: Connection) -> SqlDriver:
    """Return the driver that a connection carries."""
    driver: SqlDriver = conn.get_execution_options()[DRIVER_OPTION]
    return driver
