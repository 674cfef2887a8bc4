"""The objects of skills in the management API, and the bodies that make and change them."""

from __future__ import annotations

from typing import Any

import msgspec

from memory import iso
from memory.management.skills import StoredSkill


class Skill(msgspec.Struct):
    """status: candidate, active or retired. uses: how often it was opened.

    successes, failures: how the turns ended that used it. made_from: ids of the turns it was made
    from, none for one that a person wrote.
    """

    id: str
    name: str
    description: str
    text: str
    status: str
    version: int
    uses: int
    successes: int
    failures: int
    made_from: list[str]
    created_at: str
    updated_at: str
    object: str = "skill"


class SkillVersion(msgspec.Struct):
    """before, after: the text. description, status: as they are since then."""

    version: int
    before: str | None
    after: str | None
    description: str
    status: str
    actor: str
    request_id: str | None
    created_at: str


class SkillPost(msgspec.Struct, forbid_unknown_fields=True):
    """status: what the mode says where it is left out, `active` in `auto`, else `candidate`."""

    name: str
    description: str
    text: str
    status: str | None = None


class SkillPatch(msgspec.Struct, forbid_unknown_fields=True):
    """Members that are left out stay as they are."""

    text: str | None = None
    description: str | None = None
    status: str | None = None


def describe_skill(skill: StoredSkill) -> Skill:
    return Skill(
        skill.id,
        skill.name,
        skill.description,
        skill.text,
        skill.status,
        skill.version,
        skill.uses,
        skill.successes,
        skill.failures,
        skill.source_turns,
        iso(skill.created_at),
        iso(skill.updated_at),
    )


def describe_version(row: dict[str, Any]) -> SkillVersion:
    return SkillVersion(**{**row, "created_at": iso(row["created_at"])})
