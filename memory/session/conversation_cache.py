"""The conversations under way as their newest turns left them, so that the next turn of each reads
nothing.

A line is what the store would answer to a request that resends exactly the history up to an answer
of ours and adds to it; or, of a named user, a part of that history, where no other answer of theirs
says the same as this one. It is believed only where nothing can have changed it: a turn takes the
line it continues away, a turn that edits memory takes away all of its scope's, and any write that
is not a turn's own (a job, the API, another process) takes away everything. What is not found here
is read.

What all of them take is bounded in bytes, by an estimate that is not below the truth: a line's
objects and its texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import getsizeof

from msgspec.json import encode

from memory.stores.sql.database import Database
from memory.stores.sql.turn_reader import Snapshot

BYTES, SENT_BYTES = 12 << 20, 6 << 20  # in all, and of it for what was sent
MAX_SENT_BYTES = SENT_BYTES // 4  # of what was sent in one conversation
LINE, SHELF, BLOCK, CARRIER, PIECE_BYTES = (
    4000,
    500,
    300,
    1200,
    160,
)  # bytes of one, its texts aside
SPREAD = 8  # bytes that a byte of JSON takes once it is read, at most


def named_conversation_key(name: str) -> bytes:
    """Return where the line of a conversation stands whose history is kept here, by its name."""
    return b"name " + name.encode("utf-8", "surrogatepass")


def sent_bytes(line: Snapshot) -> int:
    """Count the bytes that a line has for what was sent and said."""
    found = (
        sum(PIECE_BYTES + (len(p) if type(p) is bytes else 0) for p in line.sent.pieces)
        if line.sent
        else 0
    )
    return found + (sum(map(len, line.kept.said)) + len(line.kept.asked) if line.kept else 0)


def own_bytes(line: Snapshot) -> int:
    """Count the bytes that a line has without what was sent."""
    past, behind, answer = line.past, line.behind, line.kept.answer if line.kept else {}
    found = (
        LINE
        + (getsizeof(past.epoch.core) if past.epoch else 0)
        + (getsizeof(behind[1]) if behind else 0)
    )
    found += sum(BLOCK + 2 * getsizeof(b.value) for b in line.blocks.values())
    found += sum(
        CARRIER + getsizeof(n.note) + (SPREAD * len(encode(n.hidden)) if n.hidden else 0)
        for n in past.carriers
    )
    return found + (SPREAD * len(encode(answer)) if answer else 0)


@dataclass(slots=True, eq=False)
class ScopeEntries:
    """The lines of one scope, by the link of the answer they end in, or by `called`."""

    lines: dict[bytes, Snapshot] = field(default_factory=dict)

    def find_ending(self, digest: bytes) -> tuple[bytes, int] | None:
        """Return where the line stands that ends in an answer of this digest, and that answer's
        node; None for none, and for several.
        """
        found = [
            (link, node.id)
            for link, line in self.lines.items()
            if (node := line.past.node) and node.digest == digest and node.chain == link
        ]
        return found[0] if len(found) == 1 else None


class ConversationCache:
    """All that are kept; the oldest leave first.

    held: bytes of all of them. sent: of it what was sent.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._version: tuple[int, int] | None = None
        self._shelves: dict[bytes, ScopeEntries] = {}
        self.held = self.sent = 0

    def shelf(self, scope: bytes) -> ScopeEntries | None:
        """Return where the lines of a scope stand now: another object once they were forgotten.

        None where none can be kept.
        """
        version = self._db.version
        if version != self._version:
            self._version, self.held, self.sent = version, 0, 0
            self._shelves.clear()
        if version is None:
            return None
        if (found := self._shelves.get(scope)) is None:
            found = self._shelves[scope] = ScopeEntries()
            self.held += SHELF
            self._make_room()
        return found

    def take(self, shelf: ScopeEntries | None, link: bytes) -> Snapshot | None:
        """Return the line that ends in the answer at this link. It is nobody else's from now on."""
        if shelf is None or (found := shelf.lines.pop(link, None)) is None:
            return None
        self._subtract(found)
        return found

    def _subtract(self, line: Snapshot) -> None:
        self.held -= line.own
        self._subtract_sent(line)

    def _subtract_sent(self, line: Snapshot) -> None:
        sent = sent_bytes(line)
        self.held -= sent
        self.sent -= sent

    def keep(self, scope: bytes, began: ScopeEntries | None, link: bytes, line: Snapshot) -> None:
        """Keep a line for the next turn.

        began: the scope's shelf when what is in the line was read.
        """
        if began is None or self.shelf(scope) is not began:
            return
        self._shelves[scope] = self._shelves.pop(scope)
        self.take(began, link)
        began.lines[link] = line
        if (sent := sent_bytes(line)) > MAX_SENT_BYTES:
            line.sent, line.kept, sent = None, None, 0
        line.own = own_bytes(line)
        self.held += line.own + sent
        self.sent += sent
        if self.sent > SENT_BYTES:
            self._lighten()
        self._make_room()

    def _make_room(self) -> None:
        while self.held > BYTES:
            oldest, shelf = next(iter(self._shelves.items()))
            self.take(shelf, next(iter(shelf.lines), b""))
            if not shelf.lines:
                del self._shelves[oldest]
                self.held -= SHELF

    def _lighten(self) -> None:
        """Leave the oldest lines without what was sent: their next turns read no more, but send
        all of it anew.
        """
        for shelf in self._shelves.values():
            for there in shelf.lines.values():
                self._subtract_sent(there)
                there.sent = there.kept = None
                if self.sent <= SENT_BYTES * 3 // 4:
                    return

    def forget(self, scope: bytes) -> None:
        """Take away what is kept of a scope, now and by the turns of it that are under way."""
        if (gone := self._shelves.pop(scope, None)) is not None:
            self.held -= SHELF
            for line in gone.lines.values():
                self._subtract(line)
