"""Postgres' driver: statements are built and compiled once, and passed to asyncpg directly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ARRAY, BigInteger, Connection, Table, bindparam, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql.base import Executable
from sqlalchemy.util import await_only

from memory.stores.sql.engine import schema
from memory.stores.sql.engine.postgres import postgres_schema
from memory.stores.sql.engine.postgres.postgres_index import PostgresIndex
from memory.stores.sql.engine.postgres.postgres_statements import fetch, fetch_sql, run_many
from memory.stores.sql.engine.sql_driver import SILENT_SECONDS, SearchIndex, SqlDriver
from memory.stores.sql.engine.statements import RowSet
from memory.stores.sql.turns.foreseen import NAME

A = TypeVar("A")
T = TypeVar("T")
_workers = postgres_schema.workers.c
LIVING_WORKER = select(_workers.incarnation).where(
    _workers.incarnation == bindparam("holder"),
    _workers.seen_at > func.extract("epoch", func.clock_timestamp()) - SILENT_SECONDS,
)


class PostgresDriver:
    """A server, to which several processes write."""

    is_shared = True

    def __init__(self) -> None:
        self.index: SearchIndex = PostgresIndex()

    def execute(self, conn: Connection, statement: Executable, values: Mapping[str, Any]) -> RowSet:
        if (foreseen := conn.info.get(NAME)) is not None:
            return RowSet(foreseen.find(statement, values))
        return RowSet(fetch(conn, statement, values))

    def execute_sql(self, conn: Connection, sql: str, *values: Any) -> list[Any]:
        return fetch_sql(conn, sql, *values)

    def add_rows(
        self,
        conn: Connection,
        statement: Executable,
        rows: Sequence[Mapping[str, Any]],
        shared: Collection[str],
    ) -> None:
        run_many(conn, statement, rows)

    def rows_of_keys(self, conn: Connection, sql: str, keys: Sequence[int]) -> list[Any]:
        keyed_sql = sql.format(listed="unnest($1::bigint[]) AS k(value)")
        return fetch_sql(conn, keyed_sql, list(keys))

    def rows_of_pairs(
        self, conn: Connection, sql: str, pairs: Sequence[tuple[int, int]]
    ) -> list[Any]:
        paired_sql = sql.format(listed="unnest($1::bigint[], $2::bigint[]) AS k(first, second)")
        return fetch_sql(conn, paired_sql, [first for first, _ in pairs], [p[1] for p in pairs])

    def insert(self, table: Table) -> Any:
        return postgresql.insert(table)

    def is_listed(self, column: Any) -> Any:
        return column == func.any(bindparam("keys", type_=ARRAY(BigInteger)))

    def list_keys(self, keys: Sequence[int]) -> list[int]:
        return list(keys)

    def run_pure(self, conn: Connection, work: Callable[[A], T], argument: A) -> T:
        """Run it in a thread; others go on meanwhile."""
        work_result: T = await_only(asyncio.to_thread(work, argument))
        return work_result

    def is_worker_alive(self, conn: Connection, incarnation: int) -> bool:
        return bool(self.execute(conn, LIVING_WORKER, {"holder": incarnation}))

    def create_tables(self, conn: Connection) -> None:
        postgres_schema.create(conn)

    def table_names(self) -> set[str]:
        return {*schema.metadata.tables, *postgres_schema.metadata.tables}


DRIVER: SqlDriver = PostgresDriver()
