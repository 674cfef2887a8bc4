"""A file's tables are made by statements that are compiled once."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, select

from memory.stores.sql.engine import schema
from memory.stores.sql.engine.gathered_writes import WRITES_OPTION
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION
from memory.stores.sql.engine.sqlite.sqlite_driver import DRIVER, GROUP_ROWS, SEVERAL
from memory.stores.sql.engine.statements import add_rows

MADE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"


def test_what_is_made_is_what_the_schema_says():
    by_driver, by_schema = create_engine("sqlite://"), create_engine("sqlite://")
    with by_driver.begin() as made, by_schema.begin() as wanted:
        DRIVER.create_tables(made)
        schema.metadata.create_all(wanted)
        things = made.exec_driver_sql(MADE).fetchall()
        assert things == wanted.exec_driver_sql(MADE).fetchall()
        assert len(things) > len(schema.metadata.tables)
    by_driver.dispose()
    by_schema.dispose()


COUNTS = [0, 1, SEVERAL, SEVERAL + 1, GROUP_ROWS - 1, GROUP_ROWS, 2 * GROUP_ROWS + 5]


@pytest.mark.parametrize("shared", [(), ("body",), ("body", "scope_id"), ("data", "body")])
@pytest.mark.parametrize("count", COUNTS)
def test_rows_are_inserted_whatever_their_number(count, shared):
    engine = create_engine("sqlite://").execution_options(
        **{DRIVER_OPTION: DRIVER, WRITES_OPTION: None}
    )
    rows = [{"body": 7, "position": i, "scope_id": 8, "data": f"piece {i}"} for i in range(count)]
    if "data" in shared:
        rows = [{**row, "data": "the same"} for row in rows]
    with engine.begin() as conn:
        DRIVER.create_tables(conn)
        add_rows(conn, schema.message_pieces, rows, shared)
        stored = conn.execute(
            select(schema.message_pieces).order_by(schema.message_pieces.c.position)
        )
        assert [row._asdict() for row in stored] == rows
    engine.dispose()
