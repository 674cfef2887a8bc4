"""Statements of every turn, without SQLAlchemy's overhead.

They are built and compiled once, and passed to the driver directly: here SQLite's, in
`postgres_statements` the other. Through SQLAlchemy such a statement takes 100 to 150 us of a turn,
through SQLite's driver 5 to 15; there are thirty. Results look the same on both: rows with column
names, booleans as booleans.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Connection,
    Table,
    bindparam,
    func,
    insert,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.base import Executable

A = TypeVar("A")
T = TypeVar("T")
SEVERAL = 8  # rows inserted by one statement
MAX_BATCH_VALUES = 256  # values looked up by one statement
STORABLE = frozenset({int, float, bool, bytes, type(None)})
REPLACEMENT = "\ufffd"  # of a NUL
LONG_CHARACTERS = 1 << 18  # some 1 ms of an edit


class RowSet(list[Any]):
    """The rows of a query, with those methods of SQLAlchemy's result that are used here."""

    def first(self) -> Any:
        return self[0] if self else None

    def one(self) -> Any:
        (row,) = self
        return row

    def scalar(self) -> Any:
        return self[0][0] if self else None

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalars(self) -> list[Any]:
        return [row[0] for row in self]


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that is built once and kept, with its values: a read that needs no transaction.

    On Postgres it needs no greenlet either, which took a quarter of its time.
    """

    statement: Executable
    values: Mapping[str, Any]

    def __call__(self, conn: Connection) -> RowSet:
        found: RowSet = execute(conn, self.statement, self.values)
        return found


def storable(value: Any) -> Any:
    """Return a value as Postgres can store it: its text cannot hold the character NUL."""
    if type(value) is str and "\x00" in value:
        return value.replace("\x00", REPLACEMENT)
    if type(value) is list:
        return [storable(one) for one in value]
    return value


def all_storable(values: Iterable[Any]) -> list[Any]:
    """Return values as Postgres can store them. (Most are of types that are as they are.)"""
    return [v if type(v) in STORABLE else storable(v) for v in values]


def execute(conn: Connection, statement: Executable, values: Mapping[str, Any]) -> Any:
    """Run a statement that is built once and kept, with its compiled form.

    values: its parameters, by name.
    """
    if (raw := driver(conn)) is None:
        return RowSet(_postgres().fetch(conn, statement, values))
    return _compile(statement).run(raw, values)


def select_in_batches(
    conn: Connection,
    build: Callable[[int], Executable],
    values: Mapping[str, Any],
    wanted: Sequence[Any],
) -> Iterator[Any]:
    """Yield the rows with any of the wanted values, in a few queries.

    build: returns the statement for so many values (see `in_clause`). values: its other parameters.
    """
    for i in range(0, len(wanted), MAX_BATCH_VALUES):
        size, given = batch_values(values, wanted[i : i + MAX_BATCH_VALUES])
        yield from execute(conn, build(size), given)


def batch_values(values: Mapping[str, Any], some: Sequence[Any]) -> tuple[int, dict[str, Any]]:
    """Return for how many values the statement of a batch is, and its parameters.

    There is one statement for each power of two; it is padded with the last value.
    """
    size = 1 << (len(some) - 1).bit_length()
    return size, {**values, **{f"any{k}": some[min(k, len(some) - 1)] for k in range(size)}}


def in_clause(column: Any, size: int) -> Any:
    """Return the condition that a column has one of the values of `select_in_batches`."""
    return column.in_([bindparam(f"any{k}") for k in range(size)])


def driver(conn: Connection) -> sqlite3.Connection | None:
    """Return SQLite's connection under SQLAlchemy's, with the same transaction; else None."""
    raw = conn.connection.dbapi_connection
    return raw if isinstance(raw, sqlite3.Connection) else None


def add_row(conn: Connection, table: Table, **values: Any) -> None:
    """Insert one row."""
    execute(conn, _insert_statement(table, tuple(values)), values)


def add_rows(conn: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows with the same columns. Raises what the database raises."""
    if not rows:
        return
    statement = _insert_statement(table, tuple(rows[0]))
    if (raw := driver(conn)) is None:
        _postgres().run_many(conn, statement, rows)
    elif len(rows) <= SEVERAL:
        _compile(statement).at_once(raw, rows)
    else:
        _compile(statement).each(raw, rows)


def put_row(conn: Connection, table: Table, on: tuple[str, ...], /, **values: Any) -> None:
    """Insert the row, or update the one with the same `on` columns."""
    execute(conn, _upsert_statement(conn.dialect.name, table, on, tuple(values)), values)


def rows_of_keys(conn: Connection, sql: str, keys: Sequence[int]) -> list[Any]:
    """Run SQL that contains no input and names a list of row keys.

    In it, `{listed}` is a table with the column `value`.
    """
    if driver(conn) is None:
        found: list[Any] = _postgres().fetch_sql(
            conn, sql.format(listed="unnest($1::bigint[]) AS k(value)"), list(keys)
        )
        return found
    listed = msgspec.json.encode(keys).decode()
    return list(conn.exec_driver_sql(sql.format(listed="json_each(?) k"), (listed,)))


def execute_sql(conn: Connection, sql: str, *values: Any) -> list[Any]:
    """Run SQL for Postgres that contains no input; return its rows."""
    found: list[Any] = _postgres().fetch_sql(conn, sql, *values)
    return found


def run_pure(conn: Connection, work: Callable[[A], T], given: A, size: int) -> T:
    """Run work that asks the store nothing, off the event loop if it takes long.

    size: characters that it goes through. On SQLite whole works leave the loop, on Postgres none.
    """
    if size < LONG_CHARACTERS or is_sqlite(conn):
        return work(given)
    found: T = _postgres().run_in_thread(work, given)
    return found


def is_sqlite(conn: Connection) -> bool:
    """Tell whether this is SQLite, whose statements are other ones in places."""
    return driver(conn) is not None


def is_listed(column: Any, *, lite: bool) -> Any:
    """Return the condition that a column is one of the row keys of `key_list`."""
    if not lite:
        return column == func.any(bindparam("keys", type_=ARRAY(BigInteger)))
    listed = func.json_each(bindparam("keys")).table_valued("value")
    return column.in_(select(listed.c.value))


def key_list(conn: Connection, keys: Sequence[int]) -> dict[str, Any]:
    """Return the parameter of `is_listed`."""
    lite = is_sqlite(conn)
    return {"keys": msgspec.json.encode(keys).decode() if lite else list(keys)}


@cache
def _postgres() -> Any:
    """Return the module for Postgres, which SQLite does not load."""
    return import_module("memory.stores.sql.postgres_statements")


class _Compiled:
    """A statement compiled for SQLite, with its constant parameters filled in."""

    def __init__(self, statement: Any) -> None:
        compiled = statement.compile(dialect=sqlite.dialect())
        self.sql = str(compiled)
        self._params = [(name, compiled.params.get(name)) for name in compiled.positiontup or ()]
        names = [name for name, _ in self._params]
        plain = len(names) > 1 and all(default is None for _, default in self._params)
        self._named: Callable[[Mapping[str, Any]], Sequence[Any]] | None = (
            itemgetter(*names) if plain else None
        )
        columns = list(getattr(statement, "selected_columns", ()))
        self._row: Callable[..., Any] = (
            _row_type([c.key for c in columns]) if columns else _plain_row
        )
        self._several: dict[int, str] = {}  # by the number of rows
        self._booleans = [i for i, c in enumerate(columns) if isinstance(c.type, Boolean)]

    def run(self, raw: sqlite3.Connection, values: Mapping[str, Any]) -> RowSet:
        found = raw.execute(
            self.sql,
            self._named(values)
            if self._named
            else [values.get(name, default) for name, default in self._params],
        )
        return (
            RowSet(self._row(*self._to_bools(row)) for row in found)
            if found.description
            else RowSet()
        )

    def each(self, raw: sqlite3.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        names = [name for name, _ in self._params]
        raw.executemany(self.sql, [[row[name] for name in names] for row in rows])

    def at_once(self, raw: sqlite3.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert all rows with one statement, which costs a third less."""
        if (sql := self._several.get(len(rows))) is None:
            head, one = self.sql.split(" VALUES ")
            sql = self._several[len(rows)] = f"{head} VALUES {', '.join([one] * len(rows))}"
        if self._named is None:
            raw.execute(sql, [row[name] for row in rows for name, _ in self._params])
        else:
            raw.execute(sql, [*chain.from_iterable(map(self._named, rows))])

    def _to_bools(self, row: tuple[Any, ...]) -> Sequence[Any]:
        if not self._booleans:
            return row
        return [bool(v) if i in self._booleans and v is not None else v for i, v in enumerate(row)]


def _row_type(columns: Sequence[str]) -> Callable[..., Any]:
    return namedtuple("Row", columns, rename=True)


def _plain_row(*values: Any) -> tuple[Any, ...]:
    """Return a row of a textual statement."""
    return values


@lru_cache(1024)  # more than there are; the shapes of searches are many
def _compile(statement: Any) -> _Compiled:
    return _Compiled(statement)


@cache
def _insert_statement(table: Table, columns: tuple[str, ...]) -> Any:
    return insert(table).values({name: bindparam(name) for name in columns})


def dialect_insert(dialect: str, table: Table, columns: Iterable[str]) -> Any:
    """Return an insert of this dialect, for its conflict clause.

    The other dialect, which takes 2 MiB, is not loaded.
    """
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    return statement.values({name: bindparam(name) for name in columns})


@cache
def _upsert_statement(
    dialect: str, table: Table, on: tuple[str, ...], columns: tuple[str, ...]
) -> Any:
    statement = dialect_insert(dialect, table, columns)
    changed = {name: statement.excluded[name] for name in columns if name not in on}
    return statement.on_conflict_do_update(index_elements=list(on), set_=changed)
