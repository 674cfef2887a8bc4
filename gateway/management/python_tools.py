"""Python tools over HTTP: made, replaced, deleted, their versions, undo.

The ETag is the version; an outdated If-Match is a 409. Hosts and the sandbox of a whole
CPython are the operator's: an admin key sets them, and nobody is shown hosts. Secrets stand in the
configuration alone.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath

from gateway.auth.authenticator import Principal
from gateway.config.tools import is_reserved
from gateway.errors import BadRequest, Forbidden, InvalidSource, RequestConflict
from gateway.http.paths import segment
from gateway.management.agents import edit_source
from gateway.management.blocks import expected_version
from gateway.management.context import (
    EVERY,
    AtDoor,
    Cursor,
    PageLimit,
    window,
)
from gateway.management.schemas import Json, Page, describe_body, place_of
from gateway.state import GatewayState
from gateway.tools.python_source import SourceRefused
from gateway.tools.tenant_tools import (
    API_ENTRY,
    TenantPythonTools,
    ToolDefinition,
    ToolRefused,
    read_definition,
    read_listed,
    show_definition,
)
from memory import EditSource, Memory, iso, management
from memory.management.python_tools import StoredTool

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class PythonToolVersion(msgspec.Struct):
    """before, after: whole definitions, null where there was none."""

    version: int
    before: Json | None
    after: Json | None
    actor: str
    request_id: str | None
    created_at: str


def show_tool(stored_tool: StoredTool, warnings: list[str] | None = None) -> Json:
    """Return a tool as the API shows it."""
    listed_definition = read_listed(stored_tool.listed)
    tool_object: Json = {
        **(show_definition(stored_tool.definition) or {}),
        "object": "tool",
        "name": stored_tool.name,
        "entry": API_ENTRY,
        "description": listed_definition.description,
        "parameters": listed_definition.parameters,
        "effect": listed_definition.effect,
        "version": stored_tool.version,
        "created_at": iso(stored_tool.created_at),
        "updated_at": iso(stored_tool.updated_at),
        "updated_by": stored_tool.updated_by,
    }
    if warnings is not None:
        tool_object["warnings"] = warnings
    return tool_object


class ToolMaker(Protocol):
    """Who makes a tool. runs_it: they operate the gateway."""

    tenant: str
    memory: Memory

    @property
    def gateway(self) -> GatewayState: ...

    @property
    def principal(self) -> Principal: ...

    @property
    def runs_it(self) -> bool: ...

    async def read(self, work: Awaitable[T]) -> T: ...

    async def write(self, work: Awaitable[T]) -> T: ...


def check_tool_maker(caller: ToolMaker, definition: ToolDefinition | None = None) -> None:
    """Raise Forbidden for a caller who may make no such tool."""
    if caller.tenant == EVERY:
        raise BadRequest("A tool belongs to one tenant: name it.", param="tenant")
    makers = caller.gateway.settings.toolbox.create
    may_make = makers != "off" and (
        caller.runs_it or (makers == "trusted" and caller.principal.trusted)
    )
    if not may_make:
        raise Forbidden(
            "This key may not make Python tools: toolbox.create says whose keys may. Ask the "
            "operator.",
            code="tools_not_allowed",
        )
    if definition is not None and definition.is_privileged and not caller.runs_it:
        raise Forbidden(
            "Only an admin key sets `hosts` and `sandbox` of a tool.",
            code="tools_not_allowed",
        )


def tools_of(caller: ToolMaker) -> TenantPythonTools:
    """Return what holds the Python tools of tenants."""
    return caller.gateway.toolbox.tenant_tools


async def put_python_tool(
    caller: ToolMaker, name: str, definition: ToolDefinition, source: EditSource
) -> tuple[StoredTool, list[str]]:
    """Make or replace a tool. Raises BadRequest, Forbidden, InvalidSource, RequestConflict."""
    check_tool_maker(caller, definition)
    if not NAME.fullmatch(name):
        raise BadRequest(
            f"`name` is {name[:64]!r}: use 1 to 64 letters, digits and _, beginning with a letter.",
            param="name",
        )
    _check_free(caller, name)
    tools = tools_of(caller)
    try:
        text, warnings = await tools.check(name, definition)
    except SourceRefused as e:
        raise InvalidSource(str(e), e.line) from None
    except ToolRefused as e:
        raise BadRequest(f"{e}.", code="invalid_tool", param=e.param) from None
    stored_tool = await caller.write(
        management.python_tools.edit_tool(caller.memory, (caller.tenant, name), text, source)
    )
    await caller.read(tools.read_lists())
    assert stored_tool is not None  # noqa: S101 - a put never deletes
    return stored_tool, warnings


def _check_free(caller: ToolMaker, name: str) -> None:
    """Raise RequestConflict for a name that another entry has."""
    registered = caller.gateway.toolbox.catalog(caller.tenant).tools.get(name)
    if is_reserved(name) or (registered is not None and registered.tool.entry != API_ENTRY):
        raise RequestConflict(
            f"There is another tool named {name!r}: choose another name.",
            code="tool_exists",
            param="name",
        )


async def remove_python_tool(caller: ToolMaker, name: str, source: EditSource) -> None:
    """Delete a tool; its versions stay. Raises Forbidden, ResourceNotFound, RequestConflict."""
    check_tool_maker(caller)
    tool_key = caller.tenant, name
    await caller.write(management.python_tools.edit_tool(caller.memory, tool_key, None, source))
    await caller.read(tools_of(caller).read_lists())


@put(
    "/tools/{name:str}",
    summary="Make a Python tool, or replace it",
    operation_class=describe_body(ToolDefinition),
)
async def put_tool(caller: AtDoor, name: FromPath[str]) -> Response[Json]:
    check_tool_maker(caller)
    definition = await caller.parse_body(ToolDefinition)
    source = edit_source(caller, expected_version(caller.headers, "tool"))
    stored_tool, warnings = await put_python_tool(caller, segment(name), definition, source)
    return _with_version(show_tool(stored_tool, warnings))


@delete("/tools/{name:str}", status_code=200, summary="Delete a Python tool; undo restores it")
async def delete_tool(caller: AtDoor, name: FromPath[str]) -> Json:
    name = segment(name)
    source = edit_source(caller, expected_version(caller.headers, "tool"))
    await remove_python_tool(caller, name, source)
    return {"object": "tool", "name": name, "deleted": True}


@get("/tools/{name:str}/versions", summary="A Python tool's history, newest first")
async def tool_versions(
    caller: AtDoor, name: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[PythonToolVersion]:
    check_tool_maker(caller)
    tool_key = caller.tenant, segment(name)
    rows = await caller.read(
        management.python_tools.list_versions(
            caller.memory, tool_key, place_of(cursor, int), limit + 1
        )
    )
    page, next_cursor = window(
        rows,
        limit,
        lambda row: row["version"],
        lambda row: len(row["before"] or "") + len(row["after"] or ""),
    )
    return Page([_version(row) for row in page], next_cursor)


@post(
    "/tools/{name:str}/undo",
    status_code=200,
    summary="Undo the newest edit of a Python tool; repeat to undo earlier ones",
)
async def undo_tool(caller: AtDoor, name: FromPath[str]) -> Response[Json]:
    check_tool_maker(caller)
    tool_key = caller.tenant, segment(name)
    tools = tools_of(caller)
    undoes, before = await caller.read(management.python_tools.find_undone(caller.memory, tool_key))
    text = None
    if before is not None:
        definition = read_definition(before)
        check_tool_maker(caller, definition)
        try:
            text, _ = await tools.check(tool_key[1], definition)
        except ValueError as e:
            raise RequestConflict(
                f"What stood before cannot be restored: {e}.", code="invalid_tool"
            ) from None
    stored_tool = await caller.write(
        management.python_tools.undo_edit(
            caller.memory, tool_key, undoes, text, edit_source(caller)
        )
    )
    await caller.read(tools.read_lists())
    if stored_tool is None:
        return Response({"object": "tool", "name": tool_key[1], "deleted": True})
    return _with_version(show_tool(stored_tool))


def _with_version(tool_object: Json) -> Response[Json]:
    return Response(tool_object, headers={"etag": f'"{tool_object["version"]}"'})


def _version(row: dict[str, Any]) -> PythonToolVersion:
    definitions = {side: show_definition(row[side]) for side in ("before", "after")}
    return PythonToolVersion(**{**row, **definitions, "created_at": iso(row["created_at"])})


ROUTES = (put_tool, delete_tool, tool_versions, undo_tool)
