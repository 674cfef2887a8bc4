"""Declared projects over HTTP. What they hold is in `layer_passages`."""

from __future__ import annotations

from litestar import delete, get, put
from litestar.params import FromPath

from gateway.http.paths import segment
from gateway.management.context import (
    AtDoor,
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
from gateway.management.schemas import Page, describe_body, place_of
from gateway.management.team_schemas import (
    LayerRemoved,
    Project,
    ProjectPut,
    project_object,
    rules_of,
)
from memory import management


async def _name(caller: ManagementRequest, project: str) -> tuple[str, str]:
    """Return a project that the caller sees. Raises ResourceNotFound."""
    project_name = tenant_of(caller), segment(project)
    users = visible_users(caller)
    if users is not None:
        layer = management.layers.layer_scope(
            project_name[0], "project", project_name[1], caller.gateway.secret
        )
        if not await caller.read(management.layers.writers_of(caller.memory, layer, users)):
            raise not_found("project", project_name[1])
    return project_name


@get("/projects", summary="Declared projects by name, all or those of the key's users")
async def projects(caller: AtDoor, cursor: Cursor = None, limit: PageLimit = 50) -> Page[Project]:
    rows = await caller.read(
        management.layers.list_projects(
            caller.memory,
            tenant_of(caller),
            visible_users(caller),
            place_of(cursor, str) or "",
            limit + 1,
        )
    )
    page, next_cursor = window(
        rows,
        limit,
        lambda row: row.name,
        lambda row: sum(map(len, [row.rules.description, *row.rules.users, *row.rules.teams])),
    )
    return Page([project_object(row) for row in page], next_cursor)


@get("/projects/{project:str}", summary="One declared project")
async def project(caller: AtDoor, project: FromPath[str]) -> Project:
    project_name = await _name(caller, project)
    return project_object(
        await caller.read(management.layers.find_project(caller.memory, project_name))
    )


@put(
    "/projects/{project:str}",
    summary="Declare a project, or replace who may name it",
    operation_class=describe_body(ProjectPut),
)
async def put_project(caller: AtDoor, project: FromPath[str]) -> Project:
    project_name = await _name(caller, project)
    check_operator(caller)
    check_layer_name(project_name[1], "project")
    project_put = await caller.parse_body(ProjectPut, may_be_empty=True)
    for user in project_put.users:
        check_name(user, "users")
    declared = management.layers.put_project(caller.memory, project_name, rules_of(project_put))
    return project_object(await caller.write(declared))


@delete(
    "/projects/{project:str}",
    status_code=200,
    summary="Delete the declaration of a project and its shared passages; returns a receipt",
)
async def delete_project(caller: AtDoor, project: FromPath[str]) -> LayerRemoved:
    """Delete a project. What users wrote in it is their own, and stays."""
    project_name = await _name(caller, project)
    check_operator(caller)
    counts = await caller.write(management.layers.remove_project(caller.memory, project_name))
    return LayerRemoved(project_name[1], counts, "project.erased")


ROUTES = (projects, project, put_project, delete_project)
