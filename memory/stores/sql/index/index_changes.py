"""What small writes change of the search index, told once it is committed.

Small writes run on the event loop's thread (see `sqlite`), and `Database.version` does not change
by them. Who keeps something of the index follows them here; any other write changes the version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, NamedTuple

from sqlalchemy import Connection

from memory.cache import Cache

CHANGES_OPTION = "mnemogate_index_changes"
# Of changes that wait for their reader.
MOST_CHARACTERS = 1 << 20
# Of one, beside its texts.
CHANGE_CHARACTERS = 200
# Of documents that wait for the index, and of one beside its words.
DOCUMENTS_BYTES, DOCUMENT_BYTES = 1 << 20, 600
# Of a word of a document.
WORD_BYTES = 72
# By column, without a scope's prefix.
DocumentWords = Mapping[str, Sequence[str]]


class IndexChange(NamedTuple):
    """A change of a table's rows or documents.

    scope_id: None if unknown. rows: that were added. key, words: of a document that was put. gone:
    a row that was removed. With none of these, anything may have changed.
    """

    table: str
    scope_id: int | None
    rows: Sequence[Mapping[str, Any]] = ()
    key: int = 0
    words: DocumentWords | None = None
    gone: int = 0


# The same, each column as one text: a tenth of the bytes.
JoinedDocument = Mapping[str, str]


def _weigh_document(_: tuple[int, int], document: JoinedDocument) -> int:
    return sum(map(getsizeof, document.values()))


@dataclass(slots=True)
class IndexChanges:
    """The changes of one connection: those of the transaction under way, and those committed.

    reader: takes them, also when they become many; None if nobody follows them. documents: those of
    messages that were made before the index asks for them, by row key and `IndexLimit`.
    """

    reader: Callable[[], None] | None = None
    documents: Cache[tuple[int, int], JoinedDocument] = field(
        default_factory=lambda: Cache(DOCUMENTS_BYTES, DOCUMENT_BYTES, _weigh_document)
    )
    _open_changes: list[IndexChange] = field(default_factory=list)
    _committed_changes: list[IndexChange] = field(default_factory=list)
    _characters: int = 0

    def note(self, change: IndexChange) -> None:
        if self.reader is not None:
            self._open_changes.append(change)

    def settle(self, *, committed: bool) -> None:
        """End a transaction."""
        if not self._open_changes:
            return
        if committed:
            self._committed_changes += self._open_changes
            self._characters += sum(map(count_characters, self._open_changes))
        self._open_changes = []
        if self._characters > MOST_CHARACTERS and self.reader is not None:
            self.reader()

    def keep_document(self, key: int, max_characters: int, words: DocumentWords) -> None:
        """Keep the words of a message for the index. max_characters: see `IndexLimit`."""
        document = {column: " ".join(column_words) for column, column_words in words.items()}
        self.documents.put((key, max_characters), document)

    def start_anew(self) -> None:
        """Forget what was told and made so far: nobody can tell whether it still holds."""
        self.take()
        for name in self.documents.names():
            self.documents.pop(name)

    def take(self) -> Sequence[IndexChange]:
        """Return what was committed since the last time."""
        changes = self._committed_changes
        self._committed_changes = []
        self._characters = 0
        return changes


def count_characters(change: IndexChange) -> int:
    """Return about how much a change holds."""
    words = 0
    if change.words is not None:
        words = sum(map(len, change.words.values()))
    return CHANGE_CHARACTERS + WORD_BYTES * words + sum(len(row["content"]) for row in change.rows)


def take_document(conn: Connection, key: int, max_characters: int) -> DocumentWords | None:
    """Return the words of a message if they were made before. max_characters: see `IndexLimit`."""
    changes = conn.get_execution_options().get(CHANGES_OPTION)
    document = None if changes is None else changes.documents.pop((key, max_characters))
    if document is None:
        return None
    return {column: joined_words.split() for column, joined_words in document.items()}


def note_change(conn: Connection, change: IndexChange) -> None:
    """Note a change, where somebody follows them."""
    changes = conn.get_execution_options().get(CHANGES_OPTION)
    if changes is not None:
        changes.note(change)
