"""Rows that were read before the statements which ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

NAME = "foreseen"  # in what belongs to a connection
Key = tuple[Any, tuple[tuple[str, Any], ...]]


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
    return statement, tuple(
        (name, tuple(value) if isinstance(value, Sequence) else value)
        for name, value in sorted(values.items())
    )


@contextmanager
def foresee(conn: Connection) -> Iterator[ForeseenRows]:
    """Answer the statements of a block with rows that it is told, and ask the database nothing."""
    known = conn.info[NAME] = ForeseenRows()
    try:
        yield known
    finally:
        del conn.info[NAME]
