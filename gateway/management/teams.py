"""Teams over HTTP, and who is in them. What they hold is in `layer_passages`."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import FromPath

from gateway.http.paths import segment
from gateway.management.context import (
    AtDoor,
    AtUser,
    Cursor,
    ManagementRequest,
    PageLimit,
    check_name,
    window,
)
from gateway.management.layer_access import (
    check_layer_name,
    check_operator,
    not_found,
    tenant_of,
    visible_users,
)
from gateway.management.schemas import Gone, Page, describe_body, place_of
from gateway.management.team_schemas import (
    LayerRemoved,
    Team,
    TeamPut,
    TeamUser,
    TeamUserPut,
    UserTeam,
    team_object,
    team_user,
    user_team,
)
from memory import management

TeamName = tuple[str, str]


async def _name(caller: ManagementRequest, team: str) -> TeamName:
    """Return a team that the caller sees. Raises ResourceNotFound."""
    team_name = tenant_of(caller), segment(team)
    users = visible_users(caller)
    if users is not None:
        layer = management.layers.layer_scope(
            team_name[0], "team", team_name[1], caller.gateway.secret
        )
        if not await caller.read(management.layers.writers_of(caller.memory, layer, users)):
            raise not_found("team", team_name[1])
    return team_name


def _user_of(path: str) -> str:
    """Return the user whom a path names. Raises BadRequest."""
    return check_name(segment(path).strip(), "user")


@get("/teams", summary="Teams by name, all or those of the key's users")
async def teams(caller: AtDoor, cursor: Cursor = None, limit: PageLimit = 50) -> Page[Team]:
    rows = await caller.read(
        management.layers.list_teams(
            caller.memory,
            tenant_of(caller),
            visible_users(caller),
            place_of(cursor, str) or "",
            limit + 1,
        )
    )
    page, next_cursor = window(
        rows, limit, lambda team: team.name, lambda team: len(team.description)
    )
    return Page([team_object(team) for team in page], next_cursor)


@get("/teams/{team:str}", summary="One team")
async def team(caller: AtDoor, team: FromPath[str]) -> Team:
    team_name = await _name(caller, team)
    return team_object(await caller.read(management.layers.find_team(caller.memory, team_name)))


@put("/teams/{team:str}", summary="Make or change a team", operation_class=describe_body(TeamPut))
async def put_team(caller: AtDoor, team: FromPath[str]) -> Team:
    team_name = await _name(caller, team)
    check_operator(caller)
    check_layer_name(team_name[1], "team")
    team_put = await caller.parse_body(TeamPut, may_be_empty=True)
    team_work = management.layers.put_team(caller.memory, team_name, team_put.description)
    return team_object(await caller.write(team_work))


@delete(
    "/teams/{team:str}",
    status_code=200,
    summary="Delete a team, its memberships and its passages; returns a receipt",
)
async def delete_team(caller: AtDoor, team: FromPath[str]) -> LayerRemoved:
    team_name = await _name(caller, team)
    check_operator(caller)
    counts = await caller.write(management.layers.remove_team(caller.memory, team_name))
    return LayerRemoved(team_name[1], counts, "team.erased")


@get("/teams/{team:str}/members", summary="Who is in a team, by name")
async def team_members(
    caller: AtDoor, team: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[TeamUser]:
    team_name = await _name(caller, team)
    check_operator(caller)
    rows = await caller.read(
        management.layers.list_members(
            caller.memory, team_name, place_of(cursor, str) or "", limit + 1
        )
    )
    page, next_cursor = window(rows, limit, lambda member: member.name)
    return Page([team_user(member) for member in page], next_cursor)


@put(
    "/teams/{team:str}/members/{member:str}",
    summary="Put a user into a team",
    operation_class=describe_body(TeamUserPut),
)
async def put_team_member(caller: AtDoor, team: FromPath[str], member: FromPath[str]) -> TeamUser:
    team_name = await _name(caller, team)
    check_operator(caller)
    member_put = await caller.parse_body(TeamUserPut, may_be_empty=True)
    member_work = management.layers.put_member(
        caller.memory, team_name, _user_of(member), write=member_put.write
    )
    return team_user(await caller.write(member_work))


@delete(
    "/teams/{team:str}/members/{member:str}",
    status_code=200,
    summary="Take a user out of a team",
)
async def remove_team_member(caller: AtDoor, team: FromPath[str], member: FromPath[str]) -> Gone:
    team_name = await _name(caller, team)
    check_operator(caller)
    user = _user_of(member)
    await caller.write(management.layers.remove_member(caller.memory, team_name, user))
    return Gone(user, "team.member")


@get("/users/{user:str}/teams", summary="The teams that a user is in, by name")
async def user_teams(context: AtUser) -> Page[UserTeam]:
    teams_work = management.layers.teams_of(context.memory, context.scope.tenant, context.user)
    return Page([user_team(member) for member in await context.read(teams_work)])


ROUTES = (
    teams,
    team,
    put_team,
    delete_team,
    team_members,
    put_team_member,
    remove_team_member,
    user_teams,
)
