"""Explain records: each under its own id, those of several attempts at one turn together."""

from __future__ import annotations

import pytest

from memory.errors import NotUpgraded
from memory.ids import new_id, new_key
from memory.scope import Scope
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.sql_driver import sql_driver
from memory.stores.sql.engine.statements import execute
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.conversations import find_explain_record
from memory.stores.sql.turns.turn_writer import upsert_explain


async def test_each_attempt_at_a_turn_keeps_its_record(db):
    node = new_key()
    first, second = (f"{new_id('explain')}{node:016x}" for _ in range(2))

    def work(conn):
        scope_id = scopes.get_or_create(
            conn, scopes.current_owner(conn, Scope("t", "ada", "default", b"s" * 32))
        )
        for at, ident in ((1.0, first), (2.0, second)):
            record = f'{{"id":"{ident}","injected":{{"core":"two\\nlines"}},"created_at":{at}}}'
            execute(
                conn,
                upsert_explain(sql_driver(conn)),
                {"id": node, "scope_id": scope_id, "record": record, "created_at": at},
            )

    await db.write(work)
    reach = scopes.VisibleScopes("t")
    for at, ident in ((1.0, first), (2.0, second)):
        found = await db.read(lambda conn, i=ident: find_explain_record(conn, reach, i))
        assert (found["id"], found["created_at"], found["user"], found["injected"]["core"]) == (
            ident,
            at,
            "ada",
            "two\nlines",
        )
    for wrong in (
        f"{new_id('explain')}{node:016x}",
        first[:-1],
        f"{first}0",
        f"{new_id('explain')}{2**63:016x}",
        "",
    ):
        assert await db.read(lambda conn, i=wrong: find_explain_record(conn, reach, i)) is None
    assert (
        await db.read(lambda conn: find_explain_record(conn, scopes.VisibleScopes("other"), first))
        is None
    )


async def test_a_database_that_an_unreleased_version_made_is_refused_by_name(tmp_path):
    """It tells the version of this one and lacks a table: each turn would fail."""
    url = f"sqlite+aiosqlite:///{tmp_path}/m.db"
    made = Database(url)
    await made.open()
    await made.write(lambda conn: conn.exec_driver_sql("DROP TABLE marks"))
    await made.close()
    with pytest.raises(NotUpgraded, match="lacks marks"):
        await Database(url).open()
