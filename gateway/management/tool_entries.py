"""Servers of tools over HTTP: read again what they list, and accept definitions that wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import post
from litestar.params import FromPath

from gateway.errors import Forbidden, RequestConflict, ResourceNotFound, Unavailable
from gateway.http.paths import segment
from gateway.management.context import AtDoor, ManagementRequest, translate_errors
from gateway.management.schemas import describe_body
from gateway.tools.mcp_connection import ServerRefused, ServerUnreachable
from gateway.tools.mcp_definitions import TooManyDefinitions
from gateway.tools.mcp_pinning import ChangedAgain
from gateway.tools.mcp_tool import McpTool

ToolName = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class AcceptPost(msgspec.Struct, forbid_unknown_fields=True):
    """tools: names as the server has them; none: all that wait. hash: of what was looked at."""

    hash: str | None = None
    tools: Annotated[list[ToolName], msgspec.Meta(max_length=1000)] | None = None


class EntryTool(msgspec.Struct):
    """A tool of a server: new, changed, ready, gone or refused, and its definitions."""

    name: str
    status: str
    reason: str
    hash: str | None
    flags: list[str]
    accepted: Mapping[str, Any] | None
    listed: Mapping[str, Any] | None


class EntryTools(msgspec.Struct):
    """An entry of the kind `mcp`. problem: why it cannot be used, "" for nothing."""

    entry: str
    problem: str
    last_error: str
    tools: list[EntryTool]
    accepted: list[str] = []


def find_server(caller: ManagementRequest, name: str) -> McpTool:
    """Return the kind behind an entry. Raises Forbidden, ResourceNotFound."""
    if not caller.runs_it:
        raise Forbidden("Only an admin key may look at the servers of tools. Ask the operator.")
    entry = caller.gateway.toolbox.entries.get(segment(name))
    if entry is None or not isinstance(entry.kind, McpTool):
        raise ResourceNotFound(f"There is no entry {name[:64]!r} of the kind mcp.")
    return entry.kind


def describe_server(kind: McpTool, accepted_names: list[str]) -> EntryTools:
    """Return what a server lists, and what of it is accepted."""
    tools = [EntryTool(**definition) for definition in kind.describe()]
    return EntryTools(kind.name, kind.problem, kind.last_error, tools, accepted_names)


@post(
    "/tools/entries/{entry:str}/accept",
    status_code=200,
    summary="Accept definitions of tools that wait",
    operation_class=describe_body(AcceptPost),
)
async def accept_tools(caller: AtDoor, entry: FromPath[str]) -> EntryTools:
    kind = find_server(caller, entry)
    accept_post = await caller.parse_body(AcceptPost)
    try:
        with translate_errors():
            accepted_names = await kind.accept(accept_post.tools, accept_post.hash)
    except KeyError as e:
        raise ResourceNotFound(
            f"The tool {str(e.args[0])[:64]!r} of this entry does not wait to be accepted."
        ) from e
    except ChangedAgain as e:
        raise RequestConflict(
            "The definitions are no longer those that were looked at. Look at them again.",
            code="changed_again",
            param="hash",
        ) from e
    return describe_server(kind, accepted_names)


@post(
    "/tools/entries/{entry:str}/refresh",
    status_code=200,
    summary="Read again what a server of tools lists",
)
async def refresh_tools(caller: AtDoor, entry: FromPath[str]) -> EntryTools:
    kind = find_server(caller, entry)
    try:
        with translate_errors():
            await kind.refresh()
    except (ServerUnreachable, ServerRefused, TooManyDefinitions) as e:
        raise Unavailable(f"The server of {entry[:64]!r} cannot be read: {e}.") from e
    return describe_server(kind, [])


ROUTES = (accept_tools, refresh_tools)
