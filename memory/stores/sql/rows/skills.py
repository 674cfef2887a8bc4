"""Skills of a scope: rows, their versions, and how their uses ended.

A row stays when its skill is deleted, so that the same sequence of calls never makes another one;
so does one of a sequence whose text could not be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from memory.core.skill_text import ACTIVE, RETIRED, STATUSES, SkillDraft, free_name
from memory.errors import Conflict, NotFound, SkillExists
from memory.ids import clock, new_id, new_key
from memory.stores.sql.engine.skill_tables import skill_uses, skill_versions, skills
from memory.stores.sql.rows import skill_block
from memory.stores.sql.rows.blocks import EditSource
from memory.stores.sql.rows.skill_block import SkillListing

s = skills.c
v = skill_versions.c
u = skill_uses.c
# Of a scope.
MAX_SKILLS = 500
REFUSED = "refused"
DELETED = "deleted"
# Of which so many failures retire a skill.
LAST_USES, MAX_FAILURES = 5, 3
SUCCESS = "s"
FAILURE = "f"
# After which a use is forgotten whose turn was never seen to end.
LOST_SECONDS = 86_400.0
ACTOR = "skills"
VERSION_MEMBERS = (
    *("version", "before", "after", "description", "status", "actor", "request_id"),
    "created_at",
)


class StoredSkill(msgspec.Struct, frozen=True):
    """One skill. Times are Unix times."""

    id: str
    name: str
    description: str
    text: str
    status: str
    version: int
    uses: int
    successes: int
    failures: int
    source_turns: list[str]
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class NewSkill:
    """A skill to add. steps: a digest of the calls it was made from. source_turns: ids of turns."""

    draft: SkillDraft
    status: str
    steps: str = ""
    source_turns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SkillChange:
    """What is changed of a skill; None stays as it is."""

    text: str | None = None
    description: str | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class SkillEditor:
    """Who changes the skills of a scope, and how they are listed."""

    scope_id: int
    listing: SkillListing
    source: EditSource


def list_skills(conn: Connection, scope_id: int | None) -> list[StoredSkill]:
    """Return the skills of a scope, in the order of their names."""
    if scope_id is None:
        return []
    query = select(skills).where(s.scope_id == scope_id, s.status.in_(STATUSES))
    return [_stored(row) for row in conn.execute(query.order_by(s.name, s.id))]


def find(conn: Connection, scope_id: int | None, ident: str) -> StoredSkill:
    """Return a skill of a scope by its id or name. Raises NotFound."""
    row = None
    if scope_id is not None:
        row = _row(conn, scope_id, ident)
    if row is None:
        raise NotFound(f"there is no skill {ident[:64]!r}")
    return _stored(row)


def list_names(conn: Connection, scope_id: int) -> frozenset[str]:
    """Return the names that the skills of a scope have."""
    query = select(s.name).where(s.scope_id == scope_id, s.status.in_(STATUSES))
    return frozenset(conn.execute(query).scalars())


def read_steps(conn: Connection, scope_id: int) -> dict[str, tuple[str, int]]:
    """Return the sequences of skills: the status, and how often a text of it was refused."""
    query = select(s.steps, s.status, s.attempts).where(s.scope_id == scope_id, s.steps != "")
    return {row.steps: (row.status, row.attempts) for row in conn.execute(query)}


def add(conn: Connection, editor: SkillEditor, new_skill: NewSkill) -> StoredSkill:
    """Add a skill. Raises SkillExists, Conflict."""
    scope_id = editor.scope_id
    names = list_names(conn, scope_id)
    if new_skill.draft.name in names:
        raise SkillExists(
            f"there is a skill {new_skill.draft.name!r} already: choose another name, or change "
            "that one"
        )
    if len(names) >= MAX_SKILLS:
        raise Conflict(f"there are {len(names)} skills, and {MAX_SKILLS} at most: delete one")
    if new_skill.steps:
        conn.execute(
            delete(skills).where(
                s.scope_id == scope_id, s.steps == new_skill.steps, s.status == REFUSED
            )
        )
    ident = new_id("skill")
    now = clock.now()
    values = {
        "id": ident,
        "scope_id": scope_id,
        "name": new_skill.draft.name,
        "description": new_skill.draft.description,
        "text": new_skill.draft.text,
        "status": new_skill.status,
        "version": 1,
        "steps": new_skill.steps,
        "made_from": msgspec.json.encode(list(new_skill.source_turns)).decode(),
        "created_at": now,
        "updated_at": now,
    }
    conn.execute(insert(skills).values(**values))
    skill = find(conn, scope_id, ident)
    _add_version(conn, editor, None, skill)
    skill_block.refresh(conn, scope_id, editor.listing, editor.source)
    return skill


def change(conn: Connection, editor: SkillEditor, ident: str, changes: SkillChange) -> StoredSkill:
    """Change a skill. Raises NotFound, Conflict.

    One that is made active again begins anew: earlier failures do not retire it.
    """
    before = find(conn, editor.scope_id, ident)
    _check_version(before, editor.source)
    new_values = {
        name: value
        for name in ("text", "description", "status")
        if (value := getattr(changes, name)) is not None and value != getattr(before, name)
    }
    if not new_values:
        return before
    if new_values.get("status") == ACTIVE:
        new_values["recent"] = ""
    return _write(conn, editor, before, new_values)


def remove(conn: Connection, editor: SkillEditor, ident: str) -> str:
    """Delete a skill; return its id. Raises NotFound, Conflict."""
    before = find(conn, editor.scope_id, ident)
    _check_version(before, editor.source)
    conn.execute(delete(skill_versions).where(v.skill == before.id))
    conn.execute(delete(skill_uses).where(u.skill == before.id))
    empty_values = {"name": "", "description": "", "text": "", "made_from": "[]"}
    conn.execute(update(skills).where(s.id == before.id).values(status=DELETED, **empty_values))
    conn.execute(delete(skills).where(s.id == before.id, s.steps == ""))
    skill_block.refresh(conn, editor.scope_id, editor.listing, editor.source)
    return before.id


def note_refused(conn: Connection, scope_id: int, steps: str) -> None:
    """Note that no text could be used that was written of a sequence."""
    counting = update(skills).where(s.scope_id == scope_id, s.steps == steps)
    if conn.execute(counting.values(attempts=s.attempts + 1)).rowcount:
        return
    now = clock.now()
    row = {"id": new_id("skill"), "scope_id": scope_id, "status": REFUSED, "version": 0}
    times = {"created_at": now, "updated_at": now}
    conn.execute(insert(skills).values(**row, **times, steps=steps, attempts=1))


def versions(
    conn: Connection, scope_id: int | None, ident: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return a skill's versions, newest first. Raises NotFound."""
    skill = find(conn, scope_id, ident)
    query = select(skill_versions).where(v.skill == skill.id).order_by(v.version.desc())
    if before is not None:
        query = query.where(v.version < before)
    rows = conn.execute(query.limit(limit))
    return [{name: getattr(row, name) for name in VERSION_MEMBERS} for row in rows]


def open_skill(
    conn: Connection, scope_id: int | None, name: str, request_id: str
) -> StoredSkill | None:
    """Return an active skill of a scope, and count a use of it.

    request_id: of the request whose end says how the use ended; "" for a use that does not count.
    """
    if scope_id is None:
        return None
    is_active = s.scope_id == scope_id, s.name == name, s.status == ACTIVE
    row = conn.execute(select(skills).where(*is_active)).first()
    if row is None:
        return None
    if request_id:
        use = {"skill": row.id, "request_id": request_id, "created_at": clock.now()}
        conn.execute(insert(skill_uses).values(id=new_key(), scope_id=scope_id, **use))
        conn.execute(update(skills).where(s.id == row.id).values(uses=s.uses + 1))
    return _stored(row)


def list_uses(conn: Connection, scope_id: int) -> dict[int, str]:
    """Return the uses whose end is not known yet: the request that each stands in."""
    query = select(u.id, u.request_id).where(u.scope_id == scope_id)
    return {row.id: row.request_id for row in conn.execute(query.limit(1000))}


def settle_uses(conn: Connection, editor: SkillEditor, outcomes: Mapping[int, bool]) -> None:
    """Count how uses ended, and retire a skill that failed too often.

    outcomes: whether the turn ended well, by the use.
    """
    is_lost = u.created_at < clock.now() - LOST_SECONDS
    conn.execute(delete(skill_uses).where(u.scope_id == editor.scope_id, is_lost))
    for use in sorted(outcomes):
        row = conn.execute(select(u.skill).where(u.id == use)).first()
        if row is None:
            continue
        conn.execute(delete(skill_uses).where(u.id == use))
        _count_outcome(conn, editor, row.skill, outcomes[use])
    skill_block.refresh(conn, editor.scope_id, editor.listing, editor.source)


def _count_outcome(conn: Connection, editor: SkillEditor, ident: str, has_succeeded: bool) -> None:
    row = _row(conn, editor.scope_id, ident)
    if row is None:
        return
    outcomes = (row.recent + (SUCCESS if has_succeeded else FAILURE))[-LAST_USES:]
    values = {
        "recent": outcomes,
        "successes": row.successes + has_succeeded,
        "failures": row.failures + (not has_succeeded),
    }
    conn.execute(update(skills).where(s.id == ident).values(**values))
    if row.status == ACTIVE and outcomes.count(FAILURE) >= MAX_FAILURES:
        own_editor = replace(editor, source=EditSource(ACTOR))
        _write(conn, own_editor, _stored(row), {"status": RETIRED})


def _write(
    conn: Connection, editor: SkillEditor, before: StoredSkill, values: Mapping[str, Any]
) -> StoredSkill:
    """Write a skill's new version. Raises Conflict."""
    unchanged = (s.id == before.id) & (s.version == before.version)
    new_values = {**values, "version": before.version + 1, "updated_at": clock.now()}
    if not conn.execute(update(skills).where(unchanged).values(**new_values)).rowcount:
        raise Conflict(f"the skill {before.name!r} changed meanwhile: read it again and repeat")
    skill = find(conn, editor.scope_id, before.id)
    _add_version(conn, editor, before.text, skill)
    skill_block.refresh(conn, editor.scope_id, editor.listing, editor.source)
    return skill


def _add_version(
    conn: Connection, editor: SkillEditor, before: str | None, skill: StoredSkill
) -> None:
    conn.execute(
        insert(skill_versions).values(
            id=new_key(),
            scope_id=editor.scope_id,
            skill=skill.id,
            version=skill.version,
            before=before,
            after=skill.text,
            description=skill.description,
            status=skill.status,
            actor=editor.source.actor,
            request_id=editor.source.request_id,
            created_at=skill.updated_at,
        )
    )


def _check_version(skill: StoredSkill, source: EditSource) -> None:
    if source.expect is not None and source.expect != skill.version:
        raise Conflict(
            f"the skill {skill.name!r} is at version {skill.version}, not {source.expect}: read "
            "it again and repeat the edit"
        )


def _row(conn: Connection, scope_id: int, ident: str) -> Row[Any] | None:
    query = select(skills).where(
        s.scope_id == scope_id, s.status.in_(STATUSES), (s.id == ident) | (s.name == ident)
    )
    return conn.execute(query.order_by(s.id != ident).limit(1)).first()


def _stored(row: Row[Any]) -> StoredSkill:
    return StoredSkill(
        row.id,
        row.name,
        row.description,
        row.text,
        row.status,
        row.version,
        row.uses,
        row.successes,
        row.failures,
        msgspec.json.decode(row.made_from),
        row.created_at,
        row.updated_at,
    )


def move(conn: Connection, source_id: int, target_id: int) -> None:
    """Give the skills of a scope to another one; a name that is taken there gets a number.

    Of one sequence of calls the target keeps its own skill.
    """
    names = list_names(conn, target_id)
    steps = read_steps(conn, target_id)
    rows = conn.execute(select(skills).where(s.scope_id == source_id)).all()
    for row in rows:
        if row.steps and row.steps in steps:
            continue
        is_named = row.status in STATUSES
        if is_named:
            name = free_name(row.name, names)
        else:
            name = row.name
        names |= {name} if is_named else frozenset()
        conn.execute(update(skills).where(s.id == row.id).values(scope_id=target_id, name=name))
        for table in (skill_versions, skill_uses):
            is_moved = table.c.skill == row.id
            conn.execute(update(table).where(is_moved).values(scope_id=target_id))
