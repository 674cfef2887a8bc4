"""Agents: the list, one made or edited in a form, versions with undo, duplicates, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.config.agents import AgentSettings
from gateway.errors import BadRequest, GatewayError, RequestConflict, ResourceNotFound
from gateway.management import agents as api
from gateway.relay.endpoint import upstream_models
from gateway.routing.agents import CONFIG, Agent
from gateway.ui import agent_form
from gateway.ui.agent_form import ProfileForm
from gateway.ui.form_request import version_of
from gateway.ui.texts import diff_lines, link
from gateway.ui.visitor import ACTOR, AtVisit, Visitor, go_to
from memory import EditSource

PAGE = 50
VERSIONS = 20
MAX_LISTED_MODELS = 500
# That are shown in the form; others have a page of their own.
FIELD_ERRORS = (400, 403, 409)
MEMORY = ("keep", "erase")
Json = dict[str, Any]


def where(visitor: Visitor, name: str = "") -> dict[str, str]:
    """Return the parameters of links to an agent's pages."""
    return {"name": name, "tenant": visitor.caller.asked_tenant or ""}


def may_make(visitor: Visitor) -> bool:
    """Tell whether the visitor may make and change agents."""
    return visitor.caller.principal.trusted or visitor.caller.principal.admin


def source_of(visitor: Visitor, expect: int | None = None) -> EditSource:
    """Return who makes an edit here. expect: the version that they saw, None for any."""
    return api.edit_source(visitor.caller, expect, ACTOR)


def profile_of(agent: Agent) -> Json:
    """Return an agent's profile, with every member that it has."""
    return {"parameters": {}, **agent.settings.model_dump(mode="json", exclude_none=True)}


def agent_page(visitor: Visitor, template: str, agent: Agent, **context: Any) -> Template:
    """Return a page about an agent."""
    return visitor.page(
        template,
        agent=api.shown_agent(agent),
        where=where(visitor, agent.name),
        is_own=agent.source != CONFIG,
        may_make=may_make(visitor),
        **context,
    )


@get("/agents")
async def agents_page(
    visitor: AtVisit, tag: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Template:
    agents_list = await api.agents.fn(visitor.caller, tag, cursor or None, PAGE)
    return visitor.page(
        "agents.html",
        agents=agents_list.data,
        rest=agents_list.next_cursor,
        tag=tag,
        tenant=where(visitor)["tenant"],
        may_make=may_make(visitor),
    )


async def model_choices(visitor: Visitor) -> Json:
    """Return the models that an agent may have, and whether others are served too."""
    router = visitor.gateway.router
    principal = visitor.caller.principal
    names = router.names(principal)
    is_open = any(model.endswith("*") for model in visitor.gateway.settings.models)
    if is_open:
        upstream_names = [
            str(model["id"]) for model in await upstream_models(visitor.gateway, principal)
        ]
        names += [name for name in upstream_names[:MAX_LISTED_MODELS] if name not in names]
    return {"models": names, "is_open": is_open}


async def _form_page(
    visitor: Visitor, form: ProfileForm, agent: Agent | None, **context: Any
) -> Template:
    """Return the form of an agent; `agent` is None for one that is to be made."""
    error: GatewayError | None = context.pop("error", None)
    place = ""
    if error is not None:
        place = agent_form.find_field(error.param or "", form)
    values: Json = {
        "form": form,
        "main": agent_form.MAIN_FIELDS,
        "advanced": agent_form.ADVANCED_FIELDS,
        "home": agent_form.HOME,
        "fault": error.message.removeprefix(f"{error.param}: ") if error is not None else "",
        "place": place,
        "opens": place in agent_form.ADVANCED,
        "new_name": "",
        "differences": [],
        "added": False,
        **(context if "models" in context else {**await model_choices(visitor), **context}),
    }
    if agent is None:
        return visitor.page("agent-new.html", where=where(visitor), **values)
    return agent_page(visitor, "agent-edit.html", agent, **{"version": agent.version, **values})


def _default_profile() -> Json:
    return AgentSettings().model_dump(mode="json", exclude_none=True)


@get("/agents/new")
async def new_agent_form(visitor: AtVisit, copy: FromQuery[str] = "") -> Template:
    """Show an empty form, or that of a duplicate of an agent."""
    if copy:
        agent = await api.find_agent(visitor.caller, copy)
        form = agent_form.render_profile(profile_of(agent))
        return await _form_page(visitor, form, None, new_name=f"{agent.name[:59]}-copy")
    form = agent_form.render_profile(_default_profile())
    form.add_row()
    form.rows[0].update(label="persona", description="Who you are and how you behave")
    choices = await model_choices(visitor)
    form.values["model"] = next(iter(choices["models"]), "")
    return await _form_page(visitor, form, None, **choices)


@post("/agents", status_code=200)
async def make_agent(visitor: AtVisit) -> Template | Redirect:
    """Make an agent; or show the form with one more block, or without one."""
    form = await asyncio.to_thread(agent_form.read_form, visitor.form)
    name = visitor.field("name").strip()
    try:
        if _edit_rows(visitor, form):
            return await _form_page(visitor, form, None, new_name=name, added=True)
        members = await _members(form, _default_profile())
        await _check_free(visitor, name)
        profile_members = {member: value for member, value in members.items() if value is not None}
        await api.put_profile(visitor.caller, name, profile_members, source_of(visitor, 0))
    except GatewayError as e:
        if e.status not in FIELD_ERRORS:
            raise
        return await _form_page(visitor, form, None, new_name=name, error=e)
    return go_to(link("/agent", **where(visitor, name)))


def _edit_rows(visitor: Visitor, form: ProfileForm) -> bool:
    """Add or remove a block of the form where that button was pressed."""
    verb, _, number = visitor.form.get("do", "").partition(" ")
    if verb == "add":
        form.add_row()
    elif verb == "remove":
        form.remove_row(number)
    return verb in ("add", "remove")


async def _members(form: ProfileForm, profile: Mapping[str, Any]) -> Json:
    return await asyncio.to_thread(agent_form.changed_members, form, profile)


async def _check_free(visitor: Visitor, name: str) -> None:
    """Raise RequestConflict for the name of another agent."""
    try:
        agent = await api.find_agent(visitor.caller, name)
    except ResourceNotFound:
        return
    # Of one of the configuration the API says more.
    if agent.source != CONFIG:
        raise RequestConflict(
            f"There is an agent {name!r} already: choose another name.", param="name"
        )


@get("/agent/profile")
async def profile_page(visitor: AtVisit, name: FromQuery[str]) -> Template:
    """Show the form of a tenant's own agent; one of the configuration is only shown."""
    agent = await api.find_agent(visitor.caller, name)
    profile = profile_of(agent)
    if agent.source == CONFIG or not may_make(visitor):
        texts = agent_form.text_members(profile)
        return agent_page(visitor, "agent-shown.html", agent, members=texts)
    if len(profile["blocks"]) > agent_form.MAX_BLOCKS:
        raise BadRequest(
            f"This agent has {len(profile['blocks'])} blocks; the form takes at most "
            f"{agent_form.MAX_BLOCKS}. Use `mnemogate agents put` for it."
        )
    return await _form_page(visitor, agent_form.render_profile(profile), agent)


@post("/agent/profile", status_code=200)
async def save_profile(visitor: AtVisit, name: FromQuery[str]) -> Template | Redirect:
    form = await asyncio.to_thread(agent_form.read_form, visitor.form)
    version = version_of(visitor)
    agent = await api.find_agent(visitor.caller, name)
    try:
        if _edit_rows(visitor, form):
            form_state = {"version": version, "added": True}
            return await _form_page(visitor, form, agent, **form_state)
        changes = await _members(form, profile_of(agent))
        if agent.version != version and changes:
            return await _conflict_page(visitor, form, agent)
        if changes:
            source = source_of(visitor, version)
            await api.change_profile(visitor.caller, agent.name, changes, source)
    except GatewayError as e:
        if e.status not in FIELD_ERRORS:
            raise
        current_agent = await api.find_agent(visitor.caller, name)
        if current_agent.version != version:
            return await _conflict_page(visitor, form, current_agent)
        return await _form_page(visitor, form, current_agent, error=e)
    return go_to(link("/agent", **where(visitor, agent.name)))


async def _conflict_page(visitor: Visitor, form: ProfileForm, agent: Agent) -> Template:
    """Return the form as it was sent, with what it would overwrite. agent: as it is now."""
    profile = profile_of(agent)
    changes = await _members(form, profile)
    merged_profile = {**profile, **{k: v for k, v in changes.items() if v is not None}}
    for member, value in changes.items():
        if value is None:
            merged_profile.pop(member, None)
    differences = await asyncio.to_thread(_compare, profile, merged_profile)
    return await _form_page(visitor, form, agent, differences=differences)


def _compare(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Any]:
    """Return the members that differ, each with its lines before and after."""
    old_texts = agent_form.text_members(before)
    new_texts = agent_form.text_members(after)
    return [
        (name, list(diff_lines(old_texts.get(name), new_texts.get(name))))
        for name in agent_form.changed_names(old_texts, new_texts)
    ]


@get("/agent/versions")
async def agent_versions(
    visitor: AtVisit, name: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    """Show what each edit changed; of a deleted agent too, which undo restores."""
    versions_list = await api.versions.fn(visitor.caller, name, cursor or None, VERSIONS)
    # The first one is compared with that.
    rows, default = versions_list.data, _default_profile()
    versions = await asyncio.to_thread(
        lambda: [(v, _compare(v.before or default, v.after) if v.after else []) for v in rows]
    )
    context = {"versions": versions, "rest": versions_list.next_cursor, "title": name}
    try:
        agent = await api.find_agent(visitor.caller, name)
    except ResourceNotFound:
        return visitor.page(
            "agent-versions.html",
            agent=None,
            where=where(visitor, name),
            is_own=True,
            may_make=may_make(visitor),
            **context,
        )
    return agent_page(visitor, "agent-versions.html", agent, **context)


@post("/agent/undo", status_code=200)
async def undo_agent(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    await api.undo_edit(visitor.caller, name, source_of(visitor))
    return go_to(link("/agent/versions", **where(visitor, name)))


@get("/agent/delete")
async def delete_form(visitor: AtVisit, name: FromQuery[str]) -> Template:
    agent = await api.find_agent(visitor.caller, name)
    return agent_page(visitor, "agent-delete.html", agent, receipt=None)


@post("/agent/delete", status_code=200)
async def delete_agent(visitor: AtVisit, name: FromQuery[str]) -> Template:
    """Delete an agent, and keep or erase its memory; shows the receipt."""
    memory = visitor.field("memory")
    if memory not in MEMORY:
        raise BadRequest(
            f"`memory` is {memory[:40]!r}: use one of {', '.join(MEMORY)}.", param="memory"
        )
    agent = await api.find_agent(visitor.caller, name)
    receipt = await api.remove_agent(visitor.caller, agent.name, memory, source_of(visitor))
    return agent_page(visitor, "agent-delete.html", agent, receipt=receipt)


ROUTES = (
    agents_page,
    new_agent_form,
    make_agent,
    profile_page,
    save_profile,
    agent_versions,
    undo_agent,
    delete_form,
    delete_agent,
)
