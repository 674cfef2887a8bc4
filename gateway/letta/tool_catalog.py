"""The tools that an agent can have by Letta's names, and what a client is told of each.

Those of the memory are built in. The operator's are known by their names here; an agent is granted
those that its maker may grant, and keeps the names of the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from gateway.errors import ResourceNotFound
from gateway.letta.call import LettaCall, missing
from gateway.letta.ids import digits_of, letta_id
from gateway.management.profile_edits import may_grant_tool
from gateway.tools.grants import any_matches
from gateway.tools.registry import RegisteredTool
from gateway.tools.tenant_tools import API_ENTRY, FRESH_SECONDS
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
# Tools that an agent may always name, whether the operator has them or not.
NAMED = {
    "web_search": "searches the web.",
    "run_code": "runs code in a sandbox.",
    "fetch_webpage": "reads a web page.",
}
# Tools that reach other agents, which an agent has whose profile grants them by these names.
TO_AGENTS = {
    "send_message_to_agent_async": "Leaves a message for another agent. Works where the profile "
    "has `may_message`.",
    "send_message_to_agent_and_wait_for_reply": "Asks another agent and waits for its answer. "
    "Works where the profile has `may_ask`.",
}
BUILT_IN = {**dict.fromkeys(OURS), **dict.fromkeys(ALIASES)}
ALWAYS_THERE = {**BUILT_IN, **dict.fromkeys(NAMED)}
KNOWN = {**ALWAYS_THERE, **dict.fromkeys(TO_AGENTS)}
# Of an error that lists the tools.
TOLD_NAMES = 40


def tool_id(name: str) -> str:
    """Return the id of a tool, the same everywhere."""
    return letta_id("tool", hashlib.sha256(b"letta tool\x00" + name.encode()).hexdigest())


KNOWN_BY_ID = {tool_id(name): name for name in KNOWN}


def is_of_memory(name: str) -> bool:
    """Tell whether a name stands for tools of the memory."""
    return name in OURS or (name in ALIASES and name != "send_message")


def operator_tools(call: LettaCall) -> Mapping[str, RegisteredTool]:
    """Return the operator's tools by name, those of the tenant too."""
    return call.gateway.toolbox.catalog(call.tenant).tools


def may_grant(call: LettaCall, name: str) -> bool:
    """Tell whether the caller may give an agent a tool of the operator."""
    is_grantable = name in TO_AGENTS or name in operator_tools(call)
    return name not in BUILT_IN and is_grantable and may_grant_tool(call, name)


def named_tools(call: LettaCall) -> dict[str, None]:
    """Return the names of the tools that the caller is told of."""
    grantable = [name for name in operator_tools(call) if may_grant(call, name)]
    return {**KNOWN, **dict.fromkeys(grantable)}


async def learn_tools(call: LettaCall, names: Iterable[str] = (), ids: Iterable[str] = ()) -> None:
    """Read the tenant's tools anew, if one is named that another worker may have made."""
    known_names = {*KNOWN, *operator_tools(call)}
    known_ids = {tool_id(name) for name in known_names}
    if not (known_names.issuperset(names) and known_ids.issuperset(ids)):
        await call.read(call.gateway.toolbox.tenant_tools.read_lists())


async def learn_all_tools(call: LettaCall) -> None:
    """Read the tenant's tools anew, unless that was done a moment ago."""
    tenant_tools = call.gateway.toolbox.tenant_tools
    if tenant_tools.seconds_since_read() > FRESH_SECONDS:
        await call.read(tenant_tools.read_lists())


def check_tool_names(call: LettaCall, names: Iterable[str]) -> list[str]:
    """Return names of tools. Raises ResourceNotFound for one that nobody knows."""
    wanted_names = list(names)
    known_names = {*KNOWN, *operator_tools(call)}
    for name in wanted_names:
        if name not in known_names:
            available_names = ", ".join(sorted(named_tools(call))[:TOLD_NAMES])
            raise ResourceNotFound(
                f"There is no tool {name[:64]!r}. There are: {available_names}.",
                code="tool_not_found",
                param="tools",
            )
    return wanted_names


def names_of_ids(call: LettaCall, ids: Iterable[str]) -> list[str]:
    """Return the names of tools by their ids. Raises ResourceNotFound."""
    return [name_of_id(call, ident) for ident in ids]


def name_of_id(call: LettaCall, ident: str) -> str:
    """Return the name of a tool by its id. Raises ResourceNotFound."""
    if digits_of("tool", ident) is not None:
        if ident in KNOWN_BY_ID:
            return KNOWN_BY_ID[ident]
        for name in operator_tools(call):
            if tool_id(name) == ident:
                return name
    raise missing("tool", ident)


def grant_tools(call: LettaCall, names: Iterable[str], grants: Sequence[str] = ()) -> list[str]:
    """Return the grants of a profile with those of some tools that the caller may grant.

    grants: those that the profile has.
    """
    added_grants = [n for n in names if may_grant(call, n) and not any_matches(grants, n)]
    return list(dict.fromkeys([*grants, *added_grants]))


def shown_tool(call: LettaCall, name: str, *, available: bool = True) -> Json:
    """Return a tool as the client knows it. available: to the agent, or to the caller."""
    function = OURS.get(name)
    if function is not None:
        return _build_tool(
            name, "letta_memory_core", function["description"], function["parameters"]
        )
    if name in ALIASES:
        return _build_tool(name, "letta_core", ALIASES[name])
    registered = operator_tools(call).get(name)
    if name in TO_AGENTS and registered is None and available:
        return _build_tool(name, "letta_multi_agent_core", TO_AGENTS[name])
    kind = _kind_of(name, registered)
    if registered is None or not available:
        return _build_tool(name, kind, f"{NOT_AVAILABLE}{name} {NAMED.get(name, '')}".rstrip())
    function = registered.definition["function"]
    return _build_tool(name, kind, function["description"], function["parameters"])


def _kind_of(name: str, registered: RegisteredTool | None) -> str:
    if registered is not None and registered.entry.settings.kind == "mcp":
        return "external_mcp"
    if name in TO_AGENTS:
        return "letta_multi_agent_core"
    if name in NAMED:
        return "letta_builtin"
    return "custom"


def _build_tool(name: str, kind: str, about: str, parameters: Json | None = None) -> Json:
    schema = parameters or {"type": "object", "properties": {}}
    return {
        "id": tool_id(name),
        "name": name,
        "description": about,
        "tool_type": kind,
        "source_type": "python",
        "source_code": None,
        "json_schema": {"name": name, "description": about, "parameters": schema},
        "args_json_schema": None,
        "tags": [],
        "return_char_limit": 50_000,
        "default_requires_approval": False,
        "enable_parallel_execution": False,
        "metadata_": {},
    }


def tools_of(
    call: LettaCall, names: Collection[str], grants: Sequence[str], *, memory_tools: bool
) -> list[Json]:
    """Return an agent's tools. names: those that were asked for. grants: by its profile."""
    if memory_tools:
        memory_names = list(OURS)
    else:
        memory_names = []
    known_names = (*TO_AGENTS, *operator_tools(call))
    granted_names = [name for name in known_names if any_matches(grants, name)]
    return [
        shown_tool(call, name, available=any_matches(grants, name))
        for name in dict.fromkeys([*memory_names, *names, *granted_names])
    ]


def is_made_here(registered: RegisteredTool) -> bool:
    """Tell whether a tool was made by API, and can be changed by it."""
    return registered.entry.name == API_ENTRY
