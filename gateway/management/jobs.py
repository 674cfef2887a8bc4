"""Background jobs over HTTP: those that gave up, and a retry.

A key sees the jobs of the users it may see; an admin key sees all.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import FromPath, QueryParameter

from gateway.errors import BadRequest, ResourceNotFound
from gateway.management.context import AtDoor, Cursor, PageLimit, window
from gateway.management.schemas import Page, place_of
from memory import VisibleScopes, iso, management
from memory.management.jobs import STATES

State = Annotated[str, QueryParameter(name="state", description=f"one of {', '.join(STATES)}")]


class Job(msgspec.Struct, kw_only=True):
    """error: kind of failure of its last attempt.

    next_at: time of the next attempt, or of the last one. tenant is null for the gateway's own
    jobs.
    """

    id: str
    kind: str
    state: str
    attempts: int
    error: str | None
    tenant: str | None
    user: str | None
    created_at: str
    next_at: str
    object: str = "job"


class Retried(msgspec.Struct):
    id: str
    state: str = "ready"
    object: str = "job.retried"


def _reach(caller: AtDoor) -> VisibleScopes:
    """Return whose jobs are visible.

    Without keys the caller operates the gateway, and also sees its own jobs, which belong to
    nobody.
    """
    settings = caller.gateway.settings
    if settings.is_keyless:
        return VisibleScopes(None)
    return caller.reach


@get("/jobs", summary="Background jobs, newest first: those that gave up, or in another state")
async def jobs(
    caller: AtDoor, which: State = "dead", cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Job]:
    if which not in STATES:
        raise BadRequest(
            f"`state` is {which[:40]!r}: use one of {', '.join(STATES)}.", param="state"
        )
    before = place_of(cursor, int)
    reach = _reach(caller)
    page_jobs, next_cursor = window(
        await caller.read(
            management.jobs.list_jobs(caller.memory, reach, which, before, limit + 1)
        ),
        limit,
        lambda j: j["id"],
    )
    return Page(
        [
            Job(
                **{
                    **{k: v for k, v in j.items() if k != "run_at"},
                    "id": str(j["id"]),
                    "created_at": iso(j["created_at"]),
                    "next_at": iso(j["run_at"]),
                }
            )
            for j in page_jobs
        ],
        next_cursor,
    )


@post("/jobs/{ident:str}/retry", status_code=200, summary="Retry a job that gave up")
async def retry_job(caller: AtDoor, ident: FromPath[str]) -> Retried:
    if not ident.isascii() or not ident.isdigit() or len(ident) > 18:
        raise ResourceNotFound(f"There is no dead job {ident[:40]!r} here.")
    reach = _reach(caller)
    await caller.write(management.jobs.retry_job(caller.memory, reach, int(ident)))
    return Retried(ident)


ROUTES = (jobs, retry_job)
