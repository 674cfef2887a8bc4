"""A write in one statement, tried before the transaction that can write anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Sql(NamedTuple):
    """SQL that contains no input, and the values of its numbered parameters."""

    text: str
    values: Sequence[Any]


@dataclass(slots=True)
class Shortcut(Generic[T]):
    """One statement that writes all of a work and returns a row, or nothing and returns none.

    build: returns the statement, None if it cannot write the work. tell: returns what the work
    would return, from that row. is_doubtful: the connection was lost, so it is unknown whether it
    wrote. The work, which holds the owner's lock, then looks before it writes.
    """

    build: Callable[[], Sql | None]
    tell: Callable[[Sequence[Any]], T]
    is_doubtful: bool = False
