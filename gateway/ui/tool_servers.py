"""Servers of tools: what waits to be accepted beside what was accepted, accept and refresh."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.management import tool_entries as api
from gateway.management.tool_entries import EntryTool, describe_server, find_server
from gateway.ui.form_request import FormRequest, path_segment
from gateway.ui.texts import diff_lines, link
from gateway.ui.tool_form import show_schema
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import AtVisit, go_to

WAITING = ("new", "changed")


@get("/tools/server")
async def server_page(visitor: AtVisit, entry: FromQuery[str]) -> Template:
    """Show the tools of a server, those that wait first."""
    server = describe_server(find_server(visitor.caller, path_segment(entry)), [])
    tools = sorted(server.tools, key=lambda tool: (tool.status not in WAITING, tool.name))
    compared = await asyncio.to_thread(lambda: [(tool, _compare(tool)) for tool in tools])
    return visitor.page(
        "tool-server.html",
        server=server,
        tools=compared,
        waiting=WAITING,
        where={"entry": entry, "tenant": tenant_link(visitor)},
    )


def _compare(tool: EntryTool) -> list[tuple[str, str]]:
    """Return the lines of what was accepted and of what is listed now."""
    before, after = (
        "" if definition is None else show_schema(definition)
        for definition in (tool.accepted, tool.listed)
    )
    if tool.status == "gone":
        after = before
    return list(diff_lines(before, after))


@post("/tools/server/accept", status_code=200)
async def accept_tool(visitor: AtVisit, entry: FromQuery[str]) -> Redirect:
    """Accept the definition that the page showed, if it is still the one that is listed."""
    body: dict[str, Any] = {"tools": [visitor.field("tool")], "hash": visitor.field("hash")}
    await api.accept_tools.fn(FormRequest(visitor, body), path_segment(entry))
    return go_to(_server_link(visitor, entry))


@post("/tools/server/refresh", status_code=200)
async def refresh_server(visitor: AtVisit, entry: FromQuery[str]) -> Redirect:
    await api.refresh_tools.fn(FormRequest(visitor), path_segment(entry))
    return go_to(_server_link(visitor, entry))


def _server_link(visitor: AtVisit, entry: str) -> str:
    return link("/tools/server", entry=entry, tenant=tenant_link(visitor))


ROUTES = (server_page, accept_tool, refresh_server)
