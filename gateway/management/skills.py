"""A user's skills over HTTP: made, changed, listed, exported, imported, deleted.

The ETag is the version; an outdated If-Match is a 409.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from litestar import Response, delete, get, patch, post
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody
from litestar.params import FromPath

from gateway.errors import BadRequest, RequestConflict
from gateway.http.paths import segment
from gateway.management.blocks import expected_version
from gateway.management.context import (
    AtUser,
    Cursor,
    PageLimit,
    UserContext,
    translate_errors,
    window,
)
from gateway.management.schemas import Gone, Page, describe_body, place_of
from gateway.management.skill_schemas import (
    Skill,
    SkillPatch,
    SkillPost,
    SkillVersion,
    describe_skill,
    describe_version,
)
from memory import management
from memory.errors import BadSkill, SkillExists
from memory.management.skills import SkillChange, SkillDraft, StoredSkill

MARKDOWN = "text/markdown"


class TakingMarkdown(Operation):
    """An operation whose body is a file SKILL.md."""

    def __init__(self, **members: Any) -> None:
        body = RequestBody({MARKDOWN: OpenAPIMediaType()}, required=True)
        super().__init__(**{**members, "request_body": body})


@contextlib.contextmanager
def translate_skill_errors() -> Iterator[None]:
    """Raise the errors of skills as errors of this API, each with what it is about."""
    try:
        yield
    except BadSkill as e:
        raise BadRequest(str(e), param=e.param) from e


def check_on(context: UserContext) -> None:
    """Raise RequestConflict where skills are off."""
    if not context.memory.policy.skills.is_on:
        raise RequestConflict(
            'Skills are off here. Set memory.skills.mode = "review" or "auto" in the '
            "configuration.",
            code="skills_off",
        )


def _with_version(stored: StoredSkill, status_code: int = 200) -> Response[Skill]:
    headers = {"etag": f'"{stored.version}"'}
    return Response(describe_skill(stored), status_code=status_code, headers=headers)


async def add_skill(context: UserContext, draft: SkillDraft, status: str | None) -> StoredSkill:
    """Add a skill. Raises BadRequest, RequestConflict."""
    policy = context.memory.policy
    with translate_skill_errors():
        if status is None:
            status = policy.skills.new_status
        else:
            status = management.skills.check_status(status)
        draft = management.skills.check_draft(draft, policy.skills.characters)
    check_secrets(context, text=draft.text, description=draft.description)
    work = management.skills.add_skill(context.memory, context.hand(), draft, status)
    return await context.write(_exists_as_conflict(work))


async def _exists_as_conflict(work: Any) -> StoredSkill:
    try:
        stored: StoredSkill = await work
    except SkillExists as e:
        message = str(e)
        raise RequestConflict(
            f"{message[:1].upper()}{message[1:]}.", code="skill_exists", param="name"
        ) from e
    return stored


def check_secrets(context: UserContext, **texts: str | None) -> None:
    """Raise BadRequest for a member that holds a secret."""
    for name, text in texts.items():
        if text:
            with translate_errors():
                context.memory.policy.screen.check(name, text)


async def change_skill(
    context: UserContext, ident: str, new: SkillPatch, expect: int | None
) -> StoredSkill:
    """Change a skill. Raises BadRequest, ResourceNotFound, RequestConflict."""
    characters = context.memory.policy.skills.characters
    with translate_skill_errors():
        if new.text is not None:
            management.skills.check_text(new.text, characters)
        if new.status is not None:
            management.skills.check_status(new.status)
        description = new.description
        if description is not None:
            description = management.skills.check_description(description)
    check_secrets(context, text=new.text, description=description)
    change = SkillChange(new.text, description, new.status)
    return await context.write(
        management.skills.change_skill(context.memory, context.hand(), ident, change, expect)
    )


def _read_version(context: UserContext) -> int | None:
    return expected_version(context.caller.request.headers, "skill")


@get("/users/{user:str}/skills", summary="A user's skills, by name")
async def skills(context: AtUser) -> Page[Skill]:
    stored_skills = await context.read(management.skills.list_skills(context.memory, context.scope))
    return Page([describe_skill(stored_skill) for stored_skill in stored_skills])


@post(
    "/users/{user:str}/skills",
    status_code=201,
    summary="Write a skill",
    operation_class=describe_body(SkillPost),
)
async def post_skill(context: AtUser) -> Response[Skill]:
    check_on(context)
    new = await context.caller.parse_body(SkillPost)
    draft = SkillDraft(new.name, new.description, new.text)
    return _with_version(await add_skill(context, draft, new.status), 201)


@post(
    "/users/{user:str}/skills/import",
    status_code=201,
    summary="Make a skill of a file SKILL.md",
    operation_class=TakingMarkdown,
)
async def import_skill(context: AtUser) -> Response[Skill]:
    check_on(context)
    body = await context.caller.body()
    try:
        document = body.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("The body is not UTF-8: send the file SKILL.md as it is.") from None
    with translate_skill_errors():
        draft = management.skills.read_document(document)
    return _with_version(await add_skill(context, draft, None), 201)


@get("/users/{user:str}/skills/{skill:str}", summary="One skill, by id or name")
async def skill(context: AtUser, skill: FromPath[str]) -> Response[Skill]:
    return _with_version(await find_skill(context, skill))


async def find_skill(context: UserContext, ident: str) -> StoredSkill:
    """Return a skill. Raises ResourceNotFound."""
    return await context.read(
        management.skills.find_skill(context.memory, context.scope, segment(ident))
    )


@patch(
    "/users/{user:str}/skills/{skill:str}",
    summary="Change a skill: make it active, retire it, write its text",
    operation_class=describe_body(SkillPatch),
)
async def patch_skill(context: AtUser, skill: FromPath[str]) -> Response[Skill]:
    new = await context.caller.parse_body(SkillPatch)
    return _with_version(await change_skill(context, segment(skill), new, _read_version(context)))


@delete("/users/{user:str}/skills/{skill:str}", status_code=200, summary="Delete a skill")
async def delete_skill(context: AtUser, skill: FromPath[str]) -> Gone:
    work = management.skills.remove_skill(
        context.memory, context.hand(), segment(skill), _read_version(context)
    )
    return Gone(await context.write(work), "skill")


@get(
    "/users/{user:str}/skills/{skill:str}/versions",
    summary="A skill's history, newest first",
)
async def skill_versions(
    context: AtUser, skill: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[SkillVersion]:
    before = place_of(cursor, int)
    rows = await context.read(
        management.skills.list_versions(
            context.memory, context.scope, segment(skill), before, limit + 1
        )
    )
    page, next_cursor = window(
        [describe_version(row) for row in rows],
        limit,
        lambda version: version.version,
        lambda version: len(version.before or "") + len(version.after or ""),
    )
    return Page(page, next_cursor)


@get(
    "/users/{user:str}/skills/{skill:str}/export",
    media_type=MARKDOWN,
    summary="A skill as a file SKILL.md",
)
async def export_skill(context: AtUser, skill: FromPath[str]) -> Response[str]:
    stored = await find_skill(context, skill)
    draft = SkillDraft(stored.name, stored.description, stored.text)
    headers = {
        "content-disposition": 'attachment; filename="SKILL.md"',
        "x-content-type-options": "nosniff",
    }
    return Response(
        management.skills.format_document(draft),
        media_type=MARKDOWN,
        headers=headers,
    )


ROUTES = (
    skills,
    post_skill,
    import_skill,
    skill,
    patch_skill,
    delete_skill,
    skill_versions,
    export_skill,
)
