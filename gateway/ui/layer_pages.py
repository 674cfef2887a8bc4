"""Teams, projects and the tenant: made, members, and the passages that each holds."""

from __future__ import annotations

from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest, GatewayError, RequestConflict, ResourceNotFound
from gateway.management import layer_access, layer_passages
from gateway.management import projects as projects_api
from gateway.management import teams as teams_api
from gateway.management.layer_access import LayerContext
from gateway.ui.form_request import FormRequest, path_segment
from gateway.ui.texts import link
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import AtVisit, Visitor, go_to

PAGE = 50
MEMBERS = 100
PASSAGES = 20
PATHS = {"team": "/team", "project": "/project", "tenant": "/tenant"}
Body = dict[str, Any] | None


async def _open_layer(visitor: Visitor, kind: str, name: str, body: Body = None) -> LayerContext:
    """Return the context of what a layer holds. Raises BadRequest, Forbidden, ResourceNotFound."""
    request = FormRequest(visitor, body)
    if kind == "team":
        return await layer_access.team_memory(request, path_segment(name))
    if kind == "project":
        return await layer_access.project_memory(request, path_segment(name))
    if kind == "tenant":
        return await layer_access.tenant_memory(request)
    raise BadRequest(f"`kind` is {kind[:40]!r}: use team, project or tenant.", param="kind")


def _layer_link(visitor: Visitor, kind: str, name: str) -> str:
    return link(PATHS[kind], name=name, tenant=tenant_link(visitor))


async def _layer_page(visitor: Visitor, template: str, kind: str, **context: Any) -> Template:
    """Return a page about a layer, with its passages. cursor: of these."""
    name = context.get("name", "")
    cursor = context.pop("cursor", None)
    layer = await _open_layer(visitor, kind, name)
    passages_list = await layer_passages.layer_passages.fn(layer, cursor or None, PASSAGES)
    return visitor.page(
        template,
        kind=kind,
        passages=passages_list.data,
        rest=passages_list.next_cursor,
        path=PATHS[kind],
        is_operator=layer_access.is_operator(visitor.caller),
        tenant=tenant_link(visitor),
        **{"name": "", **context},
    )


async def _is_free(find: Any, visitor: Visitor, name: str) -> bool:
    try:
        await find.fn(visitor.caller, path_segment(name))
    except ResourceNotFound:
        return True
    return False


@get("/teams")
async def teams_page(visitor: AtVisit, cursor: FromQuery[str | None] = None) -> Template:
    teams_list = await teams_api.teams.fn(visitor.caller, cursor or None, PAGE)
    return _list_page(visitor, "teams.html", teams_list)


def _list_page(visitor: Visitor, template: str, layers_list: Any, **context: Any) -> Template:
    return visitor.page(
        template,
        layers=layers_list.data,
        rest=layers_list.next_cursor,
        is_operator=layer_access.is_operator(visitor.caller),
        tenant=tenant_link(visitor),
        **{"error": None, "form": {}, **context},
    )


@post("/teams", status_code=200)
async def make_team(visitor: AtVisit) -> Template | Redirect:
    name = visitor.field("name").strip()
    body = {"description": visitor.field("description")}
    try:
        await _check_free(teams_api.team, visitor, name, "team")
        await teams_api.put_team.fn(FormRequest(visitor, body), path_segment(name))
    except GatewayError as e:
        if e.status not in (400, 409):
            raise
        teams_list = await teams_api.teams.fn(visitor.caller, None, PAGE)
        return _list_page(visitor, "teams.html", teams_list, error=e, form=visitor.form)
    return go_to(_layer_link(visitor, "team", name))


async def _check_free(find: Any, visitor: Visitor, name: str, kind: str) -> None:
    """Raise RequestConflict for the name of another team or project."""
    layer_access.check_operator(visitor.caller)
    layer_access.check_layer_name(name, kind)
    if not await _is_free(find, visitor, name):
        raise RequestConflict(f"There is a {kind} {name!r} already.", param="name")


@get("/team")
async def team_page(
    visitor: AtVisit,
    name: FromQuery[str],
    cursor: FromQuery[str | None] = None,
    members: FromQuery[str | None] = None,
) -> Template:
    """Show a team. cursor: of its passages. members: the cursor of its members."""
    team = await teams_api.team.fn(visitor.caller, path_segment(name))
    people = None
    if layer_access.is_operator(visitor.caller):
        people = await teams_api.team_members.fn(
            visitor.caller, path_segment(name), members or None, MEMBERS
        )
    return await _layer_page(
        visitor, "team.html", "team", name=team.name, team=team, people=people, cursor=cursor
    )


@post("/team", status_code=200)
async def describe_team(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    body = {"description": visitor.field("description")}
    await teams_api.put_team.fn(FormRequest(visitor, body), path_segment(name))
    return go_to(_layer_link(visitor, "team", name))


@post("/team/members", status_code=200)
async def put_team_member(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    """Put a user into a team, or change whether they may write."""
    user = path_segment(visitor.field("user").strip())
    request = FormRequest(visitor, {"write": "write" in visitor.form})
    await teams_api.put_team_member.fn(request, path_segment(name), user)
    return go_to(_layer_link(visitor, "team", name))


@post("/team/members/remove", status_code=200)
async def remove_team_member(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    user = path_segment(visitor.field("user"))
    await teams_api.remove_team_member.fn(FormRequest(visitor), path_segment(name), user)
    return go_to(_layer_link(visitor, "team", name))


@post("/team/delete", status_code=200)
async def delete_team(visitor: AtVisit, name: FromQuery[str]) -> Template:
    receipt = await teams_api.delete_team.fn(FormRequest(visitor), path_segment(name))
    return _receipt_page(visitor, receipt, "/teams")


def _receipt_page(visitor: Visitor, receipt: Any, path: str) -> Template:
    return visitor.page(
        "layer-deleted.html", receipt=receipt, path=path, tenant=tenant_link(visitor)
    )


@get("/projects")
async def projects_page(visitor: AtVisit, cursor: FromQuery[str | None] = None) -> Template:
    projects_list = await projects_api.projects.fn(visitor.caller, cursor or None, PAGE)
    return _list_page(visitor, "projects.html", projects_list)


def _project_body(visitor: Visitor) -> dict[str, Any]:
    form = visitor.form
    lists = {
        member: [line.strip() for line in form.get(member, "").splitlines() if line.strip()]
        for member in ("users", "teams")
    }
    flags = {member: member in form for member in ("everyone", "write")}
    return {"description": visitor.field("description"), **lists, **flags}


@post("/projects", status_code=200)
async def make_project(visitor: AtVisit) -> Template | Redirect:
    name = visitor.field("name").strip()
    try:
        await _check_free(projects_api.project, visitor, name, "project")
        request = FormRequest(visitor, _project_body(visitor))
        await projects_api.put_project.fn(request, path_segment(name))
    except GatewayError as e:
        if e.status not in (400, 409):
            raise
        projects_list = await projects_api.projects.fn(visitor.caller, None, PAGE)
        return _list_page(visitor, "projects.html", projects_list, error=e, form=visitor.form)
    return go_to(_layer_link(visitor, "project", name))


@get("/project")
async def project_page(
    visitor: AtVisit, name: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    project = await projects_api.project.fn(visitor.caller, path_segment(name))
    return await _layer_page(
        visitor, "project.html", "project", name=project.name, project=project, cursor=cursor
    )


@post("/project", status_code=200)
async def save_project(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    """Replace who may name a project."""
    request = FormRequest(visitor, _project_body(visitor))
    await projects_api.put_project.fn(request, path_segment(name))
    return go_to(_layer_link(visitor, "project", name))


@post("/project/delete", status_code=200)
async def delete_project(visitor: AtVisit, name: FromQuery[str]) -> Template:
    receipt = await projects_api.delete_project.fn(FormRequest(visitor), path_segment(name))
    return _receipt_page(visitor, receipt, "/projects")


@get("/tenant")
async def tenant_page(visitor: AtVisit, cursor: FromQuery[str | None] = None) -> Template:
    return await _layer_page(visitor, "tenant.html", "tenant", cursor=cursor)


@post("/layer/passages", status_code=200)
async def add_passage(
    visitor: AtVisit, kind: FromQuery[str], name: FromQuery[str] = ""
) -> Redirect:
    """Add a passage for all who read the layer."""
    tags = [tag.strip() for tag in visitor.field("tags").split(",") if tag.strip()]
    body = {"content": visitor.field("content"), "tags": tags}
    layer = await _open_layer(visitor, kind, name, body)
    await layer_passages.add_layer_passage.fn(layer)
    return go_to(_layer_link(visitor, kind, name))


@post("/layer/forget", status_code=200)
async def forget_passage(
    visitor: AtVisit, kind: FromQuery[str], name: FromQuery[str] = ""
) -> Redirect:
    """Set a passage aside: no search finds it any more."""
    layer = await _open_layer(visitor, kind, name)
    await layer_passages.forget_layer_passage.fn(layer, visitor.field("id"))
    return go_to(_layer_link(visitor, kind, name))


ROUTES = (
    teams_page,
    make_team,
    team_page,
    describe_team,
    put_team_member,
    remove_team_member,
    delete_team,
    projects_page,
    make_project,
    project_page,
    save_project,
    delete_project,
    tenant_page,
    add_passage,
    forget_passage,
)
