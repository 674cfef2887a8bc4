"""A user's skills: the list, one with its text and versions, made active, retired, deleted."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Response, get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest, GatewayError
from gateway.management import skills as api
from gateway.management.skill_schemas import SkillPatch, describe_skill
from gateway.ui.form_request import path_segment, version_of
from gateway.ui.people import summarise_user
from gateway.ui.texts import diff_lines, link
from gateway.ui.visitor import AboutUser, Subject, go_to
from memory.management.skills import SkillDraft

VERSIONS = 20
# Shown in the form.
FORM_ERRORS = (400, 409)
STATUSES = ("candidate", "active", "retired")
EMPTY_FORM = {"name": "", "description": "", "text": ""}


@get("/user/skills")
async def skills_page(subject: AboutUser) -> Template:
    return await _list_page(subject)


async def _list_page(subject: Subject, fault: str = "", **form: str) -> Template:
    skills_list = await api.skills.fn(subject.context)
    policy = subject.context.memory.policy.skills
    # What waits for a person comes first, what is over last.
    listed_skills = sorted(skills_list.data, key=lambda s: (STATUSES.index(s.status), s.name))
    return subject.page(
        "skills.html",
        skills=listed_skills,
        is_on=policy.is_on,
        characters=policy.characters,
        fault=fault,
        form={**EMPTY_FORM, **form},
        **await summarise_user(subject),
    )


@post("/user/skills", status_code=200)
async def make_skill(subject: AboutUser) -> Template | Redirect:
    """Write a skill, which is active at once: a person wrote it."""
    form = {name: subject.visitor.field(name) for name in EMPTY_FORM}
    draft = SkillDraft(form["name"].strip(), form["description"].strip(), form["text"])
    try:
        api.check_on(subject.context)
        stored_skill = await api.add_skill(subject.context, draft, "active")
    except GatewayError as e:
        if e.status not in FORM_ERRORS:
            raise
        return await _list_page(subject, e.message, **form)
    return go_to(link("/user/skill", id=stored_skill.id, **subject.where))


@get("/user/skill")
async def skill_page(
    subject: AboutUser, id: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    return await _skill_page(subject, id, cursor or None)


async def _skill_page(
    subject: Subject, ident: str, cursor: str | None = None, **values: Any
) -> Template:
    stored_skill = await api.find_skill(subject.context, path_segment(ident))
    versions_list = await api.skill_versions.fn(
        subject.context, path_segment(ident), cursor, VERSIONS
    )
    compared_versions = await asyncio.to_thread(
        lambda: [(v, list(diff_lines(v.before or "", v.after or ""))) for v in versions_list.data]
    )
    context = {"fault": "", "text": stored_skill.text, "description": stored_skill.description}
    return subject.page(
        "skill.html",
        skill=describe_skill(stored_skill),
        versions=compared_versions,
        following=versions_list.next_cursor,
        statuses=STATUSES,
        characters=subject.context.memory.policy.skills.characters,
        at={"id": stored_skill.id, **subject.where},
        **{**context, **values},
    )


@post("/user/skill", status_code=200)
async def change_skill(subject: AboutUser, id: FromQuery[str]) -> Template | Redirect:
    """Change a skill, unless it was changed since the page showed it."""
    visitor = subject.visitor
    version = version_of(visitor)
    status = visitor.field("status")
    if status not in STATUSES:
        raise BadRequest(f"`status` must be one of {', '.join(STATUSES)}.", param="status")
    texts = {"text": visitor.field("text"), "description": visitor.field("description").strip()}
    try:
        await api.change_skill(subject.context, id, SkillPatch(status=status, **texts), version)
    except GatewayError as e:
        if e.status not in FORM_ERRORS:
            raise
        return await _skill_page(subject, id, fault=e.message, **texts)
    return go_to(link("/user/skill", id=id, **subject.where))


@get("/user/skill/export")
async def export_skill(subject: AboutUser, id: FromQuery[str]) -> Response[str]:
    """Send a skill as a file SKILL.md, which the browser saves."""
    response: Response[str] = await api.export_skill.fn(subject.context, path_segment(id))
    return response


@post("/user/skill/delete", status_code=200)
async def delete_skill(subject: AboutUser) -> Redirect:
    await api.delete_skill.fn(subject.context, path_segment(subject.visitor.field("id")))
    return go_to(link("/user/skills", **subject.where))


ROUTES = (skills_page, make_skill, skill_page, change_skill, export_skill, delete_skill)
