"""Tools by Letta's names: listed, and Python tools made, changed and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import Forbidden, InvalidSource, RequestConflict
from gateway.letta.call import LettaCall, missing
from gateway.letta.errors import Unprocessable, wrong_type
from gateway.letta.paging import page_of
from gateway.letta.profile import refuse_members
from gateway.letta.route import LettaRoute
from gateway.letta.tool_catalog import (
    ALWAYS_THERE,
    KNOWN,
    is_made_here,
    learn_all_tools,
    learn_tools,
    may_grant,
    name_of_id,
    named_tools,
    operator_tools,
    shown_tool,
)
from gateway.management.python_tools import (
    check_tool_maker,
    put_python_tool,
    remove_python_tool,
)
from gateway.tools.python_source import SourceRefused, read_source
from gateway.tools.tenant_tools import ToolDefinition, read_definition
from gateway.wire.chat import Json
from memory import EditSource, management

# Of one page.
MAX_TOOLS = 200


async def tools(call: LettaCall) -> list[Json]:
    """List tools by name, or all."""
    names = call.words("name") + call.words("names")
    idents = call.words("tool_ids")
    kinds = call.words("tool_types")
    text = call.word("search")
    excluded_kinds = call.words("exclude_tool_types")
    if call.may_manage:
        await learn_all_tools(call)
    shown_tools = [
        shown_tool(call, name, available=name in ALWAYS_THERE or may_grant(call, name))
        for name in named_tools(call)
    ]
    matches = [
        tool
        for tool in shown_tools
        if (not names or tool["name"] in names)
        and (not idents or tool["id"] in idents)
        and (not kinds or tool["tool_type"] in kinds)
        and tool["tool_type"] not in excluded_kinds
        and text.lower() in tool["name"]
    ]
    return page_of(call, matches, MAX_TOOLS)


async def tool(call: LettaCall, ident: str) -> Json:
    """Return a tool by its id."""
    name = await _find_name(call, ident)
    registered = operator_tools(call).get(name)
    tool_state = shown_tool(call, name, available=may_grant(call, name))
    if registered is not None and is_made_here(registered) and may_make_tools(call):
        stored_tool = await call.read(
            management.python_tools.find_tool(call.memory, (call.tenant, name))
        )
        tool_state["source_code"] = (
            read_definition(stored_tool.definition).source if stored_tool else None
        )
    return tool_state


def may_make_tools(call: LettaCall) -> bool:
    """Tell whether the caller may make Python tools, and so read their sources."""
    try:
        check_tool_maker(call)
    except Forbidden:
        return False
    return True


async def _find_name(call: LettaCall, ident: str) -> str:
    if call.may_manage:
        await learn_tools(call, ids=[ident])
    name = name_of_id(call, ident)
    if name not in named_tools(call):
        raise missing("tool", ident)
    return name


async def make_tool(call: LettaCall) -> Json:
    """Make a Python tool, which is named like its function."""
    request_body = await _sent_tool(call)
    definition = _define(request_body, ToolDefinition())
    return await _put_tool(call, definition, EditSource("api", call.id, expect=0))


async def upsert_tool(call: LettaCall) -> Json:
    """Make a Python tool, or replace it."""
    request_body = await _sent_tool(call)
    return await _put_tool(call, _define(request_body, ToolDefinition()), call.source())


REFUSED = ("pip_requirements", "npm_requirements")
USED = ("source_code", "source_type", "description")
SOURCE_TYPE = "python"


async def _sent_tool(call: LettaCall) -> Json:
    """Return the members of a body that describes a tool. Raises Forbidden, Unprocessable."""
    try:
        check_tool_maker(call)
    except Forbidden as e:
        raise Forbidden(e.message, code="tool_not_allowed") from None
    request_body = await call.body()
    refuse_members(request_body, REFUSED)
    if (kind := request_body.get("source_type")) not in (None, SOURCE_TYPE):
        raise Unprocessable(
            f"`source_type` is {str(kind)[:40]!r}: only {SOURCE_TYPE!r} is supported here.",
            param="source_type",
            code="not_supported",
        )
    call.drop(name for name in request_body if name not in USED and request_body[name] is not None)
    return request_body


def _define(request_body: Mapping[str, Any], before: ToolDefinition) -> ToolDefinition:
    """Return a definition as a body changes it. Raises Unprocessable."""
    source = request_body.get("source_code")
    about = request_body.get("description")
    if source is None and before.source:
        source = before.source
    if not isinstance(source, str):
        raise wrong_type("source_code", source, str)
    if about is not None and not isinstance(about, str):
        raise wrong_type("description", about, str)
    return msgspec.structs.replace(
        before, source=source, description=before.description if about is None else about
    )


async def _put_tool(
    call: LettaCall, definition: ToolDefinition, edit: EditSource, name: str = ""
) -> Json:
    """Write a tool, and return it. name: that its function must have; "" for any."""
    try:
        function = read_source(definition.source, definition.sandbox).name
    except SourceRefused as e:
        raise InvalidSource(str(e), e.line) from None
    if name and function != name:
        raise InvalidSource(f"the function is named {function}, and the tool {name}")
    if function in KNOWN:
        raise RequestConflict(
            f"There is a built-in tool named {function!r}: rename the function.",
            code="tool_exists",
        )
    await put_python_tool(call, function, definition, edit)
    return {**shown_tool(call, function), "source_code": definition.source}


async def change_tool(call: LettaCall, ident: str) -> Json:
    """Change the source or the description of a Python tool; a built-in one stays as it is."""
    name = await _find_made(call, ident)
    request_body = await _sent_tool(call)
    stored_tool = await call.read(
        management.python_tools.find_tool(call.memory, (call.tenant, name))
    )
    if stored_tool is None:
        raise missing("tool", ident)
    definition = _define(request_body, read_definition(stored_tool.definition))
    edit = EditSource("api", call.id, expect=stored_tool.version)
    return await _put_tool(call, definition, edit, name)


async def delete_tool(call: LettaCall, ident: str) -> Json:
    """Delete a Python tool; its versions stay."""
    await remove_python_tool(call, await _find_made(call, ident), call.source())
    return {}


async def _find_made(call: LettaCall, ident: str) -> str:
    """Return the name of a tool that was made by API. Raises Forbidden, ResourceNotFound."""
    name = await _find_name(call, ident)
    registered = operator_tools(call).get(name)
    if registered is None or not is_made_here(registered):
        raise Forbidden(
            f"The tool {name!r} is built in or configured, and not changed here.",
            code="tool_not_allowed",
        )
    return name


ROUTES = (
    LettaRoute("GET", "tools", tools, "Tools, by name", of_tenant=False),
    LettaRoute("GET", "tools/*", tool, "A tool", of_tenant=False),
    LettaRoute("POST", "tools", make_tool, "Make a Python tool"),
    LettaRoute("PUT", "tools", upsert_tool, "Make or replace a Python tool"),
    LettaRoute("PATCH", "tools/*", change_tool, "Change a Python tool"),
    LettaRoute("DELETE", "tools/*", delete_tool, "Delete a Python tool"),
)
