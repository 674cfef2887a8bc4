"""What is done to a memory from outside a conversation: by the API, the CLI, the dashboard, an import.

Each function runs inside the caller's write transaction. Each marks the scope, so that no frozen core text with the old state
is sent again (MEMORY.md 2.4), and enqueues what has to follow in the indexes beside the database.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from memory.blocks import Block
from memory.edits import Edit
from memory.errors import NotFound
from memory.jobs.queue import Job, enqueue
from memory.stores.sql import blocks as block_rows
from memory.stores.sql import facts as fact_rows
from memory.stores.sql import passages as passage_rows
from memory.stores.sql.hand import Hand, marked
from memory.stores.sql.passages import Passage


def edit(
    conn: Connection, hand: Hand, label: str, how: Edit, expect: int | None = None
) -> Block | None:
    """The block after the edit. expect: the version the caller saw. Raises Conflict, NotFound and ToolErrors."""
    shelf = block_rows.Shelf(marked(conn, hand.scope), hand.defaults)
    return block_rows.edit(conn, shelf, label, how, replace(hand.source, expect=expect))


def undo(conn: Connection, hand: Hand, label: str) -> Block | None:
    """Takes the newest edit back. Raises NotFound, BlockReadOnly, BlockFull."""
    return block_rows.undo(
        conn, block_rows.Shelf(marked(conn, hand.scope), hand.defaults), label, hand.source
    )


def keep(conn: Connection, hand: Hand, new: passage_rows.Insert) -> list[Passage]:
    """Stores a text as passages; those that were there already are answered as they are."""
    scope_id = marked(conn, hand.scope)
    return passage_rows.add(conn, scope_id, new)[0]


def restore(conn: Connection, hand: Hand, ident: str) -> Passage:
    """Brings a passage back that background work set aside. Raises NotFound."""
    found = fact_rows.restore(conn, marked(conn, hand.scope), ident)
    if found is None:
        raise NotFound(f"There is no passage {ident!r} here.")
    return found


def set_aside(conn: Connection, hand: Hand, ident: str) -> None:
    """Takes a passage out of every search; `restore` brings it back. Raises NotFound."""
    if not fact_rows.set_aside(conn, marked(conn, hand.scope), ident, hand.source.actor):
        raise NotFound(f"There is no passage {ident!r} here.")


def forget(conn: Connection, hand: Hand, ident: str) -> None:
    """Removes a passage, in the indexes too. Raises NotFound."""
    scope_id = marked(conn, hand.scope)
    key = passage_rows.remove(conn, [scope_id], ident)
    if key is None:
        raise NotFound(f"There is no passage {ident!r} here.")
    enqueue(conn, Job("erase", {"scopes": [], "passages": {str(scope_id): [key]}}))
