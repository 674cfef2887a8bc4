"""Chooses what belongs to the kind of a database, by its URL.

The only module that names both kinds: the other one's modules and its driver are not loaded.
Nothing is loaded here before it is asked for, since commands look at a file without SQLAlchemy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def is_file(url: str) -> bool:
    """Tell whether a database is a SQLite file."""
    return url.partition(":")[0].partition("+")[0] == "sqlite"


def load_connections(url: str) -> Any:
    """Return the module with `open_connections` for a database."""
    if is_file(url):
        return import_module("memory.stores.sql.engine.sqlite.sqlite")
    return import_module("memory.stores.sql.engine.postgres.postgres")


def load_maintenance(url: str) -> Any:
    """Return the module with what is done to a database that no memory has open."""
    if is_file(url):
        return import_module("memory.stores.sql.engine.sqlite.sqlite_maintenance")
    return import_module("memory.stores.sql.engine.postgres.postgres_maintenance")


def load_probe(url: str) -> Any:
    """Return the module with `query`, which reads a database before it is opened."""
    if is_file(url):
        return import_module("memory.stores.sql.engine.sqlite.sqlite_probe")
    return import_module("memory.stores.sql.engine.postgres.postgres_probe")
