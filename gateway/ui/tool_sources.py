"""Python tools of a tenant: made and edited in a form, versions as differences, undo, deletion."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import GatewayError, RequestConflict, ResourceNotFound
from gateway.management import python_tools as api
from gateway.management.agents import edit_source
from gateway.tools.tenant_tools import ToolDefinition, read_definition
from gateway.ui.form_request import FormRequest, path_segment, version_of
from gateway.ui.texts import diff_lines, link
from gateway.ui.tool_pages import tenant_link
from gateway.ui.visitor import ACTOR, AtVisit, Visitor, go_to
from memory import management
from memory.management.python_tools import StoredTool

VERSIONS = 20
# That are shown in the form.
FORM_ERRORS = (400, 403, 409, 422)
EXAMPLE = '''def add_days(date: str, days: int) -> str:
    """Return a date some days later.

    Args:
        date: An ISO date, like 2026-11-26.
        days: How many days.
    """
    import datetime

    later = datetime.date.fromisoformat(date) + datetime.timedelta(days=days)
    return later.isoformat()
'''


def _where(visitor: Visitor, name: str) -> dict[str, str]:
    return {"name": name, "tenant": tenant_link(visitor)}


async def _find_tool(visitor: Visitor, name: str) -> StoredTool | None:
    api.check_tool_maker(visitor.caller)
    caller = visitor.caller
    return await caller.read(
        management.python_tools.find_tool(caller.memory, (caller.tenant, name))
    )


def _form_page(visitor: Visitor, **values: Any) -> Template:
    """Return the form. error: of what was sent, None if nothing was."""
    context = {"error": None, "version": 0, "where": _where(visitor, values["name"]), **values}
    return visitor.page("python-tool.html", **context)


@get("/tools/new")
async def new_tool_form(visitor: AtVisit) -> Template:
    api.check_tool_maker(visitor.caller)
    return _form_page(visitor, name="", source=EXAMPLE, description="", is_new=True)


@post("/tools", status_code=200)
async def make_tool(visitor: AtVisit) -> Template | Redirect:
    """Make a tool of a name that no Python tool has."""
    api.check_tool_maker(visitor.caller)
    name = visitor.field("name").strip()
    source = visitor.field("source")
    description = visitor.field("description")
    definition = ToolDefinition(source=source, description=description)
    try:
        if await _find_tool(visitor, name) is not None:
            raise RequestConflict(f"There is a Python tool {name!r} already.", param="name")
        await api.put_python_tool(visitor.caller, name, definition, _source_of(visitor, 0))
    except GatewayError as e:
        if e.status not in FORM_ERRORS:
            raise
        form_values = {"name": name, "source": source, "description": description}
        return _form_page(visitor, **form_values, is_new=True, error=e)
    return go_to(link("/tool", **_where(visitor, name)))


def _source_of(visitor: Visitor, expect: int) -> Any:
    return edit_source(visitor.caller, expect, ACTOR)


@get("/tool/source")
async def source_form(visitor: AtVisit, name: FromQuery[str]) -> Template:
    stored_tool = await _own_tool(visitor, name)
    definition = read_definition(stored_tool.definition)
    return _form_page(
        visitor,
        name=name,
        source=definition.source,
        description=definition.description,
        version=stored_tool.version,
        is_new=False,
    )


async def _own_tool(visitor: Visitor, name: str) -> StoredTool:
    """Return a Python tool that is there. Raises Forbidden, ResourceNotFound."""
    stored_tool = await _find_tool(visitor, name)
    if stored_tool is None:
        raise ResourceNotFound(
            f"There is no Python tool {name[:64]!r} of this tenant.", code="tool_not_found"
        )
    return stored_tool


@post("/tool/source", status_code=200)
async def save_source(visitor: AtVisit, name: FromQuery[str]) -> Template | Redirect:
    """Replace source and description; hosts and the sandbox stay as they are."""
    version = version_of(visitor)
    source = visitor.field("source")
    description = visitor.field("description")
    stored_tool = await _own_tool(visitor, name)
    definition = msgspec.structs.replace(
        read_definition(stored_tool.definition), source=source, description=description
    )
    try:
        await api.put_python_tool(visitor.caller, name, definition, _source_of(visitor, version))
    except GatewayError as e:
        if e.status not in FORM_ERRORS:
            raise
        form_values = {"name": name, "source": source, "description": description}
        return _form_page(
            visitor, **form_values, version=stored_tool.version, is_new=False, error=e
        )
    return go_to(link("/tool", **_where(visitor, name)))


@get("/tool/versions")
async def versions_page(
    visitor: AtVisit, name: FromQuery[str], cursor: FromQuery[str | None] = None
) -> Template:
    """Show what each edit changed; of a deleted tool too, which undo restores."""
    versions_list = await api.tool_versions.fn(
        visitor.caller, path_segment(name), cursor or None, VERSIONS
    )
    versions = await asyncio.to_thread(lambda: [(v, _compare(v)) for v in versions_list.data])
    return visitor.page(
        "tool-versions.html",
        name=name,
        versions=versions,
        rest=versions_list.next_cursor,
        is_there=await _find_tool(visitor, name) is not None,
        where=_where(visitor, name),
    )


def _compare(version: api.PythonToolVersion) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the members that an edit changed, each with its lines."""
    before = version.before or {}
    after = version.after or {}
    changed_names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [
        (name, list(diff_lines(str(before.get(name, "")), str(after.get(name, "")))))
        for name in changed_names
    ]


@post("/tool/undo", status_code=200)
async def undo_tool(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    await api.undo_tool.fn(FormRequest(visitor), path_segment(name))
    return go_to(link("/tool/versions", **_where(visitor, name)))


@post("/tool/delete", status_code=200)
async def delete_tool(visitor: AtVisit, name: FromQuery[str]) -> Redirect:
    await api.delete_tool.fn(FormRequest(visitor), path_segment(name))
    return go_to(link("/tool/versions", **_where(visitor, name)))


ROUTES = (
    new_tool_form,
    make_tool,
    source_form,
    save_source,
    versions_page,
    undo_tool,
    delete_tool,
)
