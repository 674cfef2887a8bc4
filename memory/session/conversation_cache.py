"""Caches the snapshots of active conversations, so that their next turn reads nothing.

An entry holds what the store would return for a request that resends the history up to one of our
answers and adds to it; or, for a named user, a part of that history, if no other answer of that
user has the same text. It is only used if nothing can have changed it: a turn takes the entry that
it continues out of the cache, a turn that edits memory removes all entries of its scope, and a
job's small write to a scope removes those of that scope, and any other write that is not a turn's
own (the API, another process) clears the cache. What is not found
here is read from the store.

The cache is bounded in bytes, by an estimate that is never too low: objects and texts of an entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from sys import getsizeof

from msgspec.json import encode

from memory.scope import Scope
from memory.stores.sql.engine.database import Database
from memory.stores.sql.turns.turn_reader import Snapshot

# Of the whole cache, and of sent prompts in it.
BYTES, SENT_BYTES = 12 << 20, 6 << 20
# Of one conversation.
MAX_SENT_BYTES = SENT_BYTES // 4
# Bytes of one, without its texts.
LINE = 4100
SHELF = 500
BLOCK = 300
CARRIER = 1200
PIECE_BYTES = 160
# Bytes of a row key in a list.
KEY = 48
# Bytes of what was prepared, without the blocks that it shows.
PREPARED = 1200
# Most bytes of objects that a byte of JSON becomes.
SPREAD = 8


def named_conversation_key(name: str) -> bytes:
    """Return the cache key of a conversation whose history is stored here."""
    return b"name " + name.encode("utf-8", "surrogatepass")


def sent_bytes(line: Snapshot) -> int:
    """Return the size of an entry's sent prompt and kept history."""
    size = 0
    if line.sent_prompt:
        parts = line.sent_prompt.parts
        size = PIECE_BYTES * len(parts)
        for part in parts:
            if type(part) is bytes:
                size += len(part)
    if line.server_history:
        history = line.server_history
        size += sum(map(len, history.message_parts)) + len(history.last_message)
    return size


def own_bytes(line: Snapshot) -> int:
    """Return the size of an entry without its sent prompt."""
    past = line.past
    earlier_summary = line.earlier_summary
    if line.server_history:
        answer = line.server_history.answer
    else:
        answer = {}
    size = LINE + BLOCK * (len(line.blocks) + len(line.layers)) + CARRIER * len(past.carriers)
    if line.prepared is not None:
        size += PREPARED
    if past.epoch:
        size += getsizeof(past.epoch.core)
    if earlier_summary:
        size += getsizeof(earlier_summary[1])
    for block in line.blocks.values():
        size += 2 * getsizeof(block.value)
    if past.node:
        size += KEY * len(past.node.recalled)
    for node in past.carriers:
        size += getsizeof(node.note) + (SPREAD * len(encode(node.hidden)) if node.hidden else 0)
    return size + (SPREAD * len(encode(answer)) if answer else 0)


@dataclass(slots=True, eq=False)
class ScopeEntries:
    """The entries of one scope, by the link of their last answer, or by conversation name.

    scope_id: the scope's row; None until a turn has ended.
    """

    lines: dict[bytes, Snapshot] = field(default_factory=dict)
    scope_id: int | None = None

    def find_ending(self, digest: bytes) -> tuple[bytes, int] | None:
        """Return the key of the entry whose last answer has this digest, and its node.

        None if there is no such entry, or several.
        """
        matches = [
            (link, node.id)
            for link, line in self.lines.items()
            if (node := line.past.node) and node.digest == digest and node.chain == link
        ]
        if len(matches) == 1:
            return matches[0]
        return None


class ConversationCache:
    """The cached snapshots; the oldest are evicted first.

    byte_count: bytes of all of them. sent_byte_count: bytes of their sent prompts.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._version: tuple[int, int] | None = None
        self._entries: dict[bytes, ScopeEntries] = {}
        self.byte_count = self.sent_byte_count = 0

    def entries_of(self, scope: bytes) -> ScopeEntries | None:
        """Return the current entries of a scope; another object after they were forgotten.

        None if nothing can be cached.
        """
        version = self._db.version
        if version != self._version:
            self._version = version
            self.byte_count = 0
            self.sent_byte_count = 0
            self._entries.clear()
        if version is None:
            return None
        if (entries := self._entries.get(scope)) is None:
            entries = self._entries[scope] = ScopeEntries()
            self.byte_count += SHELF
            self._make_room()
        return entries

    def is_general_same(self, scope: Scope, line: Snapshot) -> bool:
        """Tell whether nobody wrote here to the memory outside of the project of an entry."""
        return self.entries_of(scope.general.key) is line.general_entries

    def take(self, entries: ScopeEntries | None, link: bytes) -> Snapshot | None:
        """Remove and return the entry of the answer at this link."""
        if entries is None or (line := entries.lines.pop(link, None)) is None:
            return None
        self._subtract(line)
        return line

    def _subtract(self, line: Snapshot) -> None:
        sent_size = sent_bytes(line)
        self.byte_count -= line.own_bytes + sent_size
        self.sent_byte_count -= sent_size

    def keep(self, scope: bytes, began: ScopeEntries | None, link: bytes, line: Snapshot) -> None:
        """Cache a snapshot for the next turn.

        began: the scope's entries when the snapshot was read.
        """
        if began is None or self.entries_of(scope) is not began:
            return
        self._entries[scope] = self._entries.pop(scope)
        if link in began.lines:
            self.take(began, link)
        began.lines[link] = line
        began.scope_id = line.scope_id
        if (sent_size := sent_bytes(line)) > MAX_SENT_BYTES:
            line.sent_prompt = None
            line.server_history = None
            sent_size = 0
        line.own_bytes = own_bytes(line)
        self.byte_count += line.own_bytes + sent_size
        self.sent_byte_count += sent_size
        if self.sent_byte_count > SENT_BYTES:
            self._lighten()
        if self.byte_count > BYTES:
            self._make_room()

    def _make_room(self) -> None:
        while self.byte_count > BYTES:
            oldest_scope, entries = next(iter(self._entries.items()))
            self.take(entries, next(iter(entries.lines), b""))
            if not entries.lines:
                del self._entries[oldest_scope]
                self.byte_count -= SHELF

    def _lighten(self) -> None:
        """Drop the sent prompts of the oldest entries.

        Their next turns read nothing more, but encode the whole prompt again.
        """
        for entries in self._entries.values():
            for entry in entries.lines.values():
                sent_size = sent_bytes(entry)
                self.byte_count -= sent_size
                self.sent_byte_count -= sent_size
                entry.sent_prompt = entry.server_history = None
                if self.sent_byte_count <= SENT_BYTES * 3 // 4:
                    return

    def forget_row(self, scope_id: int) -> None:
        """Remove the entries of a scope that a job wrote to, and of those whose row is unknown."""
        for scope, entries in list(self._entries.items()):
            if entries.scope_id is None or entries.scope_id == scope_id:
                self.forget(scope)

    def forget(self, scope: bytes) -> None:
        """Remove a scope's entries; running turns of it will not add theirs."""
        if (entries := self._entries.pop(scope, None)) is not None:
            self.byte_count -= SHELF
            for line in entries.lines.values():
                self._subtract(line)
