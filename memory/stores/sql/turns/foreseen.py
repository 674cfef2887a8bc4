"""Rows that were read before the statements which ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

# In what belongs to a connection.
NAME = "foreseen"
Key = tuple[Any, ...]


class NotForeseen(Exception):
    """A statement asked for rows that were not read."""


class ForeseenRows:
    """Rows by statement and values."""

    def __init__(self) -> None:
        self._rows: dict[Key, list[Any]] = {}

    def put(self, statement: Any, values: Mapping[str, Any], rows: list[Any]) -> None:
        self._rows[_key(statement, values)] = rows

    def find(self, statement: Any, values: Mapping[str, Any]) -> list[Any]:
        """Return the rows. Raises NotForeseen."""
        try:
            return self._rows[_key(statement, values)]
        except KeyError:
            raise NotForeseen from None


def _key(statement: Any, values: Mapping[str, Any]) -> Key:
    """Return what tells questions apart; a statement has the same parameters each time."""
    parameters = [values[name] for name in sorted(values)]
    return (statement, *[tuple(v) if type(v) is list else v for v in parameters])


@contextmanager
def foresee(conn: Connection) -> Iterator[ForeseenRows]:
    """Answer the statements of a block with rows that it is told, and ask the database nothing."""
    foreseen_rows = conn.info[NAME] = ForeseenRows()
    try:
        yield foreseen_rows
    finally:
        del conn.info[NAME]
