"""What small writes change of the search index, told once it is committed.

Small writes run on the event loop's thread (see `sqlite`), and `Database.version` does not change
by them. Who keeps something of the index follows them here; any other write changes the version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection

CHANGES_OPTION = "mnemogate_index_changes"
MOST_CHARACTERS = 1 << 20  # of changes until they are read; of more it is only told that they were
CHANGE_CHARACTERS = 200  # of one, beside its texts


class IndexChange(NamedTuple):
    """A change of a table's rows or documents.

    scope_id: None if unknown. rows: that were added. key, columns: of a document that was put;
    columns as `fts.document_columns` returns them. gone: a row that was removed. With none of
    these, anything may have changed.
    """

    table: str
    scope_id: int | None
    rows: Sequence[Mapping[str, Any]] = ()
    key: int = 0
    columns: Mapping[str, str] | None = None
    gone: int = 0


@dataclass(slots=True)
class IndexChanges:
    """The changes of one connection: those of the transaction under way, and those committed.

    is_followed: somebody reads them. lost: some were too many.
    """

    is_followed: bool = False
    lost: bool = False
    _begun: list[IndexChange] = field(default_factory=list)
    _done: list[IndexChange] = field(default_factory=list)
    _characters: int = 0

    def note(self, change: IndexChange) -> None:
        if self.is_followed:
            self._begun.append(change)

    def settle(self, *, committed: bool) -> None:
        """End a transaction."""
        if not self._begun:
            return
        if committed:
            self._done += self._begun
            self._characters += sum(map(count_characters, self._begun))
        self._begun = []
        if self._characters > MOST_CHARACTERS:
            self.take()
            self.lost = True

    def take(self) -> Sequence[IndexChange]:
        """Return what was committed since the last time."""
        found, self._done, self._characters = self._done, [], 0
        return found


def count_characters(change: IndexChange) -> int:
    """Return about how much a change holds."""
    texts = sum(map(len, change.columns.values())) if change.columns is not None else 0
    return CHANGE_CHARACTERS + texts + sum(len(row["content"]) for row in change.rows)


def note_change(conn: Connection, change: IndexChange) -> None:
    """Note a change, where somebody follows them."""
    changes = conn.get_execution_options().get(CHANGES_OPTION)
    if changes is not None:
        changes.note(change)
