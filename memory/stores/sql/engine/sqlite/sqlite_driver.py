"""SQLite's driver: statements are built and compiled once, and passed to Python's sqlite3 directly.

Through SQLAlchemy a statement takes 100 to 150 us of a turn, through SQLite's driver 5 to 15.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from itertools import chain, count
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Boolean, Connection, Table, bindparam, create_mock_engine, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.base import Executable

from memory.stores.sql.engine import schema
from memory.stores.sql.engine.gathered_writes import WRITES_OPTION
from memory.stores.sql.engine.sql_driver import SearchIndex, SqlDriver
from memory.stores.sql.engine.sqlite.sqlite_index import SqliteIndex
from memory.stores.sql.engine.statements import RowSet

A = TypeVar("A")
T = TypeVar("T")
# Rows inserted by one statement, of few rows and of many.
SEVERAL = 8
GROUP_ROWS = 64
PAIRS = (
    "SELECT json_extract(value, '$[0]') AS first, json_extract(value, '$[1]') AS second "
    "FROM json_each(?)"
)


class SqliteDriver:
    """A file, which one process writes."""

    is_shared = False

    def __init__(self) -> None:
        self.index: SearchIndex = SqliteIndex()

    def execute(self, conn: Connection, statement: Executable, values: Mapping[str, Any]) -> RowSet:
        compiled_statement = _compile(statement)
        writes = conn.get_execution_options().get(WRITES_OPTION)
        if writes is not None and writes.is_gathering:
            if writes.take(compiled_statement, (values,)):
                return RowSet()
            writes.run(conn.connection.dbapi_connection)
        return compiled_statement.run(conn.connection.dbapi_connection, values)

    def execute_sql(self, conn: Connection, sql: str, *values: Any) -> list[Any]:
        raw_connection: Any = conn.connection.dbapi_connection
        writes = conn.get_execution_options().get(WRITES_OPTION)
        if writes is not None:
            writes.run(raw_connection)
        return list(raw_connection.execute(sql, values))

    def add_rows(
        self,
        conn: Connection,
        statement: Executable,
        rows: Sequence[Mapping[str, Any]],
        shared: Collection[str],
    ) -> None:
        compiled_statement = _compile(statement)
        writes = conn.get_execution_options().get(WRITES_OPTION)
        if writes is not None and writes.is_gathering and writes.take(compiled_statement, rows):
            return
        raw_connection = conn.connection.dbapi_connection
        if len(rows) <= SEVERAL:
            compiled_statement.at_once(raw_connection, rows)
        else:
            compiled_statement.in_groups(raw_connection, rows, shared)

    def rows_of_keys(self, conn: Connection, sql: str, keys: Sequence[int]) -> list[Any]:
        key_parameters = (self.list_keys(keys),)
        return list(conn.exec_driver_sql(sql.format(listed="json_each(?) k"), key_parameters))

    def rows_of_pairs(
        self, conn: Connection, sql: str, pairs: Sequence[tuple[int, int]]
    ) -> list[Any]:
        pair_parameters = (msgspec.json.encode(pairs).decode(),)
        return list(conn.exec_driver_sql(sql.format(listed=f"({PAIRS}) AS k"), pair_parameters))

    def insert(self, table: Table) -> Any:
        return sqlite.insert(table)

    def is_listed(self, column: Any) -> Any:
        listed_keys = func.json_each(bindparam("keys")).table_valued("value")
        return column.in_(select(listed_keys.c.value))

    def list_keys(self, keys: Sequence[int]) -> str:
        return msgspec.json.encode(keys).decode()

    def run_pure(self, conn: Connection, work: Callable[[A], T], argument: A) -> T:
        """Run it here: whole works leave the event loop."""
        return work(argument)

    def is_worker_alive(self, conn: Connection, incarnation: int) -> bool:
        """Return False: nodes name no worker."""
        return False

    def create_tables(self, conn: Connection) -> None:
        for definition in _compile_definitions():
            conn.exec_driver_sql(definition)

    def table_names(self) -> set[str]:
        return set(schema.metadata.tables)


@lru_cache(maxsize=1)
def _compile_definitions() -> Sequence[str]:
    """Return the statements that make all tables: to compile them takes twice as long as to run."""
    definitions: list[str] = []
    dialect = sqlite.dialect()

    def note(definition: ExecutableDDLElement, *_: Any, **__: Any) -> None:
        definitions.append(str(definition.compile(dialect=dialect)))

    schema.metadata.create_all(create_mock_engine("sqlite://", note), checkfirst=False)
    return definitions


class _Compiled:
    """A statement compiled for SQLite, with its constant parameters filled in."""

    def __init__(self, statement: Any) -> None:
        compiled_statement = statement.compile(dialect=sqlite.dialect())
        self.sql = str(compiled_statement)
        self.is_write = bool(getattr(statement, "is_dml", False)) and not statement._returning
        self._params = [
            (name, compiled_statement.params.get(name))
            for name in compiled_statement.positiontup or ()
        ]
        names = [name for name, _ in self._params]
        is_plain = len(names) > 1 and all(default is None for _, default in self._params)
        self._pick_values: Callable[[Mapping[str, Any]], Sequence[Any]] | None = (
            itemgetter(*names) if is_plain else None
        )
        columns = list(getattr(statement, "selected_columns", ()))
        self._row: Callable[..., Any] = (
            _row_type([c.key for c in columns]) if columns else _plain_row
        )
        # By the number of rows.
        self._sql_by_row_count: dict[int, str] = {}
        self._booleans = [i for i, c in enumerate(columns) if isinstance(c.type, Boolean)]

    def run(self, raw_connection: Any, values: Mapping[str, Any]) -> RowSet:
        pick = self._pick_values
        if pick is None:
            parameters = self._values_of(values)
        else:
            parameters = pick(values)
        cursor = raw_connection.execute(self.sql, parameters)
        if not cursor.description:
            return RowSet()
        if self._row is _plain_row and not self._booleans:
            return RowSet(cursor)
        return RowSet(self._row(*self._to_bools(row)) for row in cursor)

    def run_all(self, raw_connection: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run the statement for each row."""
        raw_connection.executemany(self.sql, map(self._pick_values or self._values_of, rows))

    def _values_of(self, row: Mapping[str, Any]) -> Sequence[Any]:
        if self._pick_values is not None:
            return self._pick_values(row)
        return [row.get(name, default) for name, default in self._params]

    def at_once(self, raw_connection: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert all rows with one statement, which costs a third less."""
        if (sql := self._sql_by_row_count.get(len(rows))) is None:
            head, row_values = self.sql.split(" VALUES ")
            sql = self._sql_by_row_count[len(rows)] = (
                f"{head} VALUES {', '.join([row_values] * len(rows))}"
            )
        if self._pick_values is None:
            raw_connection.execute(sql, [row[name] for row in rows for name, _ in self._params])
        else:
            raw_connection.execute(sql, [*chain.from_iterable(map(self._pick_values, rows))])

    def in_groups(
        self, raw_connection: Any, rows: Sequence[Mapping[str, Any]], shared: Collection[str]
    ) -> None:
        """Insert many rows, `GROUP_ROWS` with each statement, which costs half.

        shared: columns that say the same in each row, whose values are passed once a statement.
        """
        names = tuple(name for name, _ in self._params)
        own_names = [name for name in names if name not in shared]
        grouped_count = 0
        if self._pick_values is not None and len(own_names) > 1:
            grouped_count = len(rows) - len(rows) % GROUP_ROWS
            shared_names = tuple(name for name in names if name in shared)
            sql = _insert_group(self.sql, names, shared_names)
            shared_values = [rows[0][name] for name in shared_names]
            pick_own = itemgetter(*own_names)
        for start in range(0, grouped_count, GROUP_ROWS):
            own_values = map(pick_own, rows[start : start + GROUP_ROWS])
            raw_connection.execute(sql, [*shared_values, *chain.from_iterable(own_values)])
        for start in range(grouped_count, len(rows), SEVERAL):
            self.at_once(raw_connection, rows[start : start + SEVERAL])

    def _to_bools(self, row: tuple[Any, ...]) -> Sequence[Any]:
        if not self._booleans:
            return row
        values = list(row)
        for index in self._booleans:
            if values[index] is not None:
                values[index] = bool(values[index])
        return values


@lru_cache(64)
def _insert_group(sql: str, names: Sequence[str], shared_names: Sequence[str]) -> str:
    """Return an insert of one row as one of `GROUP_ROWS`.

    names: of the parameters of a row. shared_names: of those that are the same in each; they are
    the first parameters.
    """
    shared_numbers = {name: number for number, name in enumerate(shared_names, 1)}
    own_numbers = count(len(shared_names) + 1)
    rows = [
        ", ".join(f"?{shared_numbers.get(name) or next(own_numbers)}" for name in names)
        for _ in range(GROUP_ROWS)
    ]
    head, _ = sql.split(" VALUES ")
    return f"{head} VALUES ({'), ('.join(rows)})"


def _row_type(columns: Sequence[str]) -> Callable[..., Any]:
    return namedtuple("Row", columns, rename=True)


def _plain_row(*values: Any) -> tuple[Any, ...]:
    """Return a row of a textual statement."""
    return values


# More than there are; the shapes of searches are many.
@lru_cache(1024)
def _compile(statement: Any) -> _Compiled:
    return _Compiled(statement)


DRIVER: SqlDriver = SqliteDriver()
