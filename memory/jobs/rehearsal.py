"""A dry run of a reflection: its calls run in a transaction that is taken back each time.

Each round runs all calls so far anew, so that it sees what the rounds before it would have written.
What is left at the end are the differences, as a proposal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, select

from memory import tools
from memory.core.blocks import CoreBlock
from memory.ids import clock
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.database import Database
from memory.stores.sql.engine.write_lock import NOTHING
from memory.stores.sql.rows import blocks as block_rows
from memory.stores.sql.rows.passages import to_hit
from memory.stores.sql.rows.reflections import ReflectionChange

p = t.passages.c
Round = Sequence[tools.ToolCall]


class _TakenBack(Exception):
    """Ends the transaction of a rehearsal without a trace."""

    def __init__(self, results: dict[int, str], changes: list[ReflectionChange]) -> None:
        super().__init__("a dry run writes nothing")
        self.results = results
        self.changes = changes


class Rehearsal:
    """The rounds of one dry run. changes: what they came to so far."""

    def __init__(self, db: Database, context: tools.ToolContext) -> None:
        self._db = db
        self._context = context
        self._rounds: list[Round] = []
        self._seen = dict(context.seen_versions)
        self._blocks_before: dict[str, CoreBlock] = {}
        self._last_key = 0
        self.changes: list[ReflectionChange] = []

    async def run(self, calls: Round) -> dict[int, str]:
        """Return the results of a round's calls, as if the rounds before it had been written."""
        self._rounds.append(calls)
        try:
            lock = self._context.scope_id or NOTHING
            await self._db.write(partial(_run_rounds, rehearsal=self), lock=lock)
        except _TakenBack as e:
            self.changes = e.changes
            return e.results
        raise AssertionError("a rehearsal always ends so")

    def replay(self, conn: Connection) -> dict[int, str]:
        """Run all rounds; return the results of the newest."""
        context = self._context
        results = dict[int, str]()
        context.seen_versions.clear()
        context.seen_versions.update(self._seen)
        for calls in self._rounds:
            results = tools.run_edits(conn, calls, context)
        return results

    def compare(self, conn: Connection, since: float) -> list[ReflectionChange]:
        """Return what differs from before. since: Unix time at which the replay began."""
        return [*self._compare_blocks(conn), *self._compare_passages(conn, since)]

    def _compare_blocks(self, conn: Connection) -> list[ReflectionChange]:
        before = self._blocks_before
        after = block_rows.all_of(conn, self._context.block_set)
        changes: list[ReflectionChange] = []
        for label in sorted({*before, *after}):
            old_block = before.get(label)
            new_block = after.get(label)
            old_value = None
            if old_block is not None:
                old_value = old_block.value
            new_value = None
            if new_block is not None:
                new_value = new_block.value
            if old_value != new_value:
                version = 0
                if old_block is not None:
                    version = old_block.version
                change = ReflectionChange("block", label, before=old_value, after=new_value)
                changes.append(msgspec.structs.replace(change, version=version))
        return changes

    def _compare_passages(self, conn: Connection, since: float) -> list[ReflectionChange]:
        context = self._context
        own = p.scope_id == context.scope_id
        new_rows = conn.execute(select(t.passages).where(own, p.id > self._last_key)).all()
        added = {row.public_id: row for row in new_rows if row.deleted_at is None}
        set_aside = own & (p.deleted_by == context.actor) & (p.deleted_at >= since)
        removed = conn.execute(select(t.passages).where(set_aside, p.id <= self._last_key)).all()
        changes: list[ReflectionChange] = []
        for row in removed:
            successor = added.pop(row.superseded_by, None)
            change = ReflectionChange("passage", passage=row.public_id, before=row.content)
            changes.append(_with_passage(change, successor))
        changes += [_with_passage(ReflectionChange("passage"), row) for row in added.values()]
        return changes

    def remember(self, conn: Connection) -> None:
        """Take note of the memory before the replay."""
        self._blocks_before = block_rows.all_of(conn, self._context.block_set)
        newest = select(p.id).where(p.scope_id == self._context.scope_id)
        self._last_key = int(conn.execute(newest.order_by(p.id.desc()).limit(1)).scalar() or 0)


def _run_rounds(conn: Connection, rehearsal: Rehearsal) -> None:
    since = clock.now()
    rehearsal.remember(conn)
    results = rehearsal.replay(conn)
    raise _TakenBack(results, rehearsal.compare(conn, since))


def _with_passage(change: ReflectionChange, row: Row[Any] | None) -> ReflectionChange:
    """Return a change with the passage that it adds, if any."""
    if row is None:
        return change
    hit = to_hit(row)
    return msgspec.structs.replace(
        change,
        after=hit["content"],
        tags=list(hit["tags"]),
        type=hit["type"],
        importance=hit["importance"],
    )
