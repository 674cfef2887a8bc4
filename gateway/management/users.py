"""Users over HTTP: list, export, import and erase."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody
from litestar.params import FromQuery
from litestar.response import Stream

from gateway.auth.user_resolver import USER_CHARACTERS
from gateway.config.file_tools import kept_files
from gateway.errors import BadRequest
from gateway.limits.running_imports import RunningImports
from gateway.management.context import (
    EVERY,
    AtDoor,
    AtUser,
    Cursor,
    PageLimit,
    translate_errors,
    window,
)
from gateway.management.schemas import Erased, Imported, Page, User, place_of
from memory import (
    ImportLimits,
    ImportManifest,
    QuickRead,
    VisibleScopes,
    export_format,
    iso,
    management,
)

NDJSON = "application/x-ndjson"


@get("/users", summary="The users this key may see")
async def users(
    caller: AtDoor, q: FromQuery[str] = "", cursor: Cursor = None, limit: PageLimit = 50
) -> Page[User]:
    """List users. q: part of their names."""
    after = place_of(cursor, tuple[str, str])
    tenant = None if caller.tenant == EVERY else caller.tenant
    reach = VisibleScopes(tenant, caller.principal.only)
    rows = await caller.read(
        management.users.list_users(caller.memory, reach, after, limit + 1, q[:USER_CHARACTERS])
    )
    page_users, next_cursor = window(rows, limit, lambda u: (u["tenant"], u["id"]))
    return Page(
        [
            User(
                **{
                    **u,
                    "created_at": iso(u["created_at"]),
                    "last_active_at": iso(u["last_active_at"]),
                }
            )
            for u in page_users
        ],
        next_cursor,
    )


@delete(
    "/users/{user:str}", status_code=200, summary="Erase a user with all data; returns a receipt"
)
async def erase_user(
    context: AtUser, shared: FromQuery[Literal["remove", "keep"]] = "remove"
) -> Erased:
    """Erase a user.

    shared: `remove` the lines they wrote in shared blocks, or `keep` them without the name.
    """
    if context.agent is not None:
        raise BadRequest(
            "A user is always erased with all agents. Leave out ?agent= and ?project=.",
            param="agent",
        )
    receipt = await context.write(
        management.users.erase_user(
            context.memory, context.scope.tenant, context.user, keep_shared=shared == "keep"
        )
    )
    return Erased(context.user, receipt.counts, receipt.agents, receipt.shared)


@get(
    "/users/{user:str}/export",
    media_type=NDJSON,
    summary="Export a user's data, one JSON object per line",
)
async def export_user(context: AtUser) -> Stream:
    lines = management.users.export_user(
        context.memory, context.scope.tenant, context.user, context.agent
    )
    # Read before the status is sent, so that errors have their own.
    with translate_errors():
        head_lines = [await anext(lines), await anext(lines)]
    return Stream(_import_lines(head_lines, lines), media_type=NDJSON)


async def _import_lines(
    head_lines: list[export_format.ExportLine], later_lines: AsyncIterator[export_format.ExportLine]
) -> AsyncIterator[bytes]:
    glance = QuickRead()
    for line in head_lines:
        yield export_format.encode_line(line)
    async for line in later_lines:
        yield export_format.encode_line(line)
        await glance.rest()


class TakingLines(Operation):
    """An operation whose body is NDJSON."""

    def __init__(self, **members: Any) -> None:
        super().__init__(
            **{**members, "request_body": RequestBody({NDJSON: OpenAPIMediaType()}, required=True)}
        )


@post(
    "/users/{user:str}/import",
    status_code=200,
    summary="Import an export; existing rows are not duplicated",
    operation_class=TakingLines,
)
async def import_user(context: AtUser, importing: NamedDependency[RunningImports]) -> Imported:
    caller = context.caller
    management_actor = context.hand("import")
    with importing.of(context.scope.tenant):
        manifest = ImportManifest(
            await caller.much(),
            ImportLimits(
                management_actor.defaults,
                context.agent,
                caller.rows,
                context.memory.policy.screen,
                kept_files(caller.gateway.settings),
            ),
        )
        with translate_errors():
            await manifest.examine()
        receipt = await context.write(
            management.users.import_user(context.memory, management_actor, manifest)
        )
    return Imported(receipt.imported, receipt.skipped)


ROUTES = (users, erase_user, export_user, import_user)
