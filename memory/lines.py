"""The conversations under way as their newest turns left them, so that the next turn of each reads nothing.

A line is what the store would answer to a request that resends exactly the history up to an answer of ours and adds to it; or, of a
named user, a part of that history, where no other answer of theirs says the same as this one. It is
believed only where nothing can have changed it: a turn takes the line it continues away, a turn that edits memory takes away all
of its scope's, and any write that is not a turn's own (a job, the API, another process) takes away everything. What is not found
here is read.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from memory.stores.sql.engine import Database
from memory.stores.sql.turns import Snapshot

MOST = 2048  # lines; about 4 KB each, and what was sent
BYTES = 8 << 20  # of what was sent, in all of them


def called(name: str) -> bytes:
    """Where the line of a conversation stands whose history is kept here, by its name."""
    return b"name " + name.encode("utf-8", "surrogatepass")


def weight(line: Snapshot) -> int:
    """Bytes of text that a line holds."""
    return (sum(len(p) for p in line.sent.pieces if type(p) is bytes) if line.sent else 0) + (sum(map(len, line.kept.said)) if line.kept else 0)


@dataclass(slots=True, eq=False)
class Shelf:
    """The lines of one scope, by the link of the answer they end in, or by `called`."""

    lines: dict[bytes, Snapshot] = field(default_factory=dict)

    def ending(self, digest: bytes) -> tuple[bytes, int] | None:
        """Where the line stands that ends in an answer of this digest, and that answer's node; None for none, and for several."""
        found = [(link, node.id) for link, line in self.lines.items() if (node := line.past.node) and node.digest == digest and node.chain == link]
        return found[0] if len(found) == 1 else None


class Lines:
    """All that are kept; the oldest leave first."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._version: tuple[int, int] | None = None
        self._shelves: dict[bytes, Shelf] = {}
        self._count = self._bytes = 0

    def shelf(self, scope: bytes) -> Shelf | None:
        """Where the lines of a scope stand now: another object once they were forgotten. None where none can be kept."""
        version = self._db.version
        if version != self._version:
            self._version, self._count, self._bytes = version, 0, 0
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
        self._gone(found)
        return found

    def _gone(self, line: Snapshot) -> None:
        self._count -= 1
        self._bytes -= weight(line)

    def keep(self, scope: bytes, began: Shelf | None, link: bytes, line: Snapshot) -> None:
        """Keeps a line for the next turn. began: the scope's shelf when what is in the line was read."""
        if began is None or self.shelf(scope) is not began:
            return
        self._shelves[scope] = self._shelves.pop(scope)
        self.take(began, link)
        began.lines[link] = line
        self._count += 1
        self._bytes += weight(line)
        while self._count > MOST:
            oldest, shelf = next(iter(self._shelves.items()))
            self.take(shelf, next(iter(shelf.lines), b""))
            if not shelf.lines:
                del self._shelves[oldest]
        if self._bytes > BYTES:
            self._lighten()

    def _lighten(self) -> None:
        """Leaves the oldest lines without what was sent: their next turns read no more, but send all of it anew."""
        for shelf in self._shelves.values():
            for there in shelf.lines.values():
                self._bytes -= weight(there)
                there.sent = there.kept = None
                if self._bytes <= BYTES * 3 // 4:
                    return

    def forget(self, scope: bytes) -> None:
        """Takes away what is kept of a scope, now and by the turns of it that are under way."""
        if (gone := self._shelves.pop(scope, None)) is not None:
            for line in gone.lines.values():
                self._gone(line)
