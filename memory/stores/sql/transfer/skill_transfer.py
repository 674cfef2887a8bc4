"""Skills in an export, and made again by an import."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, insert, select

from memory.core.skill_text import CANDIDATE, STATUSES
from memory.export_format import ExportLine, SkillLine, moment
from memory.ids import clock, new_id, new_key
from memory.scope import split_memory_name
from memory.search.query import iso
from memory.stores.sql.engine.skill_tables import skill_versions, skills
from memory.stores.sql.rows import skill_block
from memory.stores.sql.rows.skills import MAX_SKILLS, list_names, list_skills
from memory.stores.sql.transfer.file_export import DONE

s = skills.c


def list_skill_lines(
    conn: Connection, scope_id: int, after: Any, agent: str
) -> tuple[list[ExportLine], Any]:
    """Return the skills of a scope, by name; a scope has few."""
    del after
    name, project = split_memory_name(agent)
    steps_query = select(s.id, s.steps).where(s.scope_id == scope_id)
    steps = {row.id: row.steps for row in conn.execute(steps_query)}
    return [
        SkillLine(
            agent=name,
            project=project,
            name=skill.name,
            description=skill.description,
            text=skill.text,
            status=skill.status,
            steps=steps[skill.id],
            source_turns=skill.source_turns,
            created_at=iso(skill.created_at),
        )
        for skill in list_skills(conn, scope_id)
    ], DONE


def copy_skill(conn: Connection, scope_id: int, line: SkillLine, actor: str) -> tuple[bool, str]:
    """Make a skill of a line; tell whether one was made, and why not, "" where it is there.

    How often it was used begins anew. Of one sequence of calls there is one skill.
    """
    at_name = select(s.text).where(
        s.scope_id == scope_id, s.name == line.name, s.status.in_(STATUSES)
    )
    held_text = conn.execute(at_name).scalar()
    if held_text is not None:
        return False, "" if held_text == line.text else "already there"
    names = list_names(conn, scope_id)
    if len(names) >= MAX_SKILLS:
        return False, "too_many_skills"
    same_steps = select(s.id).where(s.scope_id == scope_id, s.steps == line.steps)
    if line.steps and conn.execute(same_steps).first() is not None:
        return False, "already there"
    ident = new_id("skill")
    now = clock.now()
    if line.status in STATUSES:
        status = line.status
    else:
        status = CANDIDATE
    described = {"description": line.description, "status": status, "version": 1}
    values = {
        "id": ident,
        "name": line.name,
        "text": line.text,
        "steps": line.steps,
        "made_from": msgspec.json.encode(line.source_turns).decode(),
        "created_at": moment(line.created_at) if line.created_at else now,
        "updated_at": now,
    }
    conn.execute(insert(skills).values(scope_id=scope_id, **described, **values))
    version = {"id": new_key(), "skill": ident, "after": line.text, "actor": actor}
    version |= {"scope_id": scope_id, "created_at": now}
    conn.execute(insert(skill_versions).values(**described, **version))
    skill_block.extend(conn, scope_id)
    return True, ""
