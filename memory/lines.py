"""The conversations under way as their newest turns left them, so that the next turn of each reads nothing.

A line is what the store would answer to a request that resends exactly the history up to an answer of ours and adds to it. It is
believed only where nothing can have changed it: a turn takes the line it continues away, a turn that edits memory takes away all
of its scope's, and any write that is not a turn's own (a job, the API, another process) takes away everything. What is not found
here is read.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from memory.stores.sql.engine import Database
from memory.stores.sql.turns import Snapshot

MOST = 2048  # lines; about 4 KB each


@dataclass(slots=True, eq=False)
class Shelf:
    """The lines of one scope, by the link of the answer they end in."""

    lines: dict[bytes, Snapshot] = field(default_factory=dict)


class Lines:
    """All that are kept; the oldest leave first."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._version: tuple[int, int] | None = None
        self._shelves: dict[bytes, Shelf] = {}
        self._count = 0

    def shelf(self, scope: bytes) -> Shelf | None:
        """Where the lines of a scope stand now: another object once they were forgotten. None where none can be kept."""
        version = self._db.version
        if version != self._version:
            self._version, self._count = version, 0
            self._shelves.clear()
        if version is None:
            return None
        if (found := self._shelves.get(scope)) is None:
            found = self._shelves[scope] = Shelf()
            if len(self._shelves) > MOST:
                self.forget(next(iter(self._shelves)))
        return found

    def take(self, shelf: Shelf | None, link: bytes) -> Snapshot | None:
        """The line that ends in the answer at this link. It is nobody else's from now on."""
        if shelf is None or (found := shelf.lines.pop(link, None)) is None:
            return None
        self._count -= 1
        return found

    def keep(self, scope: bytes, began: Shelf | None, link: bytes, line: Snapshot) -> None:
        """Keeps a line for the next turn. began: the scope's shelf when what is in the line was read."""
        if began is None or self.shelf(scope) is not began:
            return
        self._shelves[scope] = self._shelves.pop(scope)
        self._count += link not in began.lines
        began.lines[link] = line
        while self._count > MOST:
            oldest = next(iter(self._shelves))
            lines = self._shelves[oldest].lines
            if lines:
                del lines[next(iter(lines))]
                self._count -= 1
            if not lines:
                del self._shelves[oldest]

    def forget(self, scope: bytes) -> None:
        """Takes away what is kept of a scope, now and by the turns of it that are under way."""
        if (gone := self._shelves.pop(scope, None)) is not None:
            self._count -= len(gone.lines)
