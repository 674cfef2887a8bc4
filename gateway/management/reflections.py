"""Reflections over HTTP: run one now, look at what was proposed, apply, discard or undo it."""

from __future__ import annotations

from typing import Literal

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath

from gateway.errors import RequestConflict
from gateway.http.paths import segment
from gateway.management.context import AtUser, Cursor, PageLimit, UserContext, window
from gateway.management.schemas import Page, describe_body, place_of
from memory import Conflict, iso, management
from memory.errors import MemoryChanged
from memory.management.reflections import StoredReflection


class ProposedChange(msgspec.Struct):
    """kind: block or passage. label, passage: which one; null for a passage that is new.

    before, after: null where there is none. version: of the block as the run saw it.
    """

    kind: str
    before: str | None
    after: str | None
    version: int
    label: str | None = None
    passage: str | None = None


class Reflection(msgspec.Struct):
    """status: pending, applied, discarded or conflict. decided_at, decided_by: null before."""

    id: str
    status: str
    changes: list[ProposedChange]
    created_at: str
    decided_at: str | None
    decided_by: str | None
    object: str = "reflection"


class QueuedReflection(msgspec.Struct):
    """A run that waits."""

    status: str = "queued"
    object: str = "reflection.run"


class ReflectionDecision(msgspec.Struct, forbid_unknown_fields=True):
    """apply: all of it, or nothing. undo: take back what was applied."""

    decision: Literal["apply", "discard", "undo"]


def describe_reflection(stored_reflection: StoredReflection) -> Reflection:
    decided_at = stored_reflection.decided_at
    changes = [
        ProposedChange(
            change.kind,
            change.before,
            change.after,
            change.version,
            change.label or None,
            change.passage or None,
        )
        for change in stored_reflection.changes
    ]
    return Reflection(
        stored_reflection.id,
        stored_reflection.status,
        changes,
        iso(stored_reflection.created_at),
        None if decided_at is None else iso(decided_at),
        stored_reflection.decided_by,
    )


def _weigh(reflection: Reflection) -> int:
    return sum(len(c.before or "") + len(c.after or "") for c in reflection.changes)


@get("/users/{user:str}/reflections", summary="What reflections proposed, newest first")
async def reflections(
    context: AtUser, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Reflection]:
    after = place_of(cursor, tuple[float, str])
    rows = await context.read(
        management.reflections.list_reflections(context.memory, context.scope, after, limit + 1)
    )
    page, next_cursor = window(
        rows,
        limit,
        lambda row: (row.created_at, row.id),
        lambda row: _weigh(describe_reflection(row)),
    )
    return Page([describe_reflection(row) for row in page], next_cursor)


@post(
    "/users/{user:str}/reflections",
    status_code=202,
    summary="Tidy a user's memory now, in the background",
)
async def run_reflection(context: AtUser) -> Response[QueuedReflection]:
    await context.write(management.reflections.run_now(context.memory, context.hand()))
    return Response(QueuedReflection(), status_code=202)


@post(
    "/users/{user:str}/reflections/{reflection:str}",
    status_code=200,
    summary="Apply, discard or undo what a reflection proposed",
    operation_class=describe_body(ReflectionDecision),
)
async def decide_reflection(context: AtUser, reflection: FromPath[str]) -> Reflection:
    new = await context.asked(ReflectionDecision)
    return describe_reflection(await decide(context, segment(reflection), new))


async def decide(context: UserContext, ident: str, new: ReflectionDecision) -> StoredReflection:
    """Decide on a proposal. Raises ResourceNotFound, RequestConflict."""
    return await context.write(_decide(context, ident, new))


async def _decide(context: UserContext, ident: str, new: ReflectionDecision) -> StoredReflection:
    work = management.reflections.decide(context.memory, context.hand(), ident, new.decision)
    try:
        return await work
    except MemoryChanged as e:
        raise RequestConflict(
            f"The memory changed since: {', '.join(e.names[:20])}. Run a reflection again.",
            code="memory_changed",
        ) from e
    except Conflict as e:
        message = str(e)
        raise RequestConflict(f"{message[:1].upper()}{message[1:]}.", code="already_decided") from e


ROUTES = (reflections, run_reflection, decide_reflection)
