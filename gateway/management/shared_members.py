"""Who sees a shared block, over HTTP: users, agents, teams, projects, everyone."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import FromPath, FromQuery

from gateway.auth.user_resolver import USER_PREFIX
from gateway.errors import BadRequest
from gateway.http.paths import segment
from gateway.management.context import AtDoor, Cursor, ManagementRequest, PageLimit, window
from gateway.management.schemas import Gone, Page, describe_body, place_of
from gateway.management.shared_blocks import (
    check_member,
    check_operator,
    find_block,
    find_member,
    name_block,
)
from gateway.management.shared_schemas import MemberPut, SharedMember, member_object
from memory import AGENT_PREFIX, management
from memory.management.shared_blocks import BlockName, MemberName

KIND = "shared_block.member"


def _user_member(user: str, agent: str) -> MemberName:
    """Return the user whom a path names. Raises BadRequest for an agent's own memory."""
    name = segment(user).strip()
    if name.startswith(AGENT_PREFIX):
        raise BadRequest(
            f"{name[:64]!r} is an agent: its route is /members/agents/{name[6:64]}.", param="user"
        )
    if name.startswith(USER_PREFIX + AGENT_PREFIX):
        name = name[len(USER_PREFIX) :]
    return check_member(MemberName("user", name, agent))


async def _put(caller: ManagementRequest, ident: str, member: MemberName) -> SharedMember:
    block_name = await _open(caller, ident)
    member_put = await caller.parse_body(MemberPut, may_be_empty=True)
    stored_member = await caller.write(
        management.shared_blocks.put_member(caller.memory, block_name, member, member_put.write)
    )
    return member_object(stored_member)


async def _open(caller: ManagementRequest, ident: str) -> BlockName:
    """Return a block whose members the caller may change. Raises Forbidden, ResourceNotFound."""
    block_name = name_block(caller, ident)
    await find_block(caller, block_name)
    check_operator(caller)
    return block_name


async def _remove(caller: ManagementRequest, ident: str, member: MemberName) -> Gone:
    block_name = await _open(caller, ident)
    await caller.write(management.shared_blocks.remove_member(caller.memory, block_name, member))
    return Gone(member.name or member.kind, KIND)


@get("/shared-blocks/{ident:str}/members", summary="Who sees a shared block, by kind and name")
async def members(
    caller: AtDoor, ident: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[SharedMember]:
    block_name = await _open(caller, ident)
    place = place_of(cursor, tuple[str, str, str])
    after = None
    if place is not None:
        after = MemberName(*place)
    stored_members = await caller.read(
        management.shared_blocks.list_members(caller.memory, block_name, after, limit + 1)
    )
    page, next_cursor = window(stored_members, limit, lambda m: tuple(m.member))
    return Page([member_object(member) for member in page], next_cursor)


@put(
    "/shared-blocks/{ident:str}/members/{user:str}",
    summary="Let a user see a shared block, with all agents or one; without a body as it says",
    operation_class=describe_body(MemberPut),
)
async def put_user(
    caller: AtDoor, ident: FromPath[str], user: FromPath[str], agent: FromQuery[str] = ""
) -> SharedMember:
    return await _put(caller, ident, _user_member(user, agent))


@delete(
    "/shared-blocks/{ident:str}/members/{user:str}",
    status_code=200,
    summary="Take a user's membership away",
)
async def remove_user(
    caller: AtDoor, ident: FromPath[str], user: FromPath[str], agent: FromQuery[str] = ""
) -> Gone:
    return await _remove(caller, ident, _user_member(user, agent))


@put(
    "/shared-blocks/{ident:str}/members/agents/{name:str}",
    summary="Let an agent see a shared block, whoever talks to it",
    operation_class=describe_body(MemberPut),
)
async def put_agent(caller: AtDoor, ident: FromPath[str], name: FromPath[str]) -> SharedMember:
    return await _put(caller, ident, check_member(MemberName("agent", segment(name))))


@delete(
    "/shared-blocks/{ident:str}/members/agents/{name:str}",
    status_code=200,
    summary="Take an agent's membership away",
)
async def remove_agent(caller: AtDoor, ident: FromPath[str], name: FromPath[str]) -> Gone:
    return await _remove(caller, ident, check_member(MemberName("agent", segment(name))))


@put(
    "/shared-blocks/{ident:str}/members/teams/{name:str}",
    summary="Let a team see a shared block",
    operation_class=describe_body(MemberPut),
)
async def put_team(caller: AtDoor, ident: FromPath[str], name: FromPath[str]) -> SharedMember:
    await _open(caller, ident)
    return await _put(caller, ident, await find_member(caller, MemberName("team", segment(name))))


@delete(
    "/shared-blocks/{ident:str}/members/teams/{name:str}",
    status_code=200,
    summary="Take a team's membership away",
)
async def remove_team(caller: AtDoor, ident: FromPath[str], name: FromPath[str]) -> Gone:
    await _open(caller, ident)
    member = await find_member(caller, MemberName("team", segment(name)))
    return await _remove(caller, ident, member)


@put(
    "/shared-blocks/{ident:str}/members/projects/{name:str}",
    summary="Let a project see a shared block",
    operation_class=describe_body(MemberPut),
)
async def put_project(caller: AtDoor, ident: FromPath[str], name: FromPath[str]) -> SharedMember:
    await _open(caller, ident)
    return await _put(
        caller, ident, await find_member(caller, MemberName("project", segment(name)))
    )


@delete(
    "/shared-blocks/{ident:str}/members/projects/{name:str}",
    status_code=200,
    summary="Take a project's membership away",
)
async def remove_project(caller: AtDoor, ident: FromPath[str], name: FromPath[str]) -> Gone:
    await _open(caller, ident)
    member = await find_member(caller, MemberName("project", segment(name)))
    return await _remove(caller, ident, member)


@put(
    "/shared-blocks/{ident:str}/everyone",
    summary="Let all named users see a shared block",
    operation_class=describe_body(MemberPut),
)
async def put_everyone(caller: AtDoor, ident: FromPath[str]) -> SharedMember:
    return await _put(caller, ident, MemberName("everyone"))


@delete(
    "/shared-blocks/{ident:str}/everyone",
    status_code=200,
    summary="Show a shared block to its other members alone",
)
async def remove_everyone(caller: AtDoor, ident: FromPath[str]) -> Gone:
    return await _remove(caller, ident, MemberName("everyone"))


ROUTES = (
    members,
    put_user,
    remove_user,
    put_agent,
    remove_agent,
    put_team,
    remove_team,
    put_project,
    remove_project,
    put_everyone,
    remove_everyone,
)
