"""Each kind of database offers the same functions, and loads nothing of the other kind."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from memory.stores.sql.engine import database_kinds
from memory.stores.sql.engine.sql_driver import SearchIndex, SqlDriver

SQLITE, POSTGRES = "sqlite+aiosqlite:///memory.db", "postgresql+asyncpg://localhost/memory"
OFFERED = {
    "load_connections": {"open_connections"},
    "load_maintenance": {"migrate", "rewrite"},
    "load_probe": {"query"},
}


def test_a_file_is_told_from_a_server():
    assert database_kinds.is_file(SQLITE)
    assert database_kinds.is_file("sqlite://")
    assert not database_kinds.is_file(POSTGRES)
    assert not database_kinds.is_file("postgresql://sqlite/memory")


@pytest.mark.parametrize("load", OFFERED)
def test_both_kinds_offer_the_same_functions(load):
    modules = [getattr(database_kinds, load)(url) for url in (SQLITE, POSTGRES)]
    for name in OFFERED[load]:
        here, there = (inspect.signature(getattr(module, name)) for module in modules)
        assert list(here.parameters) == list(there.parameters)


def test_both_drivers_take_the_same_arguments():
    from memory.stores.sql.engine.postgres import postgres_driver
    from memory.stores.sql.engine.sqlite import sqlite_driver

    for port, kinds in (
        (SqlDriver, (sqlite_driver.DRIVER, postgres_driver.DRIVER)),
        (SearchIndex, (sqlite_driver.DRIVER.index, postgres_driver.DRIVER.index)),
    ):
        for name, method in inspect.getmembers(port, inspect.isfunction):
            if not name.startswith("_"):
                parameters = list(inspect.signature(method).parameters)[1:]
                for kind in kinds:
                    assert list(inspect.signature(getattr(kind, name)).parameters) == parameters


@pytest.mark.parametrize("load", OFFERED)
def test_a_file_loads_nothing_of_a_server(load):
    code = (
        "import sys; from memory.stores.sql.engine import database_kinds as k; "
        f"k.{load}({SQLITE!r}); "
        "print(sorted(m for m in sys.modules if 'asyncpg' in m or 'engine.postgres.' in m))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
