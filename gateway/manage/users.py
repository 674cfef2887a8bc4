"""Users over HTTP: listed, exported, imported, erased."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody
from litestar.response import Stream

from gateway.errors import BadRequest, Conflict
from gateway.manage.door import EVERY, AtDesk, AtDoor, Cursor, PageLimit, told, window
from gateway.manage.shapes import Erased, Imported, Page, User, place_of
from memory import portable
from memory.erasing import erase
from memory.manifest import Manifest, Rules
from memory.search import iso
from memory.stores.sql import owners
from memory.stores.sql.export import export
from memory.stores.sql.importing import import_into
from memory.stores.sql.pieces import Glance

NDJSON = "application/x-ndjson"


@get("/users", summary="The users this key may see")
async def users(caller: AtDoor, cursor: Cursor = None, limit: PageLimit = 50) -> Page[User]:
    after = place_of(cursor, tuple[str, str])
    reach = owners.Reach(None if caller.tenant == EVERY else caller.tenant, caller.principal.only)
    found = await caller.read(lambda conn: owners.users(conn, reach, after, limit + 1))
    mine, rest = window(found, limit, lambda u: (u["tenant"], u["id"]))
    return Page(
        [
            User(
                **{
                    **u,
                    "created_at": iso(u["created_at"]),
                    "last_active_at": iso(u["last_active_at"]),
                }
            )
            for u in mine
        ],
        rest,
    )


@delete(
    "/users/{user:str}", status_code=200, summary="Erase everything of a user; answers a receipt"
)
async def erase_user(desk: AtDesk) -> Erased:
    if desk.agent is not None:
        raise BadRequest(
            "A user is erased whole, with all agents. Leave out ?agent=.", param="agent"
        )
    gateway, who = desk.caller.gateway, (desk.scope.tenant, desk.user)
    with told():
        counts = await erase(
            gateway.memory.db, desk.scope.secret, who, lambda: gateway.usage.forget(*who)
        )
    gateway.worker.wake()
    await asyncio.to_thread(gateway.memory.spill.forget, *who)
    return Erased(desk.user, counts)


@get(
    "/users/{user:str}/export",
    media_type=NDJSON,
    summary="Everything of a user, a JSON object a line",
)
async def export_user(desk: AtDesk) -> Stream:
    lines = export(desk.caller.gateway.memory.db, desk.scope.tenant, desk.user, desk.agent)
    with told():  # the store is asked before the status leaves
        first = [await anext(lines), await anext(lines)]
    return Stream(_written(first, lines), media_type=NDJSON)


async def _written(
    first: list[portable.Line], rest: AsyncIterator[portable.Line]
) -> AsyncIterator[bytes]:
    glance = Glance()
    for line in first:
        yield portable.written(line)
    async for line in rest:
        yield portable.written(line)
        await glance.rest()


class TakingLines(Operation):
    """An operation whose body is NDJSON."""

    def __init__(self, **members: Any) -> None:
        super().__init__(
            **{**members, "request_body": RequestBody({NDJSON: OpenAPIMediaType()}, required=True)}
        )


class Importing:
    """Who is importing: one import of a tenant at a time. More would finish no sooner, and each holds its
    whole body in memory."""

    def __init__(self) -> None:
        self._tenants: set[str] = set()

    @contextlib.contextmanager
    def of(self, tenant: str) -> Iterator[None]:
        """Raises Conflict while another import of the tenant is under way."""
        if tenant in self._tenants:
            raise Conflict(
                f"An import of the tenant {tenant[:64]!r} is under way, and there is one at a time. Send this one again once "
                "that has been answered.",
                code="import_running",
                headers=[(b"retry-after", b"5")],
            )
        self._tenants.add(tenant)
        try:
            yield
        finally:
            self._tenants.discard(tenant)


@post(
    "/users/{user:str}/import",
    status_code=200,
    summary="Read an export back in; what is there is not doubled",
    operation_class=TakingLines,
)
async def import_user(desk: AtDesk, importing: NamedDependency[Importing]) -> Imported:
    caller, hand = desk.caller, desk.hand("import")
    with importing.of(desk.scope.tenant):
        manifest = Manifest(await caller.much(), Rules(hand.defaults, desk.agent, caller.rows))
        with told():
            await manifest.examine()
            receipt = await import_into(caller.gateway.memory.db, hand, manifest)
    caller.gateway.worker.wake()
    return Imported(receipt.imported, receipt.skipped)


ROUTES = (users, erase_user, export_user, import_user)
