"""Writing single rows. Statements are built once a table and kept: building one costs more than running it."""
from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Table, insert
from sqlalchemy.dialects import postgresql, sqlite


def add_row(conn: Connection, table: Table, **values: Any) -> None:
    """Inserts one row."""
    conn.execute(_inserting(table), values)


def put_row(conn: Connection, table: Table, on: tuple[str, ...], /, **values: Any) -> None:
    """Inserts the row, or updates the one that has the same `on` columns."""
    conn.execute(_putting(conn.dialect.name, table, on, tuple(values)), values)


@cache
def _inserting(table: Table) -> Insert:
    return insert(table)


@cache
def _putting(dialect: str, table: Table, on: tuple[str, ...], columns: tuple[str, ...]) -> Any:
    statement = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(table)
    changed = {name: statement.excluded[name] for name in columns if name not in on}
    return statement.on_conflict_do_update(index_elements=list(on), set_=changed)
