"""Tools by Letta's names. Those of the memory are built in; others are named, and not offered."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from gateway.errors import Forbidden, ResourceNotFound
from gateway.letta.call import LettaCall, missing
from gateway.letta.ids import digits_of, letta_id
from gateway.letta.paging import page_of
from gateway.letta.route import LettaRoute
from gateway.wire.chat import Json
from memory import tools_to_offer

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
        kind, about = "letta_builtin", f"{NOT_AVAILABLE}{name} {NAMED[name]}"
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
    found = [
        tool
        for tool in map(shown_tool, KNOWN)
        if (not names or tool["name"] in names)
        and (not wanted or tool["id"] in wanted)
        and (not kinds or tool["tool_type"] in kinds)
        and tool["tool_type"] not in left_out
        and seek.lower() in tool["name"]
    ]
    return page_of(call, found, MAX_TOOLS)


async def tool(call: LettaCall, ident: str) -> Json:
    return shown_tool(_name_of(ident))


async def make_tool(call: LettaCall) -> Json:
    """Refuse a tool of the client's own: nothing here runs it."""
    raise Forbidden(
        "Tools of your own are not enabled here. Call them in your program, or use an MCP server.",
        code="tool_not_allowed",
    )


async def change_tool(call: LettaCall, ident: str) -> Json:
    """Refuse a change of a tool that is built in."""
    name = _name_of(ident)
    raise Forbidden(f"The tool {name!r} is built in, and not changed.", code="tool_not_allowed")


ROUTES = (
    LettaRoute("GET", "tools", tools, "Tools, by name", of_tenant=False),
    LettaRoute("GET", "tools/*", tool, "A tool", of_tenant=False),
    LettaRoute("POST", "tools", make_tool, "Not enabled: 403", of_tenant=False),
    LettaRoute("PUT", "tools", make_tool, "Not enabled: 403", of_tenant=False),
    LettaRoute("PATCH", "tools/*", change_tool, "Built-in tools stay: 403", of_tenant=False),
    LettaRoute("DELETE", "tools/*", change_tool, "Built-in tools stay: 403", of_tenant=False),
)
