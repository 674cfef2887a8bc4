"""What a turn's session needs of the memory it belongs to."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from memory.lines import Lines, Shelf
from memory.messages import Seen
from memory.retrieval import Retrieval
from memory.spill import Spill
from memory.stores.sql.engine import Database
from memory.tokens import Counter


@dataclass(frozen=True, slots=True)
class Attempt:
    """key: what names the request among its retries. first: no other attempt at it is in flight."""

    key: bytes | None
    first: bool
    shelf: Shelf | None = None  # where the next turn finds what this one leaves


class Keeper(Protocol):
    """What a session needs of the memory it belongs to."""

    db: Database
    lines: Lines
    seen: Seen
    retrieval: Retrieval
    spill: Spill
    busy_nodes: set[int]  # open nodes of turns under way
    continued: dict[int, bytes]  # nodes that a turn under way continues, and by which history

    def counter(self, family: str) -> Counter: ...

    def land(self, flight: bytes | None) -> None: ...
