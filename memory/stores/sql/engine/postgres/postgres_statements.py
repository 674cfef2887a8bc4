"""Statements on Postgres through asyncpg, without SQLAlchemy's overhead.

They are compiled once, and their rows have column names. Through SQLAlchemy a statement takes 0.28
ms of CPU, through the driver 0.1.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import asyncpg
from sqlalchemy import Connection, make_url
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.sql.base import Executable
from sqlalchemy.util import await_only

from memory.stores.sql.engine.statements import Query, RowSet, all_storable

# Classes of values that do not fit, or are longer than an index takes, and of broken constraints.
UNFIT = ("22", "54")
BROKEN = "23"
OF_SQLALCHEMY = {
    "async_creator_fn",
    "async_fallback",
    "prepared_statement_cache_size",
    "prepared_statement_name_func",
}
ARRAY_TYPES = ("bigint", "int", "text", "varchar", "bytea", "float8", "boolean")
ARRAYS = "SELECT " + ", ".join(f"${i}::{name}[]" for i, name in enumerate(ARRAY_TYPES, 1))
_dialect = PGDialect_asyncpg()  # type: ignore[no-untyped-call]


def driver_arguments(url: str) -> dict[str, Any]:
    """Return what the driver is given for a connection that asks little.

    It keeps no statement, so any pooler may stand between.
    """
    _, connect_arguments = _dialect.create_connect_args(make_url(url))  # type: ignore[no-untyped-call]
    driver_values = {
        name: value for name, value in connect_arguments.items() if name not in OF_SQLALCHEMY
    }
    return {**driver_values, "statement_cache_size": 0}


def cache_arguments(statements: int) -> dict[str, Any]:
    """Return what the engine is given to keep so many prepared statements on a connection.

    Without any they have no names either, which a pooler's next client would meet.
    """
    engine_arguments = {
        "statement_cache_size": statements,
        "prepared_statement_cache_size": statements,
        # Any: one without a name takes two round trips.
        "max_cacheable_statement_size": 0,
    }
    if statements:
        return engine_arguments
    return {**engine_arguments, "prepared_statement_name_func": str}


async def learn_arrays(raw_connection: Any) -> None:
    """Let a new connection ask the server once how arrays are encoded.

    Else the driver asks in the midst of the first statement that has one. It switches the server's
    compiler off before and on again after, for asking takes seconds otherwise: behind a pooler that
    works in a transaction alone. Rolled back, since the driver switches it for the session.
    """
    await raw_connection.execute("BEGIN")
    await raw_connection.fetch(ARRAYS, *[None] * len(ARRAY_TYPES))
    await raw_connection.execute("ROLLBACK")


def sqlstate_of(error: BaseException) -> str:
    """Return the SQLSTATE of an error of the driver or of SQLAlchemy; empty if it has none."""
    driver_error = getattr(error, "orig", None) or error
    return str(getattr(driver_error, "sqlstate", None) or "")


def fetch(conn: Connection, statement: Executable, values: Mapping[str, Any]) -> list[Any]:
    """Run a statement that is built once and kept; return its rows."""
    return _compile(statement).run(_raw(conn), values)


async def fetch_query(raw_connection: Any, query: Query) -> RowSet:
    """Run a single statement over the driver, outside a work. Raises the driver's errors."""
    statement = _compile(query.statement)
    return RowSet(
        statement.name_rows(
            await raw_connection.fetch(statement.sql, *statement.order(query.values))
        )
    )


def run_many(conn: Connection, statement: Executable, rows: Sequence[Mapping[str, Any]]) -> None:
    """Run a statement for each row."""
    _compile(statement).each(_raw(conn), rows)


def fetch_sql(conn: Connection, sql: str, *values: Any) -> list[Any]:
    """Run SQL that contains no input; return its rows."""
    return list(_wait(_raw(conn).fetch(sql, *all_storable(values)), sql))


def _raw(conn: Connection) -> Any:
    return conn.connection.driver_connection


def _wait(awaitable: Any, sql: str) -> Any:
    """Wait for the driver. Raises SQLAlchemy's errors in place of the driver's."""
    try:
        return await_only(awaitable)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as e:
        raise _translate(e)(sql, None, e, hide_parameters=True) from e


def _translate(error: BaseException) -> type[DBAPIError]:
    state = sqlstate_of(error)
    if state.startswith(BROKEN):
        return IntegrityError
    # A value that the driver cannot encode has no SQLSTATE.
    if state.startswith(UNFIT) or isinstance(error, asyncpg.DataError | ValueError):
        return DataError
    return OperationalError


class _AsyncpgStatement:
    """A statement compiled for asyncpg, with its constant parameters filled in."""

    def __init__(self, statement: Any) -> None:
        compiled_statement = statement.compile(dialect=_dialect)
        self.sql = str(compiled_statement)
        self._params = [
            (name, compiled_statement.params.get(name))
            for name in compiled_statement.positiontup or ()
        ]
        columns = list(getattr(statement, "selected_columns", ()))
        self._row: Callable[..., Any] | None = (
            namedtuple("Row", [c.key for c in columns], rename=True) if columns else None
        )

    def run(self, raw_connection: Any, values: Mapping[str, Any]) -> list[Any]:
        return self.name_rows(_wait(raw_connection.fetch(self.sql, *self.order(values)), self.sql))

    def order(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the parameters in order."""
        return all_storable(values.get(name, default) for name, default in self._params)

    def name_rows(self, records: Sequence[Any]) -> list[Any]:
        """Return what the driver found as rows with column names."""
        if self._row is None:
            return list(records)
        return [self._row(*row) for row in records]

    def each(self, raw_connection: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        names = [name for name, _ in self._params]
        storable_rows = [all_storable(row[name] for name in names) for row in rows]
        _wait(raw_connection.executemany(self.sql, storable_rows), self.sql)


@cache
def _compile(statement: Any) -> _AsyncpgStatement:
    return _AsyncpgStatement(statement)
