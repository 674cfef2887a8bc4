"""Statements of every turn, without SQLAlchemy's overhead.

They are built once, and compiled and run by the connection's driver (see `sql_driver`). Results
look the same on every kind of database: rows with column names, booleans as booleans.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, bindparam, insert
from sqlalchemy.sql.base import Executable

from memory.stores.sql.engine.sql_driver import DRIVER_OPTION, SqlDriver, sql_driver

A = TypeVar("A")
T = TypeVar("T")
# Values looked up by one statement.
MAX_BATCH_VALUES = 256
STORABLE = frozenset({int, float, bool, bytes, type(None)})
# Of a NUL.
REPLACEMENT = "\ufffd"
# Some 1 ms of an edit.
LONG_CHARACTERS = 1 << 18


class RowSet(list[Any]):
    """The rows of a query, with those methods of SQLAlchemy's result that are used here."""

    def first(self) -> Any:
        if self:
            return self[0]
        return None

    def one(self) -> Any:
        (row,) = self
        return row

    def scalar(self) -> Any:
        if self:
            return self[0][0]
        return None

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
        row_set: RowSet = execute(conn, self.statement, self.values)
        return row_set


def storable(value: Any) -> Any:
    """Return a value as Postgres can store it: its text cannot hold the character NUL."""
    if type(value) is str and "\x00" in value:
        return value.replace("\x00", REPLACEMENT)
    if type(value) is list:
        return [storable(element) for element in value]
    return value


def all_storable(values: Iterable[Any]) -> list[Any]:
    """Return values as Postgres can store them. (Most are of types that are as they are.)"""
    return [v if type(v) in STORABLE else storable(v) for v in values]


def execute(conn: Connection, statement: Executable, values: Mapping[str, Any]) -> Any:
    """Run a statement that is built once and kept, with its compiled form.

    values: its parameters, by name.
    """
    return conn.get_execution_options()[DRIVER_OPTION].execute(conn, statement, values)


def select_in_batches(
    conn: Connection,
    build: Callable[[int], Executable],
    values: Mapping[str, Any],
    wanted_values: Sequence[Any],
) -> Iterator[Any]:
    """Yield the rows with any of the wanted values, in a few queries.

    build: returns the statement for so many values (see `in_clause`). values: its other parameters.
    """
    for i in range(0, len(wanted_values), MAX_BATCH_VALUES):
        size, parameters = batch_values(values, wanted_values[i : i + MAX_BATCH_VALUES])
        yield from execute(conn, build(size), parameters)


def batch_values(values: Mapping[str, Any], batch: Sequence[Any]) -> tuple[int, dict[str, Any]]:
    """Return for how many values the statement of a batch is, and its parameters.

    There is one statement for each power of two; it is padded with the last value.
    """
    size = 1 << (len(batch) - 1).bit_length()
    return size, {**values, **{f"any{k}": batch[min(k, len(batch) - 1)] for k in range(size)}}


def in_clause(column: Any, size: int) -> Any:
    """Return the condition that a column has one of the values of `select_in_batches`."""
    return column.in_([bindparam(f"any{k}") for k in range(size)])


def driver(conn: Connection) -> sqlite3.Connection | None:
    """Return SQLite's connection under SQLAlchemy's, with the same transaction; else None."""
    raw_connection = conn.connection.dbapi_connection
    if isinstance(raw_connection, sqlite3.Connection):
        return raw_connection
    return None


def add_row(conn: Connection, table: Table, **values: Any) -> None:
    """Insert one row."""
    execute(conn, _insert_statement(table, tuple(values)), values)


def add_rows(
    conn: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    shared: Collection[str] = (),
) -> None:
    """Insert rows with the same columns. Raises what the database raises.

    shared: columns that say the same in each row; of many rows they need not be sent with each.
    """
    if rows:
        sql_driver(conn).add_rows(conn, _insert_statement(table, tuple(rows[0])), rows, shared)


def put_row(conn: Connection, table: Table, key_columns: tuple[str, ...], /, **values: Any) -> None:
    """Insert the row, or update the one with the same `key_columns` columns."""
    execute(conn, _upsert_statement(sql_driver(conn), table, key_columns, tuple(values)), values)


def rows_of_keys(conn: Connection, sql: str, keys: Sequence[int]) -> list[Any]:
    """Run SQL that contains no input and names a list of row keys.

    In it, `{listed}` is a table with the column `value`.
    """
    return sql_driver(conn).rows_of_keys(conn, sql, keys)


def rows_of_pairs(conn: Connection, sql: str, pairs: Sequence[tuple[int, int]]) -> list[Any]:
    """Run SQL that contains no input and names a list of pairs.

    In it, `{listed}` is a table with the columns `first` and `second`.
    """
    return sql_driver(conn).rows_of_pairs(conn, sql, pairs)


def execute_sql(conn: Connection, sql: str, *values: Any) -> list[Any]:
    """Run SQL in the database's own words that contains no input; return its rows."""
    return sql_driver(conn).execute_sql(conn, sql, *values)


def run_pure(conn: Connection, work: Callable[[A], T], argument: A, size: int) -> T:
    """Run work that asks the store nothing, off the event loop if it takes long.

    size: characters that it goes through.
    """
    if size < LONG_CHARACTERS:
        return work(argument)
    return sql_driver(conn).run_pure(conn, work, argument)


def key_list(conn: Connection, keys: Sequence[int]) -> dict[str, Any]:
    """Return the parameter of a driver's `is_listed`."""
    return {"keys": sql_driver(conn).list_keys(keys)}


@cache
def _insert_statement(table: Table, columns: tuple[str, ...]) -> Any:
    return insert(table).values({name: bindparam(name) for name in columns})


def insert_with_conflict(driver: SqlDriver, table: Table, columns: Iterable[str]) -> Any:
    """Return an insert for a conflict clause, which each kind of database has of its own."""
    return driver.insert(table).values({name: bindparam(name) for name in columns})


@cache
def _upsert_statement(
    driver: SqlDriver, table: Table, key_columns: tuple[str, ...], columns: tuple[str, ...]
) -> Any:
    statement = insert_with_conflict(driver, table, columns)
    new_values = {name: statement.excluded[name] for name in columns if name not in key_columns}
    return statement.on_conflict_do_update(index_elements=list(key_columns), set_=new_values)
