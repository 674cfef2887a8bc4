"""The store that tests run on: SQLite, or with MNEMOGATE_TEST_STORE=postgres a real Postgres, with
=pgbouncer one behind a pooler.

A path stands for a database: its file, or a database of that server made when it is first named.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

from memory.stores.sql.engine.database import Database
from tests.pgbouncer import PgBouncer
from tests.postgres_server import PostgresServer, installed_binaries

POOLED = os.environ.get("MNEMOGATE_TEST_STORE") == "pgbouncer"
POSTGRES = POOLED or os.environ.get("MNEMOGATE_TEST_STORE") == "postgres"
# Of every database that tests make.
SECRET = b"\x51" * 32
WRITTEN = ("scopes", "conversations", "nodes", "messages", "blocks", "passages")
_folders: list[tempfile.TemporaryDirectory[str]] = []
# The server's commands have a loop of their own.
_thread = ThreadPoolExecutor(1)
_made: dict[Path, str] = {}


@cache
def server() -> PostgresServer:
    """The server of this process, started when it is first needed; without one the test skips."""
    installed_binaries()
    _folders.append(folder := tempfile.TemporaryDirectory(prefix="mnemogate-pg-"))
    found = PostgresServer(Path(folder.name))
    found.create()
    found.start()
    return found


@cache
def pooler() -> PgBouncer:
    """The pooler of this process before its server, started when it is first needed."""
    found = PgBouncer(server().folder.parent, server())
    found.start()
    return found


def _new_database() -> str:
    url = server().database(SECRET)
    return pooler().url(url) if POOLED else url


def stop() -> None:
    """Stop the server, if one was started."""
    if pooler.cache_info().currsize:
        pooler().stop()
    if server.cache_info().currsize:
        server().stop()
        _folders.pop().cleanup()


def url_of(path: Path) -> str:
    """The URL of the database that a path stands for."""
    if not POSTGRES:
        return f"sqlite+aiosqlite:///{path}"
    if path not in _made:
        _made[path] = _thread.submit(_new_database).result()
    return _made[path]


def server_url(name: str = "postgres") -> str:
    """The URL of a new database on the server, whatever store the tests run on."""
    path = Path(f"{name} {len(_made)}")
    _made[path] = _thread.submit(_new_database).result()
    return _made[path]


def direct(url: str) -> str:
    """The same database without the pooler."""
    return server().url(url.rsplit("/", 1)[1])


def on_server(url: str, *statements: str) -> list[Any]:
    """Run statements in a database of the server; return the rows of the last one."""
    name = url.rsplit("/", 1)[1]
    return _thread.submit(lambda: server().run(*statements, database=name)).result()


def made() -> set[Path]:
    """What databases stand for now."""
    return set(_made)


def drop_all(but: Collection[Path] = ()) -> None:
    """Remove databases. but: of gateways that are there for more tests."""
    for path in _made.keys() - set(but):
        _thread.submit(server().drop, _made.pop(path)).result()


def database(path: Path) -> Database:
    """The database that a path stands for, not open yet."""
    return Database(url_of(path), secret=SECRET)


@contextlib.asynccontextmanager
async def locked(data: Path) -> AsyncIterator[None]:
    """Another process that writes to a gateway's database, and does not end."""
    path = data / "mnemogate.db"
    if POSTGRES:
        other = await asyncpg.connect(direct(url_of(path)).replace("+asyncpg", ""))
        try:
            await other.execute(f"BEGIN; LOCK TABLE {', '.join(WRITTEN)} IN EXCLUSIVE MODE")
            yield
        finally:
            await other.close()
        return
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield
        file.execute("ROLLBACK")


def settings(data: Path) -> dict[str, Any]:
    """The settings of a gateway whose data folder this is."""
    if not POSTGRES:
        return {}
    return {"storage.database": url_of(data / "mnemogate.db"), "storage.secret": SECRET.hex()}
