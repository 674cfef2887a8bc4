"""A file's tables are made by statements that are compiled once."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, select

from memory.stores.sql.engine import schema
from memory.stores.sql.engine.gathered_writes import WRITES_OPTION
from memory.stores.sql.engine.sql_driver import DRIVER_OPTION
from memory.stores.sql.engine.sqlite.sqlite_driver import DRIVER, SEVERAL
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


@pytest.mark.parametrize("count", [0, 1, SEVERAL - 1, SEVERAL, SEVERAL + 1, 5 * SEVERAL])
def test_rows_are_inserted_whatever_their_number(count):
    engine = create_engine("sqlite://").execution_options(
        **{DRIVER_OPTION: DRIVER, WRITES_OPTION: None}
    )
    rows = [{"name": f"mark {i:03}", "upto": i} for i in range(count)]
    with engine.begin() as conn:
        DRIVER.create_tables(conn)
        add_rows(conn, schema.marks, rows)
        marks = schema.marks.c
        stored = conn.execute(select(marks.name, marks.upto).order_by(marks.name))
        assert [row._asdict() for row in stored if row.name.startswith("mark ")] == rows
    engine.dispose()
