"""Agents as `.af` files: one is downloaded, others are made of an uploaded file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litestar import Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest, GatewayError
from gateway.limits.running_imports import RunningImports
from gateway.management import agent_export, agent_import
from gateway.management import agents as api
from gateway.management.profile_edits import check_maker
from gateway.ui.agents import FIELD_ERRORS, source_of, where
from gateway.ui.texts import link
from gateway.ui.visitor import AS_TEXT, TAKES_FILES, AtVisit, go_to

if TYPE_CHECKING:
    from memory.formats.agent_file import ReadAgent


@get("/agent/export")
async def export_agent(visitor: AtVisit, name: FromQuery[str]) -> Response[bytes]:
    check_maker(visitor.caller)
    agent = await api.find_agent(visitor.caller, name)
    body = await agent_export.write_agent(visitor.caller, agent)
    headers = {"content-disposition": f'attachment; filename="{agent.name}.af"'}
    return Response(body, media_type="application/json", headers=headers)


@get("/agents/import")
async def import_form(visitor: AtVisit) -> Template:
    return _page(visitor)


@post("/agents/import", status_code=200, opt={TAKES_FILES: AS_TEXT})
async def import_agents(
    visitor: AtVisit, importing: NamedDependency[RunningImports]
) -> Template | Redirect:
    """Make the agents of a file, each with one memory of its own."""
    try:
        check_maker(visitor.caller)
        file_agents = _with_choices(
            visitor, await agent_import.read_file(visitor.field("file").encode())
        )
        source = source_of(visitor, 0)
        refusals = await agent_import.make_agents(visitor.caller, importing, file_agents, source)
    except GatewayError as e:
        if e.status not in (*FIELD_ERRORS, 413):
            raise
        return _page(visitor, fault=e.message, name=visitor.form.get("name", ""))
    names = [agent.name for agent in file_agents]
    if refusals:
        return _page(visitor, made=names, refused=refusals)
    if len(names) == 1:
        return go_to(link("/agent", **where(visitor, names[0])))
    return go_to(link("/agents", tenant=where(visitor)["tenant"]))


def _with_choices(visitor: AtVisit, file_agents: list[ReadAgent]) -> list[ReadAgent]:
    """Return the agents under the name and with the model of the form. Raises BadRequest."""
    name = visitor.field("name").strip()
    model = visitor.field("model").strip()
    if name and len(file_agents) != 1:
        raise BadRequest(
            f"The file holds {len(file_agents)} agents: leave the name empty.", param="name"
        )
    if name:
        file_agents = [file_agents[0]._replace(name=name)]
    if model:
        file_agents = [
            agent._replace(profile={**agent.profile, "model": model}) for agent in file_agents
        ]
    return file_agents


def _page(visitor: AtVisit, **context: object) -> Template:
    values = {"fault": "", "name": "", "made": [], "refused": [], **context}
    values["new_name"] = values.pop("name")
    return visitor.page("agent-import.html", where=where(visitor), **values)


ROUTES = (export_agent, import_form, import_agents)
