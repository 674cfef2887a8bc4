"""Tools of the operator: the list with state, one tool, and a form that runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Template

from gateway.errors import GatewayError
from gateway.management import tools as api
from gateway.management.python_tools import check_tool_maker
from gateway.tools.tenant_tools import API_ENTRY
from gateway.ui.form_request import FormRequest
from gateway.ui.tool_form import BadArgument, list_fields, read_arguments, show_schema
from gateway.ui.visitor import AtVisit, Visitor
from memory.management.tool_runs import CallFilter

NEWEST_CALLS = 20
SERVER_KIND = "mcp"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EntryCounts:
    """What one entry did in this process. typical_ms, slow_ms: the median and 95th percentile."""

    runs: int
    errors: int
    typical_ms: float
    slow_ms: float


def may_make_tools(visitor: Visitor) -> bool:
    """Tell whether the visitor may make Python tools."""
    try:
        check_tool_maker(visitor.caller)
    except GatewayError:
        return False
    return True


def tenant_link(visitor: Visitor) -> str:
    """Return the tenant that links name; empty where the key has one alone."""
    return visitor.caller.asked_tenant or ""


@get("/tools")
async def tools_page(visitor: AtVisit) -> Template:
    tools_list = await api.tools.fn(visitor.caller)
    runs_it = visitor.caller.runs_it
    registry = visitor.gateway.toolbox
    servers = [
        (entry, _count_waiting(entry.kind))
        for entry in registry.entries.values()
        if runs_it and entry.settings.kind == SERVER_KIND
    ]
    return visitor.page(
        "tools.html",
        tools=tools_list.data,
        counts=_count_entries(visitor) if runs_it else {},
        servers=servers,
        may_make=may_make_tools(visitor),
        own_entry=API_ENTRY,
        tenant=tenant_link(visitor),
    )


def _count_waiting(kind: Any) -> int:
    """Return how many definitions of a server wait to be accepted."""
    return sum(pin.status in ("new", "changed") for pin in kind.pins.values())


def _count_entries(visitor: Visitor) -> dict[str, EntryCounts]:
    entries = visitor.gateway.toolbox.entries.values()
    return {e.name: EntryCounts(e.runs, e.errors, *e.times()) for e in entries}


@get("/tool")
async def tool_page(visitor: AtVisit, name: FromQuery[str]) -> Template:
    """Show one tool, its newest calls, and the form that runs it."""
    return await _tool_page(visitor, name)


async def _tool_page(visitor: Visitor, name: str, **outcome: Any) -> Template:
    tool = await api.tool.fn(visitor.caller, name)
    calls = await _newest_calls(visitor, name)
    context: Json = {"form": {}, "fault": None, "ran": None, **outcome}
    return visitor.page(
        "tool.html",
        tool=tool,
        calls=calls,
        fields=list_fields(tool["parameters"]),
        schema=show_schema(tool["parameters"]),
        is_ready=tool["status"] == "ready",
        is_own=tool["entry"] == API_ENTRY and may_make_tools(visitor),
        tenant=tenant_link(visitor),
        **context,
    )


async def _newest_calls(visitor: Visitor, name: str) -> list[api.ToolCallRecord]:
    calls_page = await api.list_tool_calls.fn(visitor.caller, CallFilter(tool=name), NEWEST_CALLS)
    return list(calls_page.data)


@post("/tool/run", status_code=200)
async def run_tool(visitor: AtVisit, name: FromQuery[str]) -> Template:
    """Run a tool with the arguments of the form, and show its result."""
    tool = await api.tool.fn(visitor.caller, name)
    form = visitor.form
    try:
        arguments = await asyncio.to_thread(read_arguments, tool["parameters"], form)
    except BadArgument as e:
        return await _run_page(visitor, name, form=form, fault=e)
    body = {"arguments": arguments, "user": form.get("user", "").strip()}
    ran = await api.run_tool.fn(FormRequest(visitor, body), name)
    return await _run_page(visitor, name, form=form, ran=ran)


async def _run_page(
    visitor: Visitor, name: str, form: Mapping[str, str], **values: Any
) -> Template:
    if visitor.is_fragment:
        context: Json = {"fault": None, "ran": None, **values}
        return visitor.page("parts/tool-result.html", **context)
    return await _tool_page(visitor, name, form=form, **values)


ROUTES = (tools_page, tool_page, run_tool)
