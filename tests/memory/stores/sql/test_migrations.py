"""The two ways to a schema meet; after a vacuum nothing erased is left in the files."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import sys

import pytest

from memory.errors import StoreUnavailable
from memory.scope import Scope
from memory.search.query import scope_mark
from memory.stores.sql.engine import schema
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.upgrade import upgrade
from memory.stores.sql.engine.vacuum import vacuum
from memory.stores.sql.owners.erasure import erase
from memory.stores.sql.rows import passages, scopes


def shape(path):
    """Every table, column, key and index, without the wording of the DDL."""
    with sqlite3.connect(path) as conn:
        tables = [
            name
            for (name,) in conn.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        told = {
            name: (
                conn.execute(f"PRAGMA table_info('{name}')").fetchall(),
                sorted(row[2:] for row in conn.execute(f"PRAGMA foreign_key_list('{name}')")),
            )
            for name in tables
        }
        indexes = {
            (table, name, re.sub(r"\s+", " ", sql or ""))
            for table, name, sql in conn.execute(
                "SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'index'"
            )
        }
        columns = {
            name: list(conn.execute(f"PRAGMA index_info('{name}')")) for _, name, _ in indexes
        }
        virtual = sorted(
            sql
            for (sql,) in conn.execute(
                "SELECT sql FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%'"
            )
        )
        revision = conn.execute("SELECT version_num FROM alembic_version").fetchall()
    conn.close()
    return told, indexes, columns, virtual, revision


async def made(path):
    db = Database(f"sqlite+aiosqlite:///{path}")
    await db.open()
    return db


async def test_made_at_once_and_upgraded_from_nothing_are_the_same(tmp_path):
    await (await made(tmp_path / "made.db")).close()
    url = f"sqlite+aiosqlite:///{tmp_path}/upgraded.db"
    assert await asyncio.to_thread(upgrade, url) == schema.REVISION
    assert await asyncio.to_thread(upgrade, url) == schema.REVISION
    assert shape(tmp_path / "upgraded.db") == shape(tmp_path / "made.db")
    await (await made(tmp_path / "upgraded.db")).close()


async def test_an_upgrade_leaves_a_database_that_is_up_to_date_alone(tmp_path):
    await (await made(tmp_path / "a.db")).close()
    before = shape(tmp_path / "a.db")
    await asyncio.to_thread(upgrade, f"sqlite+aiosqlite:///{tmp_path}/a.db")
    assert shape(tmp_path / "a.db") == before


LATER_TABLES = ("skill_uses", "skill_versions", "skills", "reflections", "reflection_runs")


async def test_an_upgrade_scrubs_secrets_that_an_earlier_build_stored(tmp_path):
    await (await made(tmp_path / "a.db")).close()
    secret = {"source": 'def f() -> str:\n    return "secrets"\n', "secrets": {"K": "sk-1234567"}}
    plain = {"source": secret["source"], "description": "Üse"}
    texts = [json.dumps(d, ensure_ascii=False) for d in (secret, plain)]
    with sqlite3.connect(tmp_path / "a.db") as conn:
        tool = "INSERT INTO python_tools (id, name, definition, version, created_at, updated_at)"
        for i, text in enumerate(texts):
            conn.execute(f"{tool} VALUES (?, ?, ?, 1, 0, 0)", (f"t{i}", f"f{i}", text))
        version = "INSERT INTO python_tool_versions (id, tool, version, before, after, created_at)"
        pairs = [(None, texts[0]), (texts[0], texts[1]), (texts[1], None)]
        for i, pair in enumerate(pairs):
            conn.execute(f"{version} VALUES (?, 't0', ?, ?, ?, 0)", (i + 1, i + 1, *pair))
        for table in LATER_TABLES:
            # Of a later version.
            conn.execute(f"DROP TABLE {table}")
        conn.execute("UPDATE alembic_version SET version_num = '0026'")
    conn.close()
    await asyncio.to_thread(upgrade, f"sqlite+aiosqlite:///{tmp_path}/a.db")
    with sqlite3.connect(tmp_path / "a.db") as conn:
        tools = conn.execute("SELECT definition FROM python_tools ORDER BY id").fetchall()
        versions = conn.execute("SELECT before, after FROM python_tool_versions ORDER BY version")
        kept = [text and json.loads(text) for row in (*tools, *versions) for text in row]
    conn.close()
    scrubbed = {"source": secret["source"]}
    assert kept == [scrubbed, plain, None, scrubbed, scrubbed, plain, plain, None]


async def test_what_cannot_be_opened_is_told(tmp_path):
    url = f"sqlite+aiosqlite:///{tmp_path}/none/a.db"
    with pytest.raises(StoreUnavailable):
        await asyncio.to_thread(upgrade, url)
    with pytest.raises(StoreUnavailable):
        await vacuum(url)


def test_alembic_is_loaded_by_an_upgrade_alone():
    code = (
        "import sys, memory.stores.sql.engine.upgrade, memory.stores.sql.engine.database; "
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def bytes_of(folder):
    return b"".join(f.read_bytes() for f in folder.iterdir() if f.is_file())


async def test_after_an_erase_and_a_vacuum_no_byte_is_left(tmp_path):
    secret = b"s" * 32
    scope = Scope("acme", "sentinelada", "default", secret)
    db = await made(tmp_path / "a.db")

    def fill(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, scope))
        for i in range(200):
            passages.add(
                conn,
                scope_id,
                passages.NewPassage(f"Sentinelword {i} zwhatever", tags=["sentineltag"]),
            )
        other = scopes.get_or_create(
            conn, scopes.current_owner(conn, Scope("acme", "bob", "default", secret))
        )
        passages.add(conn, other, passages.NewPassage("Keeps bees"))
        return other

    other = await db.write(fill)
    assert b"sentinel" in bytes_of(tmp_path).lower()
    counts = (await erase(db, secret, ("acme", "sentinelada"), ())).counts
    assert counts["passages"] == 200
    await vacuum(db.url)
    for running in (True, False):
        left = bytes_of(tmp_path).lower()
        assert b"sentinel" not in left, running
        assert b"zwhatever" not in left
        if running:
            await db.close()
    with sqlite3.connect(tmp_path / "a.db") as conn:
        assert conn.execute(
            "SELECT count(*) FROM passages_fts WHERE passages_fts MATCH '\"' || ? || 'bees\"'",
            (scope_mark(other),),
        ).fetchone() == (1,)
    conn.close()


async def test_a_reader_that_keeps_the_log_is_told(tmp_path):
    db = await made(tmp_path / "a.db")
    reader = sqlite3.connect(tmp_path / "a.db")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM scopes").fetchall()
    scope = Scope("t", "u", "default", b"s" * 32)
    await db.write(lambda conn: scopes.get_or_create(conn, scopes.current_owner(conn, scope)))
    try:
        with pytest.raises(StoreUnavailable):
            await vacuum(db.url)
    finally:
        reader.close()
        await db.close()
