"""A write in one statement, tried before the transaction that can write anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")


@dataclass(slots=True)
class Shortcut(Generic[T]):
    """One statement that writes all of a work, or nothing and returns None.

    is_doubtful: the connection was lost, so it is unknown whether it wrote. The work, which holds
    the owner's lock, then looks before it writes.
    """

    work: Callable[[Connection], T | None]
    is_doubtful: bool = False
