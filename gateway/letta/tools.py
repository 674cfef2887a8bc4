"""Tools by Letta's names. Those of the memory are built in; others are named, and not offered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from gateway.errors import Forbidden, InvalidSource, RequestConflict, ResourceNotFound
from gateway.letta.call import LettaCall, missing
from gateway.letta.errors import wrong_type
from gateway.letta.ids import digits_of, letta_id
from gateway.letta.paging import page_of
from gateway.letta.route import LettaRoute
from gateway.management.python_tools import (
    check_tool_maker,
    put_python_tool,
    remove_python_tool,
)
from gateway.tools.kind import OperatorTool
from gateway.tools.python_source import SourceRefused, read_source
from gateway.tools.tenant_tools import ToolDefinition, read_definition, read_listed
from gateway.tools.tenant_tools import make_tool as make_listed_tool
from gateway.wire.chat import Json
from memory import EditSource, management, tools_to_offer

NOT_AVAILABLE = "Not available here: "
OURS: dict[str, Json] = {
    tool["function"]["name"]: tool["function"] for tool in tools_to_offer(None, write=True)
}
# Letta's names of what our own tools do.
ALIASES = {
    "memory": "Edits memory blocks. The memory's own tools do this.",
    "memory_insert": "Adds to a memory block: core_memory_append does this.",
    "memory_replace": "Changes a memory block: core_memory_replace does this.",
    "send_message": "Answers the user. An agent here simply answers in text.",
}
NAMED = {
    "web_search": "searches the web.",
    "run_code": "runs code in a sandbox.",
    "fetch_webpage": "reads a web page.",
}
KNOWN = {**dict.fromkeys(OURS), **dict.fromkeys(ALIASES), **dict.fromkeys(NAMED)}
MAX_TOOLS = 200  # of one page


def tool_id(name: str) -> str:
    """Return the id of a tool, the same everywhere."""
    return letta_id("tool", hashlib.sha256(b"letta tool\x00" + name.encode()).hexdigest())


BY_ID = {tool_id(name): name for name in KNOWN}


def is_of_memory(name: str) -> bool:
    """Tell whether a name stands for tools of the memory."""
    return name in OURS or (name in ALIASES and name != "send_message")


def check_tool_names(names: Iterable[str]) -> list[str]:
    """Return names of tools. Raises ResourceNotFound for one that nobody knows."""
    out = []
    for name in names:
        if name not in KNOWN:
            raise ResourceNotFound(
                f"There is no tool {name[:64]!r}. There are: {', '.join(sorted(KNOWN))}.",
                code="tool_not_found",
                param="tools",
            )
        out.append(name)
    return out


def names_of_ids(ids: Iterable[str]) -> list[str]:
    """Return the names of tools by their ids. Raises ResourceNotFound."""
    return [_name_of(ident) for ident in ids]


def _name_of(ident: str) -> str:
    if digits_of("tool", ident) is None or ident not in BY_ID:
        raise missing("tool", ident)
    return BY_ID[ident]


def shown_tool(name: str) -> Json:
    """Return a tool as the client knows it."""
    schema = OURS.get(name)
    if schema is not None:
        kind, about = "letta_memory_core", str(schema["description"])
    elif name in ALIASES:
        kind, about = "letta_core", ALIASES[name]
    else:
        kind, about = "letta_builtin", f"{NOT_AVAILABLE}{name} {NAMED.get(name, '')}"
    parameters = schema["parameters"] if schema else {"type": "object", "properties": {}}
    return {
        "id": tool_id(name),
        "name": name,
        "description": about,
        "tool_type": kind,
        "source_type": "python",
        "source_code": None,
        "json_schema": {"name": name, "description": about, "parameters": parameters},
        "args_json_schema": None,
        "tags": [],
        "return_char_limit": 50_000,
        "default_requires_approval": False,
        "enable_parallel_execution": False,
        "metadata_": {},
    }


def tools_of(names: Sequence[str], *, memory_tools: bool) -> list[Json]:
    """Return an agent's tools. names: those that were asked for."""
    own = list(OURS) if memory_tools else []
    return [shown_tool(name) for name in dict.fromkeys([*own, *names]) if name in KNOWN]


async def tools(call: LettaCall) -> list[Json]:
    """List tools by name, or all."""
    names = call.words("name") + call.words("names")
    wanted, kinds, seek = call.words("tool_ids"), call.words("tool_types"), call.word("search")
    left_out = call.words("exclude_tool_types")
    own = [shown_python_tool(tool) for tool in made_tools(call).values()]
    matches = [
        tool
        for tool in [*map(shown_tool, KNOWN), *own]
        if (not names or tool["name"] in names)
        and (not wanted or tool["id"] in wanted)
        and (not kinds or tool["tool_type"] in kinds)
        and tool["tool_type"] not in left_out
        and seek.lower() in tool["name"]
    ]
    return page_of(call, matches, MAX_TOOLS)


def made_tools(call: LettaCall) -> dict[str, OperatorTool]:
    """Return the Python tools of a tenant by their names."""
    listed = call.gateway.toolbox.tenant_tools.list_tools(call.tenant)
    return {tool.name: tool for tool in listed}


def shown_python_tool(tool: OperatorTool, source: str | None = None) -> Json:
    """Return a Python tool as the client knows it."""
    schema = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {
        **shown_tool(tool.name),
        "description": tool.description,
        "tool_type": "custom",
        "source_code": source,
        "json_schema": schema,
    }


async def tool(call: LettaCall, ident: str) -> Json:
    """Return a tool by its id."""
    made = _find_made(call, ident)
    if made is None:
        return shown_tool(_name_of(ident))
    who = call.tenant, made.name
    stored = await call.read(management.python_tools.find_tool(call.memory, who))
    source = read_definition(stored.definition).source if stored is not None else None
    return shown_python_tool(made, source)


def _find_made(call: LettaCall, ident: str) -> OperatorTool | None:
    return next((tool for tool in made_tools(call).values() if tool_id(tool.name) == ident), None)


async def make_tool(call: LettaCall) -> Json:
    """Make a Python tool, which is named like its function."""
    return await _put_tool(call, await _sent_source(call), EditSource("api", call.id, expect=0))


async def upsert_tool(call: LettaCall) -> Json:
    """Make a Python tool, or replace it."""
    return await _put_tool(call, await _sent_source(call), call.source())


async def _sent_source(call: LettaCall) -> str:
    try:
        check_tool_maker(call)
    except Forbidden as e:
        raise Forbidden(e.message, code="tool_not_allowed") from None
    sent = await call.body()
    source = sent.get("source_code")
    if not isinstance(source, str):
        raise wrong_type("source_code", source, str)
    call.drop(name for name in sent if name not in ("source_code", "source_type"))
    return source


async def _put_tool(call: LettaCall, source: str, edit: EditSource) -> Json:
    try:
        name = read_source(source).name
    except SourceRefused as e:
        raise InvalidSource(str(e), e.line) from None
    if name in KNOWN:
        raise RequestConflict(
            f"There is a built-in tool named {name!r}: rename the function.", code="tool_exists"
        )
    stored, _ = await put_python_tool(call, name, ToolDefinition(source=source), edit)
    made = make_listed_tool(name, stored.version, read_listed(stored.listed))
    return shown_python_tool(made, source)


async def change_tool(call: LettaCall, ident: str) -> Json:
    """Replace the source of a Python tool; a tool that is built in stays as it is."""
    made = _made_or_refused(call, ident)
    source = await _sent_source(call)
    try:
        name = read_source(source).name
    except SourceRefused as e:
        raise InvalidSource(str(e), e.line) from None
    if name != made.name:
        raise InvalidSource(f"the function is named {name}, and the tool {made.name}")
    return await _put_tool(call, source, call.source())


async def delete_tool(call: LettaCall, ident: str) -> Json:
    """Delete a Python tool; its versions stay."""
    made = _made_or_refused(call, ident)
    await remove_python_tool(call, made.name, call.source())
    return {}


def _made_or_refused(call: LettaCall, ident: str) -> OperatorTool:
    made = _find_made(call, ident)
    if made is None:
        name = _name_of(ident)
        raise Forbidden(f"The tool {name!r} is built in, and not changed.", code="tool_not_allowed")
    return made


ROUTES = (
    LettaRoute("GET", "tools", tools, "Tools, by name", of_tenant=False),
    LettaRoute("GET", "tools/*", tool, "A tool", of_tenant=False),
    LettaRoute("POST", "tools", make_tool, "Make a Python tool"),
    LettaRoute("PUT", "tools", upsert_tool, "Make or replace a Python tool"),
    LettaRoute("PATCH", "tools/*", change_tool, "Replace the source of a Python tool"),
    LettaRoute("DELETE", "tools/*", delete_tool, "Delete a Python tool"),
)
