"""A user's skills from outside: made, changed, listed, opened, deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from memory.core.skill_text import (
    SkillDraft,
    check_description,
    check_draft,
    check_status,
    check_text,
    format_document,
    read_document,
)
from memory.management.reading import read
from memory.scope import Scope
from memory.service import Memory
from memory.stores.sql.engine.write_lock import owner_lock
from memory.stores.sql.rows import scopes
from memory.stores.sql.rows import skills as rows
from memory.stores.sql.rows.management_context import ManagementActor, touch_scope
from memory.stores.sql.rows.skill_block import SkillListing
from memory.stores.sql.rows.skills import NewSkill, SkillChange, SkillEditor, StoredSkill

__all__ = [
    "SkillChange",
    "SkillDraft",
    "StoredSkill",
    "add_skill",
    "change_skill",
    "check_description",
    "check_draft",
    "check_status",
    "check_text",
    "find_skill",
    "format_document",
    "list_skills",
    "list_versions",
    "open_skill",
    "read_document",
    "remove_skill",
]


async def list_skills(memory: Memory, scope: Scope) -> list[StoredSkill]:
    """List a user's skills, in the order of their names. Raises StoreUnavailable."""
    return await read(memory, lambda conn: rows.list_skills(conn, scopes.find(conn, scope)))


async def find_skill(memory: Memory, scope: Scope, ident: str) -> StoredSkill:
    """Return a skill by its id or name. Raises NotFound, StoreUnavailable."""
    return await read(memory, lambda conn: rows.find(conn, scopes.find(conn, scope), ident))


async def list_versions(
    memory: Memory, scope: Scope, ident: str, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """List a skill's versions, newest first, before a version. Raises NotFound."""
    return await read(
        memory,
        lambda conn: rows.versions(conn, scopes.find(conn, scope), ident, before, limit),
    )


async def add_skill(
    memory: Memory, actor: ManagementActor, draft: SkillDraft, status: str
) -> StoredSkill:
    """Add a skill that a person wrote. Raises BadSkill, SkillExists, Conflict, StoreUnavailable."""
    draft = check_draft(draft, memory.policy.skills.characters)

    def work(conn: Connection) -> StoredSkill:
        return rows.add(conn, _editor(memory, conn, actor), NewSkill(draft, status))

    return await memory.db.write(work, lock=actor.lock)


async def change_skill(
    memory: Memory,
    actor: ManagementActor,
    ident: str,
    change: SkillChange,
    expect: int | None = None,
) -> StoredSkill:
    """Change a skill. expect: the version that was seen. Raises NotFound, Conflict."""
    own_actor = replace(actor, source=replace(actor.source, expect=expect))

    def work(conn: Connection) -> StoredSkill:
        return rows.change(conn, _editor(memory, conn, own_actor), ident, change)

    return await memory.db.write(work, lock=actor.lock)


async def remove_skill(
    memory: Memory, actor: ManagementActor, ident: str, expect: int | None = None
) -> str:
    """Delete a skill; return its id. Raises NotFound, Conflict, StoreUnavailable."""
    own_actor = replace(actor, source=replace(actor.source, expect=expect))

    def work(conn: Connection) -> str:
        return rows.remove(conn, _editor(memory, conn, own_actor), ident)

    return await memory.db.write(work, lock=actor.lock)


async def open_skill(
    memory: Memory, scope: Scope, name: str, request_id: str
) -> StoredSkill | None:
    """Return an active skill, and count a use of it; None where there is none of this name.

    request_id: of the request that uses it, "" where nothing may be written. Raises
    StoreUnavailable.
    """
    if not request_id:
        return await read(
            memory, lambda conn: rows.open_skill(conn, scopes.find(conn, scope), name, "")
        )

    def work(conn: Connection) -> StoredSkill | None:
        return rows.open_skill(conn, scopes.find(conn, scope), name, request_id)

    # It writes nothing that a turn keeps.
    return await memory.db.write(work, small=True, lock=owner_lock(scope.tenant, scope.user))


def _editor(memory: Memory, conn: Connection, actor: ManagementActor) -> SkillEditor:
    listing = SkillListing(actor.defaults, memory.policy.skills.list_length)
    return SkillEditor(touch_scope(conn, actor.scope), listing, actor.source)
