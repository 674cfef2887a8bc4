"""Copies the memory of a SQLite file into an empty Postgres database, completely or not at all.

All rows travel in one transaction, table by table in the order of their keys. If it ends early
nothing is there, and it can be run again. The search index holds other terms there than here, so
they are rebuilt.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
from sqlalchemy import Connection, Table, create_engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import StaticPool

from memory.errors import NotUpgraded, StoreUnavailable
from memory.stores.sql.engine import schema
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.postgres import postgres_index
from memory.stores.sql.engine.postgres.postgres_lease import HOLD_SECONDS
from memory.stores.sql.engine.postgres.postgres_statements import driver_arguments
from memory.stores.sql.engine.preparation import why_unreadable
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.sqlite.fts import IndexLimit
from memory.stores.sql.engine.sqlite.sqlite_driver import DRIVER
from memory.stores.sql.engine.statements import storable
from memory.stores.sql.engine.write_lock import EVERY_WRITE
from memory.stores.sql.rows.index_documents import READERS
from memory.stores.sql.transfer.backup import BUSY_SECONDS

# Rows.
BATCH = 500
# What only one of the stores has.
LEFT_OUT = {"marks": {"messages", "terms"}, "meta": {"secret", "gateway", "readable_by"}}
# Of rows that hold pieces of files.
LARGE_BATCH = 16
SERVED = f"""SELECT EXISTS (SELECT 1 FROM workers WHERE seen_at >
    extract(epoch FROM clock_timestamp()) - {HOLD_SECONDS})"""
# The table, rows that were copied, of how many.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """Where a memory is copied to.

    secret: the server's, which keys the search index. limit: of what is indexed of a message.
    """

    url: str
    secret: bytes
    limit: IndexLimit


async def copy_to_postgres(source: Path, target: CopyTarget, report: Progress) -> dict[str, int]:
    """Copy a SQLite database; return the number of rows by table.

    Raises StoreUnavailable, and NotUpgraded for databases of another version or with a memory.
    """
    try:
        await _file_journal(source)
        with _open_file(source) as conn:
            return await _copy(conn, target, report)
    except (SQLAlchemyError, sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError) as e:
        raise StoreUnavailable(f"nothing was copied: {type(e).__name__}: {e}") from e
    except OSError as e:
        raise StoreUnavailable(f"nothing was copied: {e}") from e


async def _file_journal(source: Path) -> None:
    """File the turns that a gateway which was killed left in its journal."""
    with _open_file(source) as conn:
        waits = conn.exec_driver_sql("SELECT 1 FROM journal LIMIT 1").first() is not None
    if waits:
        database = Database(f"sqlite+aiosqlite:///{source}")
        await database.open()
        await database.close()


async def _copy(conn: Connection, target: CopyTarget, report: Progress) -> dict[str, int]:
    tables = Database(target.url, secret=target.secret)
    await tables.open()
    await tables.close()
    raw_connection = await asyncpg.connect(**driver_arguments(target.url))
    try:
        async with raw_connection.transaction():
            await raw_connection.execute(f"SELECT pg_advisory_xact_lock({EVERY_WRITE})")
            await _check_empty(raw_connection)
            copied_rows = {}
            for table in schema.metadata.sorted_tables:
                copied_rows[table.name] = await _copy_table(conn, raw_connection, table, report)
            for index in postgres_index.TABLES:
                await _make_terms(conn, raw_connection, index, target, report)
            await _compare(raw_connection, copied_rows)
            await raw_connection.execute("ANALYZE")
    finally:
        await raw_connection.close()
    return copied_rows


@contextlib.contextmanager
def _open_file(source: Path) -> Iterator[Connection]:
    """Open the file for one reading transaction. Raises NotUpgraded for one of another version."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True, timeout=BUSY_SECONDS)

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=StaticPool,
        execution_options={DRIVER_OPTION: DRIVER},
    )
    try:
        with engine.connect() as conn:
            conn.exec_driver_sql("BEGIN")
            revision = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
            if why := why_unreadable(revision, None):
                raise NotUpgraded(why)
            yield conn
    finally:
        engine.dispose()


async def _check_empty(raw_connection: asyncpg.Connection) -> None:
    """Raise NotUpgraded for a database that holds rows, or that a gateway serves."""
    if await raw_connection.fetchval(SERVED):
        raise NotUpgraded("a gateway serves this database. Stop it first")
    for table in schema.metadata.sorted_tables:
        if table.name not in LEFT_OUT and await raw_connection.fetchval(
            f'SELECT EXISTS (SELECT 1 FROM "{table.name}")'
        ):
            raise NotUpgraded(
                f"this database holds a memory already: its table {table.name} has rows. Name "
                "an empty one, made with `CREATE DATABASE`"
            )


async def _copy_table(
    conn: Connection, raw_connection: asyncpg.Connection, table: Table, report: Progress
) -> int:
    """Copy the rows of a table; return how many."""
    query = select(table).order_by(*table.primary_key.columns)
    if left_out_names := LEFT_OUT.get(table.name):
        query = query.where(table.c.name.not_in(left_out_names))
    size = conn.execute(select(func.count()).select_from(query.subquery())).scalar_one()
    copied_count = 0
    if table.name == "file_chunks":
        batch = LARGE_BATCH
    else:
        batch = BATCH
    for rows in conn.execute(query).partitions(batch):
        await raw_connection.copy_records_to_table(
            table.name,
            records=[tuple(map(storable, row)) for row in rows],
            columns=[column.name for column in table.columns],
        )
        copied_count += len(rows)
        report(table.name, copied_count, size)
    await _go_on_counting(raw_connection, table)
    return copied_count


async def _go_on_counting(raw_connection: asyncpg.Connection, table: Table) -> None:
    """Let the server number later rows after those that were copied."""
    if (column := table.autoincrement_column) is None:
        return
    await raw_connection.execute(
        f"SELECT setval(pg_get_serial_sequence('\"{table.name}\"', '{column.name}'), "
        f'(SELECT max("{column.name}") FROM "{table.name}"))'
    )


async def _make_terms(
    conn: Connection,
    raw_connection: asyncpg.Connection,
    index: str,
    target: CopyTarget,
    report: Progress,
) -> None:
    """Index all rows of a kind."""
    name = postgres_index.TABLES[index]
    after_key = 0
    done_count = 0
    rows = schema.metadata.tables[index.removesuffix("_fts")]
    size = conn.execute(select(func.count()).select_from(rows)).scalar_one()
    while document_page := READERS[index.removesuffix("_fts")](conn, after_key, BATCH):
        await raw_connection.copy_records_to_table(
            name,
            records=[
                (key, doc.scope_id, _numbers(index, doc, target)) for key, doc in document_page
            ],
            columns=["id", "scope_id", "terms"],
        )
        after_key = document_page[-1][0]
        done_count = done_count + len(document_page)
        report(name, done_count, size)


def _numbers(index: str, doc: fts.SearchDocument, target: CopyTarget) -> Sequence[int]:
    columns = fts.document_columns(index, doc, target.limit)
    return postgres_index.term_numbers(target.secret, doc.scope_id, columns)


async def _compare(raw_connection: asyncpg.Connection, copied_rows: dict[str, int]) -> None:
    """Raise StoreUnavailable if the tables do not hold what was copied."""
    terms = {
        name: copied_rows[index.removesuffix("_fts")]
        for index, name in postgres_index.TABLES.items()
    }
    for name, expected_count in {**copied_rows, **terms}.items():
        left_out_names = LEFT_OUT.get(name)
        but = ""
        if left_out_names:
            but = f"WHERE name <> ALL ('{{{','.join(left_out_names)}}}')"
        row_count: Any = await raw_connection.fetchval(f'SELECT count(*) FROM "{name}" {but}')
        if row_count != expected_count:
            raise StoreUnavailable(
                f"nothing was copied: {name} has {row_count} rows "
                f"where {expected_count} were expected"
            )
