"""Agents over HTTP: their profiles, versions, undo, and whom they remember.

The ETag is the version; an outdated If-Match is a 409. The configuration's profiles are listed too,
and changed there alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody
from litestar.params import FromPath, FromQuery

from gateway.config.agents import AgentSettings
from gateway.errors import Forbidden, RequestConflict, ResourceNotFound
from gateway.http.paths import segment
from gateway.management.agent_schemas import AgentErased, AgentMemory, AgentVersion
from gateway.management.blocks import expected_version
from gateway.management.context import (
    PROVES_TENANT,
    AtDoor,
    AtUser,
    Cursor,
    ManagementRequest,
    PageLimit,
    window,
)
from gateway.management.keys import inline_schema
from gateway.management.profile_edits import (
    check_maker,
    check_new_name,
    check_profile,
    check_restored,
    read_members,
)
from gateway.management.schemas import (
    Json,
    Page,
    place_of,
)
from gateway.routing.agents import Agent, check_call
from gateway.state import request_id
from memory import Conflict, EditSource, StoredAgent, home_of, iso, management
from memory.management.agents import UndoneEdit

# Of a change of some members, while others change the same agent.
TRIES = 5


class TakingProfile(Operation):
    """An operation whose body is a profile, with the members of [agents.NAME]."""

    def __init__(self, **members: Any) -> None:
        schema = AgentSettings.model_json_schema()
        schema = inline_schema(schema, schema.get("$defs", {}))
        body = RequestBody({"application/json": OpenAPIMediaType(schema=schema)}, required=True)
        super().__init__(**{**members, "request_body": body})


def shown_agent(agent: Agent) -> Json:
    """Return an agent as the API shows it."""
    row = agent.row
    return {
        "object": "agent",
        "id": agent.id,
        "name": agent.name,
        "parameters": {},
        **agent.settings.model_dump(mode="json", exclude_none=True),
        "source": agent.source,
        "version": agent.version,
        "created_at": iso(row.created_at) if row else None,
        "updated_at": iso(row.updated_at) if row else None,
        "updated_by": row.updated_by if row else agent.source,
    }


def _with_etag(agent: Agent) -> Response[Json]:
    return Response(shown_agent(agent), headers={"etag": f'"{agent.version}"'})


def edit_source(
    caller: ManagementRequest, expect: int | None = None, actor: str = ""
) -> EditSource:
    """Return who makes an edit: the dashboard, the CLI if it says so, or the API.

    expect: the version that they saw, None for any.
    """
    return EditSource(actor or caller.actor, request_id(caller.request.scope), expect=expect)


def _source_of(caller: ManagementRequest) -> EditSource:
    """Return who makes an edit over HTTP, and which version they saw."""
    return edit_source(caller, expected_version(caller.request.headers, "agent"))


async def find_agent(caller: ManagementRequest, name: str) -> Agent:
    """Return an agent that the caller may use. Raises ResourceNotFound, Forbidden."""
    directory = caller.gateway.agents
    row = await caller.read(management.agents.find_agent(caller.memory, caller.tenant, name))
    agent = directory.parse(row) if row else directory.find_configured(name)
    if agent is None:
        raise ResourceNotFound(f"There is no agent {name[:64]!r}.", code="agent_not_found")
    check_call(caller.principal, agent)
    return agent


async def _stored(caller: ManagementRequest, name: str) -> StoredAgent | None:
    return await caller.read(management.agents.find_agent(caller.memory, caller.tenant, name))


async def _check_own(caller: ManagementRequest, name: str) -> StoredAgent:
    """Return the tenant's own profile. Raises Forbidden for one of the configuration."""
    check_maker(caller)
    row = await _stored(caller, name)
    if row is not None:
        return row
    if caller.gateway.agents.find_configured(name) is not None:
        raise Forbidden(
            f"The agent {name!r} is part of the configuration: change it there, and reload "
            "(SIGHUP) or restart.",
            code="agent_in_config",
        )
    raise ResourceNotFound(f"There is no agent {name[:64]!r}.", code="agent_not_found")


async def _write(
    caller: ManagementRequest, name: str, profile: str | None, source: EditSource
) -> Agent | None:
    """Write a profile, None to delete it."""
    max_agents = caller.gateway.settings.memory.agents_per_tenant
    row = await caller.write(
        management.agents.edit_agent(
            caller.memory,
            (caller.tenant, name),
            lambda _: profile,
            source,
            max_agents,
        )
    )
    if row:
        return caller.gateway.agents.parse(row)
    return None


@get("/agents", summary="The agents this key may use, by name", opt={PROVES_TENANT: True})
async def agents(
    caller: AtDoor, tag: FromQuery[str] = "", cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Json]:
    after = place_of(cursor, str)
    directory = caller.gateway.agents
    all_agents = await caller.read(directory.list_of(caller.principal, caller.tenant))
    rows = [
        row
        for row in all_agents
        if (not tag or tag in row.glance.tags) and (after is None or row.name > after)
    ][: limit + 1]
    names = [row.name for row in rows]
    page_rows = await caller.read(
        management.agents.read_agents(caller.memory, caller.tenant, names)
    )
    own_agents = {row.name: directory.parse(row) for row in page_rows}
    page_agents = [
        agent for n in names if (agent := own_agents.get(n) or directory.configured.get(n))
    ]
    page, next_cursor = window(
        page_agents, limit, lambda a: a.name, lambda a: len(a.settings.instruction)
    )
    return Page([shown_agent(agent) for agent in page], next_cursor)


@get("/agents/{name:str}", summary="One agent, by name or id", opt={PROVES_TENANT: True})
async def agent(caller: AtDoor, name: FromPath[str]) -> Response[Json]:
    return _with_etag(await find_agent(caller, segment(name)))


@put(
    "/agents/{name:str}",
    summary="Make an agent, or replace its profile",
    operation_class=TakingProfile,
    opt={PROVES_TENANT: True},
)
async def put_agent(caller: AtDoor, name: FromPath[str]) -> Response[Json]:
    name = segment(name)
    check_maker(caller)
    source = _source_of(caller)
    members = await read_members(await caller.body(), name)
    return _with_etag(await put_profile(caller, name, members, source))


async def put_profile(
    caller: ManagementRequest, name: str, members: Json, source: EditSource
) -> Agent:
    """Make an agent, or replace its profile. Raises BadRequest, Forbidden, RequestConflict."""
    check_maker(caller)
    if await _stored(caller, name) is None:
        _check_not_configured(caller, name)
        check_new_name(name)
    agent = await _write(caller, name, check_profile(caller, members), source)
    assert agent is not None  # noqa: S101 - a put never deletes
    return agent


def _check_not_configured(caller: ManagementRequest, name: str) -> None:
    """Raise RequestConflict for a name of the configuration."""
    if caller.gateway.agents.find_configured(name) is not None:
        raise RequestConflict(
            f"The agent {name!r} is part of the configuration: choose another name.",
            code="agent_in_config",
            param="name",
        )


@patch(
    "/agents/{name:str}",
    summary="Change members of an agent's profile",
    operation_class=TakingProfile,
    opt={PROVES_TENANT: True},
)
async def patch_agent(caller: AtDoor, name: FromPath[str]) -> Response[Json]:
    name = segment(name)
    source = _source_of(caller)
    changes = await read_members(await caller.body(), name)
    return _with_etag(await change_profile(caller, name, changes, source))


async def change_profile(
    caller: ManagementRequest, name: str, changes: Json, source: EditSource
) -> Agent:
    """Change members of a profile. Raises BadRequest, Forbidden, RequestConflict."""
    expect = source.expect
    for tries_left in reversed(range(TRIES)):
        row = await _check_own(caller, name)
        members = {**msgspec.json.decode(row.profile), **changes}
        # null takes back what stands in place of a setting of [memory].
        members = {member: value for member, value in members.items() if value is not None}
        profile = check_profile(caller, members)
        seen_source = replace(source, expect=row.version if expect is None else expect)
        try:
            agent = await _write(caller, name, profile, seen_source)
        except RequestConflict as e:
            if expect is not None or not tries_left or not isinstance(e.__cause__, Conflict):
                raise
            continue
        assert agent is not None  # noqa: S101 - a patch never deletes
        return agent
    raise AssertionError("the last try raises")


@delete(
    "/agents/{name:str}",
    status_code=200,
    summary="Delete an agent, and its memory where that is its own; returns a receipt",
    opt={PROVES_TENANT: True},
)
async def delete_agent(
    caller: AtDoor, name: FromPath[str], memory: FromQuery[Literal["keep", "erase"] | None] = None
) -> AgentErased:
    """Delete a profile; undo restores it, but not what was erased.

    memory: `keep` or `erase` what it remembers; left out, only the one memory of an agent of home
    `agent` is erased.
    """
    return await remove_agent(caller, segment(name), memory, _source_of(caller))


async def remove_agent(
    caller: ManagementRequest, name: str, memory: str | None, source: EditSource
) -> AgentErased:
    """Delete a profile. memory: see `delete_agent`. Raises Forbidden, RequestConflict."""
    row = await _check_own(caller, name)
    agent = caller.gateway.agents.parse(row)
    is_home_agent = agent.settings.home == "agent"
    agent_key = (caller.tenant, row.name)
    erases = memory == "erase" or (memory is None and is_home_agent)
    blocks = await caller.write(
        management.agents.delete_agent(caller.memory, agent_key, source, with_blocks=erases)
    )
    erased_counts: dict[str, int] = {}
    if erases:
        erased_counts = await caller.write(
            management.agents.erase_memories(caller.memory, agent_key)
        )
        erased_counts["blocks"] = erased_counts.get("blocks", 0) + blocks
        if is_home_agent:
            home = home_of(row.name)
            await caller.write(management.users.erase_user(caller.memory, caller.tenant, home))
    return AgentErased(row.name, row.id, erased_counts)


@get(
    "/agents/{name:str}/versions",
    summary="An agent's history, newest first",
    opt={PROVES_TENANT: True},
)
async def versions(
    caller: AtDoor, name: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[AgentVersion]:
    check_maker(caller)
    name = segment(name)
    before = place_of(cursor, int)
    agent_key = caller.tenant, name
    try:
        rows = await caller.read(
            management.agents.list_versions(caller.memory, agent_key, before, limit + 1)
        )
    except ResourceNotFound:
        # An agent of the configuration has its history there.
        if caller.gateway.agents.find_configured(name) is None:
            raise
        rows = []
    page, next_cursor = window(
        rows,
        limit,
        lambda row: row["version"],
        lambda row: len(row["before"] or "") + len(row["after"] or ""),
    )
    return Page([_version(row) for row in page], next_cursor)


def _version(row: dict[str, Any]) -> AgentVersion:
    profiles = {
        side: msgspec.json.decode(row[side]) if row[side] is not None else None
        for side in ("before", "after")
    }
    return AgentVersion(**{**row, **profiles, "created_at": iso(row["created_at"])})


@post(
    "/agents/{name:str}/undo",
    status_code=200,
    summary="Undo the newest edit of an agent; repeat to undo earlier ones",
    opt={PROVES_TENANT: True},
)
async def undo(caller: AtDoor, name: FromPath[str]) -> Response[Json]:
    name = segment(name)
    undone = await undo_edit(caller, name, edit_source(caller))
    if undone.agent is None:
        return Response({"id": name, "object": "agent", "deleted": True})
    answer = _with_etag(caller.gateway.agents.parse(undone.agent))
    if undone.lost:
        answer.content["not_restored"] = msgspec.to_builtins(undone.lost)
    return answer


async def undo_edit(caller: ManagementRequest, name: str, source: EditSource) -> UndoneEdit:
    """Undo the newest edit of a profile. Raises Forbidden, RequestConflict."""
    check_maker(caller)
    if await _stored(caller, name) is None:
        _check_not_configured(caller, name)
    max_agents = caller.gateway.settings.memory.agents_per_tenant
    return await caller.write(
        management.agents.undo_edit(
            caller.memory,
            (caller.tenant, name),
            source,
            max_agents,
            lambda profile: check_restored(caller, profile),
        )
    )


@get("/users/{user:str}/agents", summary="The agents with which a user has a memory")
async def user_agents(context: AtUser) -> Page[AgentMemory]:
    rows = await context.read(
        management.agents.list_memories(context.memory, context.scope.tenant, context.user)
    )
    return Page([AgentMemory(**{**r, "active_at": iso(r["active_at"])}) for r in rows])


ROUTES = (
    agents,
    agent,
    put_agent,
    patch_agent,
    delete_agent,
    versions,
    undo,
    user_agents,
)
