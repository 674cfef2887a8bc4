"""Who follows the index is told what small writes changed, once it is committed."""

from __future__ import annotations

import pytest

from memory.scope import Scope
from memory.stores.sql.index.index_changes import (
    MOST_CHARACTERS,
    IndexChange,
    IndexChanges,
    count_characters,
)
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows.passages import NewPassage, add

ONE = IndexChange("messages_fts", 1, key=2)


def test_what_was_rolled_back_is_not_told():
    changes = IndexChanges(reader=_ignore)
    changes.note(ONE)
    changes.settle(committed=False)
    assert list(changes.take()) == []
    changes.note(ONE)
    assert list(changes.take()) == []
    changes.settle(committed=True)
    assert (list(changes.take()), list(changes.take())) == ([ONE], [])


def test_many_changes_are_taken_before_anybody_asks():
    """What is followed is not lost where nobody searches for a while, and stays bounded."""
    taken: list[IndexChange] = []
    alone, changes = IndexChanges(), IndexChanges(reader=lambda: taken.extend(changes.take()))
    put = ONE._replace(words={"body": ["x"] * 200})
    for _ in range(1000):
        for some in (alone, changes):
            some.note(put)
            some.settle(committed=True)
    assert len(alone.take()) == 0
    waiting = changes.take()
    assert len(taken) + len(waiting) == 1000
    assert taken
    assert sum(map(count_characters, waiting)) <= MOST_CHARACTERS


async def test_a_write_is_told_or_changes_the_version(db):
    who = Scope("t", "ada", "a", b"s" * 32)

    def keep(conn):
        scope_id = scopes.get_or_create(conn, scopes.current_owner(conn, who))
        return add(conn, scope_id, NewPassage("My boat is blue."))

    def fail(conn):
        keep(conn)
        raise ValueError("no")

    db.index_changes.reader = _ignore
    before = db.version
    await db.write(keep, small=True)
    assert [change.table for change in db.index_changes.take()] == ["passages_fts"]
    assert db.version == before
    with pytest.raises(ValueError, match="no"):
        await db.write(fail, small=True)
    assert list(db.index_changes.take()) == []
    before = db.version
    await db.write(lambda conn: add(conn, 1, NewPassage("It is old.")) and None)
    assert list(db.index_changes.take()) == []
    assert db.version != before


def test_what_was_made_of_texts_is_forgotten_with_them():
    changes = IndexChanges(reader=_ignore)
    changes.documents.put((1, 8000), {"body": ["tea"]})
    changes.start_anew()
    assert len(changes.documents) == 0


def _ignore() -> None:
    """Leave the changes to whoever asks."""
