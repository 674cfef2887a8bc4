"""A file's tables are made by statements that are compiled once."""

from __future__ import annotations

from sqlalchemy import create_engine

from memory.stores.sql.engine import schema
from memory.stores.sql.engine.sqlite.sqlite_driver import DRIVER

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
