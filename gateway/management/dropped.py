"""What filters dropped of what a user said, over HTTP: listed with reasons, and kept after all."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import FromPath, QueryParameter

from gateway.errors import BadRequest, ResourceNotFound
from gateway.management.context import AtUser, Cursor, PageLimit, UserContext, window
from gateway.management.passages import to_schema
from gateway.management.query_params import Within
from gateway.management.schemas import Page, Passage, place_of
from memory import iso, management

PREFIX = "drop_"
MAX_KEY_DIGITS = 19
ReasonName = Annotated[
    str | None,
    QueryParameter(name="reason", description=f"one of {', '.join(management.dropped.REASONS)}"),
]


class Dropped(msgspec.Struct, kw_only=True):
    """Something that was not kept. stage: `message`, which no model was shown, or `fact`.

    text: "" for a secret. message: the message that it is, or was taken from. job: its record.
    """

    id: str
    stage: str
    reason: str
    text: str
    message: str | None
    job: str
    at: str
    object: str = "dropped"


class Withheld(msgspec.Struct):
    """A message that no model was shown, or only a part of it."""

    message: str | None
    reason: str


class DroppedFact(msgspec.Struct):
    """A fact that a model proposed. message: from which it was taken, if from any."""

    text: str
    reason: str
    message: str | None


class FinishedJob(msgspec.Struct, kw_only=True):
    """What a finished job did. read: turns. shown: messages. proposed, kept: facts."""

    id: str
    kind: str
    at: str
    read: int
    shown: int
    withheld: list[Withheld]
    proposed: int
    kept: int
    dropped: list[DroppedFact]
    object: str = "job.record"


@get("/users/{user:str}/dropped", summary="What filters did not keep, newest first, with reasons")
async def dropped(
    context: AtUser,
    span: Within,
    reason: ReasonName = None,
    cursor: Cursor = None,
    limit: PageLimit = 50,
) -> Page[Dropped]:
    if reason is not None and reason not in management.dropped.REASONS:
        raise BadRequest(
            f"`reason` is {reason[:40]!r}: use one of {', '.join(management.dropped.REASONS)}.",
            param="reason",
        )
    before = place_of(cursor, int)
    query = management.dropped.DropQuery(span.since, span.until, reason, before, limit + 1)
    drops = await context.read(management.dropped.list_drops(context.memory, context.scope, query))
    rows, following = window(drops, limit, lambda row: row["key"])
    return Page(
        [
            Dropped(
                id=f"{PREFIX}{row['key']}",
                stage=row["stage"],
                reason=row["reason"],
                text=row["text"],
                message=row["message"],
                job=str(row["job"]),
                at=iso(row["at"]),
            )
            for row in rows
        ],
        following,
    )


@post(
    "/users/{user:str}/dropped/{ident:str}/keep",
    status_code=200,
    summary="Keep what was dropped after all; returns the passages",
)
async def keep_dropped(context: AtUser, ident: FromPath[str]) -> Page[Passage]:
    return await keep_drop(context, ident)


async def keep_drop(context: UserContext, ident: str) -> Page[Passage]:
    """Store what was dropped as a passage. Raises ResourceNotFound."""
    number = ident.removeprefix(PREFIX)
    is_key = number.isascii() and number.isdigit() and len(number) <= MAX_KEY_DIGITS
    if not is_key or number == ident or int(number) >= 1 << 63:
        raise ResourceNotFound(f"There is no dropped entry {ident[:40]!r} here.")
    work = management.dropped.keep_drop(context.memory, context.hand(), int(number))
    return Page([to_schema(context, p) for p in await context.write(work)])


@get(
    "/users/{user:str}/jobs",
    summary="What finished background jobs read, kept and dropped, newest first",
)
async def job_records(
    context: AtUser, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[FinishedJob]:
    before = place_of(cursor, int)
    records = await context.read(
        management.dropped.list_records(context.memory, context.scope, before, limit + 1)
    )
    rows, following = window(records, limit, lambda row: row["key"])
    return Page(
        [
            FinishedJob(
                id=str(row["key"]),
                kind=row["kind"],
                at=iso(row["at"]),
                read=row["read"],
                shown=row["shown"],
                withheld=[Withheld(**x) for x in row["withheld"]],
                proposed=row["proposed"],
                kept=row["kept"],
                dropped=[DroppedFact(**x) for x in row["dropped"]],
            )
            for row in rows
        ],
        following,
    )


ROUTES = (dropped, keep_dropped, job_records)
