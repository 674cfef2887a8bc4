"""The operator's tools as the management API lists them: those that can be used, and those not."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.management.context import ManagementRequest
from gateway.management.schemas import Json
from gateway.tools.grants import Grants, limits_of
from gateway.tools.mcp_tool import McpTool
from gateway.tools.registry import RegisteredTool, ToolEntry, ToolRegistry

COLLIDES = "another tool has this name"
# Of definitions that a server lists.
NOT_USABLE = ("new", "changed", "refused")
REASONS = {"new": "it waits to be accepted", "changed": "its change waits to be accepted"}


def list_tools(caller: ManagementRequest) -> list[Json]:
    """Return the tools that the caller may grant or use, and entries that have none now.

    Who runs the gateway sees all of them, those of servers that wait to be accepted too.
    """
    registry = caller.gateway.toolbox
    key_tools = caller.principal.tools
    granted_patterns = key_tools.granted
    if caller.gateway.settings.mode != "managed":
        granted_patterns = caller.gateway.settings.toolbox.grant
    grants = Grants(granted_patterns, limits_of(key_tools.most))
    catalog = registry.catalog(caller.tenant)
    definitions = _ServerDefinitions(registry)
    described_tools = [
        _describe_tool(tool, grants, "ready") | definitions.describe_ready(tool)
        for tool in catalog.tools.values()
        if caller.runs_it or grants.allow(tool.name)
    ]
    if not caller.runs_it:
        return described_tools
    described_tools += [_describe_tool(tool, grants, "collides") for tool in catalog.colliding]
    described_tools += definitions.list_waiting(grants)
    for entry in registry.entries.values():
        if entry.state:
            described_tools.append(_describe_entry(entry, grants))
    return sorted(described_tools, key=lambda tool: (tool["name"], tool["entry"]))


class _ServerDefinitions:
    """What the servers of tools list, with the hash that an acceptance names."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        self._of_entry: dict[str, list[Json]] = {
            entry.name: entry.kind.describe()
            for entry in registry.entries.values()
            if isinstance(entry.kind, McpTool)
        }

    def describe_ready(self, tool: RegisteredTool) -> Json:
        """Return the members that a tool of a server has from its definition; else none."""
        kind = tool.entry.kind
        if not isinstance(kind, McpTool):
            return {}
        for definition in self._of_entry.get(kind.name, ()):
            if kind.name_of(definition["name"]) == tool.name:
                return {"hash": definition["hash"], "flags": definition["flags"]}
        return {}

    def list_waiting(self, grants: Grants) -> Iterator[Json]:
        """Yield what is listed and cannot be used."""
        for name, definitions in self._of_entry.items():
            entry = self._registry.entries[name]
            for definition in definitions:
                if definition["status"] in NOT_USABLE and entry.settings.enabled:
                    yield self._describe_waiting(entry, definition, grants)

    def _describe_waiting(self, entry: ToolEntry, definition: Json, grants: Grants) -> Json:
        kind = entry.kind
        assert isinstance(kind, McpTool)  # noqa: S101 - only these have definitions
        listed_tool = kind.shape_tool(
            definition["name"], definition["listed"] or definition["accepted"]
        )
        status = definition["status"]
        described = _describe_tool(self._registry.register(entry, listed_tool), grants, status)
        reason = definition["reason"] or REASONS.get(status, "")
        identity = {name: definition[name] for name in ("hash", "flags")}
        return {**described, **identity, "reason": reason}


def _describe_tool(tool: RegisteredTool, grants: Grants, status: str) -> Json:
    function = tool.definition["function"]
    return {
        "object": "tool",
        "name": tool.name,
        "entry": tool.entry.name,
        "kind": tool.entry.settings.kind,
        "description": function["description"],
        "parameters": function["parameters"],
        "effect": tool.tool.effect,
        "tokens": tool.tokens,
        "granted": status == "ready" and grants.allow(tool.name),
        "status": status,
        "reason": COLLIDES if status == "collides" else "",
        "version": tool.tool.version,
        "hash": tool.digest,
        "flags": [],
        "last_error": tool.entry.last_error,
    }


def _describe_entry(entry: ToolEntry, grants: Grants) -> Json:
    """Return an entry that lists no tool now, as a tool of its name."""
    status, _, reason = entry.state.partition(": ")
    return {
        "object": "tool",
        "name": entry.name,
        "entry": entry.name,
        "kind": entry.settings.kind,
        "description": "",
        "parameters": {},
        "effect": "",
        "tokens": 0,
        "granted": grants.allow(entry.name),
        "status": status,
        "reason": reason,
        "version": 0,
        "hash": "",
        "flags": [],
        "last_error": entry.last_error,
    }
