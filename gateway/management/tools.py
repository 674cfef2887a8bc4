"""The operator's tools over HTTP: what there is, a run by hand, and an audit of all runs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery

from gateway.errors import BadRequest, Forbidden, ResourceNotFound
from gateway.management.context import AtDoor, Cursor, PageLimit, window
from gateway.management.schemas import Json, Page, describe_body, place_of
from gateway.management.tool_list import list_tools
from gateway.state import request_id
from gateway.tools.checked_call import CallChecker, RefusedCall
from gateway.tools.kind import ToolCaller
from gateway.tools.tool_runs import ToolRuns
from memory import ToolCall, iso, parse_time
from memory.management.tool_runs import CallFilter, RunOrigin, SingleRun, list_calls
from memory.session.toolbox import text_of_result

STATUSES = "ok error refused timeout cancelled unknown replayed".split()  # noqa: SIM905


class ToolRunPost(msgspec.Struct, forbid_unknown_fields=True):
    """user: for whom it runs."""

    arguments: dict[str, Any] = {}
    user: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class ToolRunResult(msgspec.Struct):
    status: str
    result: str
    ms: float
    object: str = "tool.run"


class ToolCallRecord(msgspec.Struct, kw_only=True):
    """One call. arguments, result: without secrets."""

    id: str
    name: str
    entry: str
    version: int
    effect: str
    user: str | None
    agent: str | None
    arguments: str
    state: str
    status: str
    result: str | None
    origin: str
    rule: str
    approval: str
    ms: float
    cost_usd: float
    actor: str
    request_id: str
    created_at: str
    object: str = "tool.call"


class NoCosts:
    """Counts nothing: a run by hand is nobody's request."""

    def came(self) -> None:
        """Nothing."""

    def began(self) -> None:
        """Nothing."""

    def ended(self, entry: str, status: str, seconds: float | None) -> None:
        """Nothing."""

    def count_refusal(self, entry: str) -> None:
        """Nothing."""

    async def reserve(self, cost_usd: float) -> bool:
        return True

    def book(self, cost_usd: float) -> None:
        """Nothing."""


@get("/tools", summary="The operator's tools that this key may grant or use")
async def tools(caller: AtDoor) -> Page[Json]:
    return Page(list_tools(caller), None)


@get("/tools/{name:str}", summary="One of the operator's tools")
async def tool(caller: AtDoor, name: FromPath[str]) -> Json:
    shown_tool = next((t for t in list_tools(caller) if t["name"] == name), None)
    if shown_tool is None:
        raise _no_tool(name)
    return shown_tool


@post(
    "/tools/{name:str}/run",
    status_code=200,
    summary="Run a tool by hand: no turn, no rules; it stands in the audit",
    operation_class=describe_body(ToolRunPost),
)
async def run_tool(caller: AtDoor, name: FromPath[str]) -> ToolRunResult:
    if not caller.runs_it:
        raise Forbidden(
            "Only an admin key may run a tool by hand. Send one as `Authorization: Bearer ...`."
        )
    run_post = await caller.parse_body(ToolRunPost)
    registry = caller.gateway.toolbox
    tenant = caller.tenant
    registered = registry.catalog(tenant).tools.get(name)
    if registered is None:
        raise _no_tool(name)
    ident = request_id(caller.request.scope)
    call = ToolCall("", name, msgspec.json.encode(run_post.arguments).decode())
    try:
        admitted = CallChecker({name: registered}, 1).check(call, 0)
    except RefusedCall as e:
        return ToolRunResult("refused", str(e), 0.0)
    scope = None
    if run_post.user:
        scope = caller.memory.scope(tenant, run_post.user, "default")
    origin = RunOrigin(tenant, scope, ident, caller.principal.key)
    until = asyncio.get_running_loop().time() + registered.timeout
    tool_caller = ToolCaller(tenant, run_post.user or None, "default", ident)
    runs = ToolRuns(registry, {name: registered}, tool_caller, until, NoCosts())
    record = await caller.read(runs.run(admitted, SingleRun(caller.memory, origin), ()))
    return ToolRunResult(record.status, text_of_result(record.result), record.milliseconds)


def call_filter(
    user: FromQuery[str] = "",
    tool: FromQuery[str] = "",
    status: FromQuery[str] = "",
    since: FromQuery[str] = "",
    cursor: Cursor = None,
) -> CallFilter:
    """Return which calls are wanted. Raises BadRequest."""
    if status and status not in STATUSES:
        raise BadRequest(
            f"`status` is {status[:40]!r}: use one of {', '.join(STATUSES)}.", param="status"
        )
    return CallFilter(user, tool, status, _time_of(since), place_of(cursor, int))


@get("/tool-calls", summary="Calls of the operator's tools, newest first")
async def list_tool_calls(
    caller: AtDoor, called: NamedDependency[CallFilter], limit: PageLimit = 50
) -> Page[ToolCallRecord]:
    """List calls. since: an ISO time."""
    rows = await caller.read(list_calls(caller.memory, caller.reach, called, limit + 1))
    page_rows, following = window(rows, limit, lambda row: row["id"])
    return Page([_describe_call(row) for row in page_rows], following)


def _time_of(text: str) -> float:
    if not text:
        return 0.0
    try:
        moment = parse_time(text)
    except ValueError as e:
        raise BadRequest(f"`since` is {text[:40]!r}: give an ISO time.", param="since") from e
    return float(moment)


def _describe_call(row: dict[str, Any]) -> ToolCallRecord:
    short_members = (
        "name",
        "entry",
        "version",
        "effect",
        "user",
        "agent",
        "arguments",
        "state",
        "status",
    )
    long_members = ("result", "origin", "rule", "approval", "cost_usd", "actor", "request_id")
    return ToolCallRecord(
        id=str(row["id"]),
        ms=row["milliseconds"],
        created_at=iso(row["created_at"]),
        **{name: row[name] for name in (*short_members, *long_members)},
    )


def _no_tool(name: str) -> ResourceNotFound:
    return ResourceNotFound(f"There is no tool {name[:64]!r} here.", code="tool_not_found")


ROUTES = (tools, tool, run_tool, list_tool_calls)
