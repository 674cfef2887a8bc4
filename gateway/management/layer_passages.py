"""The passages of teams, projects and of the tenant over HTTP, as those of a user."""

from __future__ import annotations

from litestar import Router, delete, get, patch, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery

from gateway.management import passages as of_user
from gateway.management.context import Cursor, PageLimit
from gateway.management.layer_access import (
    LayerContext,
    project_memory,
    team_memory,
    tenant_memory,
)
from gateway.management.query_params import Sought
from gateway.management.schemas import (
    Gone,
    Page,
    Passage,
    PassageHit,
    PassagePatch,
    PassagePost,
    describe_body,
)
from memory import management

Layer = NamedDependency[LayerContext]


@get("/passages", summary="The passages that it holds, newest first")
async def layer_passages(
    layer: Layer, cursor: Cursor = None, limit: PageLimit = 50, forgotten: FromQuery[bool] = False
) -> Page[Passage]:
    return await of_user.list_page(layer, cursor, limit, forgotten=forgotten)


@post(
    "/passages",
    status_code=200,
    summary="Add a passage for all who read it",
    operation_class=describe_body(PassagePost),
)
async def add_layer_passage(layer: Layer) -> Page[Passage]:
    return await of_user.add_passage(layer, await layer.asked(PassagePost), layer.writer)


@get("/passages/search", summary="Search its passages; without words, the newest ones")
async def search_layer(
    layer: Layer, search: Sought, tags: FromQuery[list[str] | None] = None
) -> Page[PassageHit]:
    return await of_user.search_page(layer, search, tags)


@get("/passages/{ident:str}", summary="One of its passages")
async def layer_passage(layer: Layer, ident: FromPath[str]) -> Passage:
    passage_work = management.passages.get_passage(layer.memory, layer.scope, ident)
    return of_user.to_schema(layer, await layer.read(passage_work))


@patch(
    "/passages/{ident:str}",
    status_code=200,
    summary="Change one of its passages; the older wording is set aside",
    operation_class=describe_body(PassagePatch),
)
async def edit_layer_passage(layer: Layer, ident: FromPath[str]) -> Passage:
    return await of_user.change_passage(layer, ident, await layer.asked(PassagePatch))


@post(
    "/passages/{ident:str}/undo",
    status_code=200,
    summary="Undo the newest change of one of its passages",
)
async def undo_layer_passage(layer: Layer, ident: FromPath[str]) -> Passage:
    undone = management.passages.undo_passage(layer.memory, layer.hand(), ident)
    return of_user.to_schema(layer, await layer.write(undone))


@post(
    "/passages/{ident:str}/restore",
    status_code=200,
    summary="Restore one of its passages that was set aside",
)
async def restore_layer_passage(layer: Layer, ident: FromPath[str]) -> Passage:
    restored = management.passages.restore_passage(layer.memory, layer.hand(), ident)
    return of_user.to_schema(layer, await layer.write(restored))


@post(
    "/passages/{ident:str}/forget",
    status_code=200,
    summary="Set one of its passages aside: no search finds it until it is restored",
)
async def forget_layer_passage(layer: Layer, ident: FromPath[str]) -> Gone:
    await layer.write(management.passages.set_passage_aside(layer.memory, layer.hand(), ident))
    return Gone(ident, "passage")


@delete("/passages/{ident:str}", status_code=200, summary="Delete one of its passages")
async def delete_layer_passage(layer: Layer, ident: FromPath[str]) -> Gone:
    await layer.write(management.passages.delete_passage(layer.memory, layer.hand(), ident))
    return Gone(ident, "passage")


HANDLERS = (
    layer_passages,
    add_layer_passage,
    search_layer,
    layer_passage,
    edit_layer_passage,
    undo_layer_passage,
    restore_layer_passage,
    forget_layer_passage,
    delete_layer_passage,
)
ROUTES = tuple(
    Router(path, route_handlers=HANDLERS, dependencies={"layer": Provide(memory)})
    for path, memory in (
        ("/teams/{team:str}", team_memory),
        ("/projects/{project:str}", project_memory),
        ("/tenant", tenant_memory),
    )
)
