"""The life of passages: facts with their source, superseded, faded, restored.

Nothing is removed here: no search finds a passage that is set aside, and `restore` brings it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, select, update

from memory.ids import clock
from memory.search.decay import LIMIT, RATES
from memory.search.dedup import find_duplicates, search_terms, words
from memory.search.query import passages_of
from memory.stores.sql.engine import schema as t
from memory.stores.sql.engine.sqlite import fts
from memory.stores.sql.engine.statements import execute, in_clause, select_in_batches
from memory.stores.sql.index import vectors
from memory.stores.sql.index.index_changes import IndexChange, note_change
from memory.stores.sql.rows import passages as passage_rows
from memory.stores.sql.rows.jobs import enqueue
from memory.stores.sql.rows.messages import SearchQuery

p, v = t.passages.c, t.block_versions.c
# Facts that recall knows to be no longer true
MAX_OUTDATED = 100
# Characters of a text whose neighbours are looked for.
MAX_NEIGHBOUR_CHARACTERS = 2000


@cache
def _select_candidates(count: int) -> Any:
    """Return the statement that reads so many passages, if they may be duplicates."""
    return select(t.passages).where(
        in_clause(p.id, count),
        p.scope_id == bindparam("scope"),
        p.node == bindparam("node"),
        p.deleted_at.is_(None),
    )


SET_ASIDE = (
    select(p.content)
    .where(p.scope_id == bindparam("scope"), p.deleted_at.is_not(None), p.deleted_by != "cleanup")
    .order_by(p.id.desc())
    .limit(MAX_OUTDATED)
)
EXTRACTED_EDITS = (
    select(v.before, v.after)
    .where(v.scope_id == bindparam("scope"), v.actor == "extraction")
    .order_by(v.id.desc())
    .limit(MAX_OUTDATED)
)


def neighbours(conn: Connection, scope_id: int, text: str, limit: int) -> list[dict[str, Any]]:
    """Return passages that share words with the text."""
    search_query = SearchQuery(text[:MAX_NEIGHBOUR_CHARACTERS], limit=limit, thorough=False)
    return passage_rows.search(conn, scope_id, passage_rows.PassageFilter(search_query))


def near_duplicates(
    conn: Connection, scope_id: int, text: str, node: int = 0
) -> list[dict[str, Any]]:
    """Return passages with nearly the same words, newest first. node: see `NewPassage`."""
    keys = fts.candidates_sharing_words(conn, scope_id, search_terms(text))
    values = {"scope": scope_id, "node": node}
    candidate_rows = list(select_in_batches(conn, _select_candidates, values, keys))
    candidate_rows.sort(key=attrgetter("id"), reverse=True)
    duplicates = find_duplicates(text, [row.content for row in candidate_rows])
    return [passage_rows.to_hit(candidate_rows[i]) for i in sorted(duplicates)]


@dataclass(frozen=True, slots=True)
class InsertResult:
    """Where a text is stored.

    passages: that contain it now. made: number of new ones. longer: number of those that replaced a
    shorter wording.
    """

    passages: list[dict[str, Any]]
    made: int
    longer: int


def keep(conn: Connection, scope_id: int, new_passage: passage_rows.NewPassage) -> InsertResult:
    """Store a text unless there is a duplicate or near duplicate.

    A longer wording sets the shorter one aside, reversibly.
    """
    if new_passage.created_at is not None:
        created_at = new_passage.created_at
    else:
        created_at = clock.now()
    insert_result = InsertResult([], 0, 0)
    for passage_text in passages_of(new_passage.content):
        duplicates = near_duplicates(conn, scope_id, passage_text, new_passage.node)
        if fuller := next(
            (k for k in duplicates if len(words(k["content"])) >= len(words(passage_text))), None
        ):
            insert_result = replace(insert_result, passages=[*insert_result.passages, fuller])
            continue
        stored_hits, made_count = passage_rows.add(
            conn, scope_id, replace(new_passage, content=passage_text, created_at=created_at)
        )
        longer = [
            set_aside(conn, scope_id, k["id"], new_passage.actor, stored_hits[0]["id"])
            for k in duplicates
        ]
        insert_result = InsertResult(
            [*insert_result.passages, *stored_hits],
            insert_result.made + made_count,
            insert_result.longer + any(longer),
        )
    return insert_result


def set_aside(
    conn: Connection, scope_id: int, ident: str, actor: str, successor: str | None = None
) -> bool:
    """Hide a passage from every search; return whether it was visible.

    successor: the one that replaces it.
    """
    note_change(conn, IndexChange(fts.PASSAGES_INDEX, scope_id))
    is_visible = (p.scope_id == scope_id) & (p.public_id == ident) & p.deleted_at.is_(None)
    return (
        conn.execute(
            update(t.passages)
            .where(is_visible)
            .values(deleted_at=clock.now(), deleted_by=actor, superseded_by=successor)
        ).rowcount
        > 0
    )


def restore(conn: Connection, scope_id: int, ident: str) -> dict[str, Any] | None:
    """Restore a passage that was set aside; None if there is none with this id.

    It counts as used now, so that it does not fade at once.
    """
    note_change(conn, IndexChange(fts.PASSAGES_INDEX, scope_id))
    is_passage = (p.scope_id == scope_id) & (p.public_id == ident)
    values = {"deleted_at": None, "deleted_by": None, "superseded_by": None, "used_at": clock.now()}
    if conn.execute(
        update(t.passages).where(is_passage, p.deleted_at.is_not(None)).values(**values)
    ).rowcount:
        enqueue(conn, vectors.job_of(scope_id))
    return passage_rows.get(conn, [scope_id], ident)


def list_superseded(
    conn: Connection, scope_id: int, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return passages that were set aside, newest first, before a row key."""
    query = (
        select(t.passages)
        .where(p.scope_id == scope_id, p.deleted_at.is_not(None))
        .order_by(p.id.desc())
        .limit(limit)
    )
    return [
        passage_rows.to_hit(r)
        for r in conn.execute(query.where(p.id < before) if before is not None else query)
    ]


def list_outdated(conn: Connection, scope_id: int) -> list[str]:
    """Return the newest facts that were corrected or forgotten, not those that only faded.

    Passages that were set aside, and lines that extraction took out of a block.
    """
    lines: list[str] = []
    for old_value, new_value in execute(conn, EXTRACTED_EDITS, {"scope": scope_id}):
        kept_lines = set((new_value or "").split("\n"))
        lines += [x for x in (old_value or "").split("\n") if x.strip() and x not in kept_lines]
    set_aside_texts = execute(conn, SET_ASIDE, {"scope": scope_id}).scalars()
    return [*set_aside_texts, *lines[:MAX_OUTDATED]]


def _faint(now: float) -> ColumnElement[bool]:
    rate = case(*((p.type == kind, r) for kind, r in RATES.items()), else_=RATES["fact"])
    hours = (now - func.coalesce(p.used_at, p.created_at)) / 3600.0
    return and_(p.deleted_at.is_(None), rate * hours * (1.0 - p.importance) > LIMIT * (1 + p.uses))


def faint(conn: Connection, now: float, after: int, limit: int = 500) -> list[int]:
    """Return row keys of faint passages, in order, after a row key."""
    query = select(p.id).where(p.id > after, _faint(now)).order_by(p.id).limit(limit)
    return list(conn.execute(query).scalars())


def fade(conn: Connection, now: float, keys: Sequence[int]) -> int:
    """Set those passages aside that are still faint; return how many."""
    note_change(conn, IndexChange(fts.PASSAGES_INDEX, None))
    fading = update(t.passages).where(p.id.in_(keys), _faint(now))
    return conn.execute(fading.values(deleted_at=now, deleted_by="cleanup")).rowcount


def record_use(conn: Connection, keys: Sequence[int]) -> None:
    """Record that passages were found now, which delays their fading."""
    if keys:
        conn.execute(
            update(t.passages).where(p.id.in_(keys)).values(uses=p.uses + 1, used_at=clock.now())
        )
