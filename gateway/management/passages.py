"""Archival memory over HTTP: list, add, search, set aside and delete passages."""

from __future__ import annotations

import time
from typing import Any, Literal

from litestar import delete, get, patch, post
from litestar.params import FromPath, FromQuery
from msgspec import UNSET

from gateway.errors import BadRequest
from gateway.management.context import (
    AtUser,
    Cursor,
    PageLimit,
    UserContext,
    translate_errors,
    window,
)
from gateway.management.query_params import SearchParams, Sought
from gateway.management.schemas import (
    Gone,
    Page,
    Passage,
    PassageHit,
    PassagePatch,
    PassagePost,
    Undone,
    describe_body,
    place_of,
    time_of,
)
from memory import NewPassage, PassageChange, PassageFilter, iso, management

# Most tags of a search.
TAGS = 32


def to_schema(context: UserContext, row: dict[str, Any]) -> Passage:
    """Return a stored passage as the API has it."""
    forgotten_at = row["forgotten_at"]
    fades_at = row["fades_at"]
    if forgotten_at is not None or context.caller.gateway.settings.memory.cleanup == "off":
        fades_at = None
    return Passage(
        row["id"],
        row["content"],
        row["tags"],
        row["type"],
        row["importance"],
        row["actor"],
        iso(row["created_at"]),
        row["source"],
        row["quote"],
        row["speaker"],
        iso(forgotten_at) if forgotten_at is not None else None,
        row["forgotten_by"],
        row["superseded_by"],
        iso(fades_at) if fades_at is not None else None,
        fades_at is not None and time.time() > (row["unused_since"] + fades_at) / 2,
        row["written_by"] or UNSET,
    )


@get("/users/{user:str}/passages", summary="A user's passages, newest first")
async def passages(
    context: AtUser,
    cursor: Cursor = None,
    limit: PageLimit = 50,
    forgotten: FromQuery[bool] = False,
) -> Page[Passage]:
    """List passages.

    forgotten: list those that background jobs set aside; `restore` brings one back.
    """
    return await list_page(context, cursor, limit, forgotten=forgotten)


async def list_page(
    context: UserContext, cursor: str | None, limit: int, *, forgotten: bool
) -> Page[Passage]:
    """Return a page of passages, newest first. Raises BadRequest, Unavailable."""
    rows = await context.read(
        management.passages.list_passages(
            context.memory, context.scope, place_of(cursor, int), limit + 1, forgotten=forgotten
        )
    )
    page_rows, next_cursor = window(rows, limit, lambda p: p["key"])
    return Page([to_schema(context, p) for p in page_rows], next_cursor)


@post(
    "/users/{user:str}/passages",
    status_code=200,
    summary="Add a text; returns the passages it was split into",
    operation_class=describe_body(PassagePost),
)
async def make_passage(context: AtUser) -> Page[Passage]:
    return await add_passage(context, await context.asked(PassagePost))


async def add_passage(
    context: UserContext, passage_post: PassagePost, writer: str | None = None
) -> Page[Passage]:
    """Store a text; return the passages it was split into. Raises BadRequest, Unavailable.

    writer: the user in whose name it is stored, where others read it too.
    """
    management_actor = context.hand()
    with translate_errors():
        management.passages.check_passage(
            passage_post.content, passage_post.type, passage_post.importance
        )
        context.memory.policy.screen.check("content", passage_post.content)
    insert = NewPassage(
        passage_post.content,
        passage_post.tags,
        passage_post.type,
        passage_post.importance,
        management_actor.source.actor,
        created_at=time_of(passage_post.created_at, "created_at"),
        written_by=writer,
    )
    added_rows = await context.write(
        management.passages.add_passage(context.memory, management_actor, insert)
    )
    return Page([to_schema(context, p) for p in added_rows])


@get(
    "/users/{user:str}/passages/search",
    summary="Search a user's passages; without words, the newest ones",
)
async def search_passages(
    context: AtUser,
    search: Sought,
    tags: FromQuery[list[str] | None] = None,
    layers: FromQuery[Literal["own", "all"]] = "own",
) -> Page[PassageHit]:
    """Search passages.

    layers: `all` searches what the user's teams, project and tenant hold too.
    """
    return await search_page(context, search, tags, every=layers == "all")


async def search_page(
    context: UserContext, search: SearchParams, tags: list[str] | None, *, every: bool = False
) -> Page[PassageHit]:
    """Return a page of hits, best first. Raises BadRequest, Unavailable."""
    all_tags = [t.strip() for tag_list in tags or () for t in tag_list.split(",") if t.strip()]
    if len(all_tags) > TAGS:
        raise BadRequest(
            f"`tags` has {len(all_tags)} tags; at most {TAGS} are allowed.", param="tags"
        )
    passage_filter = PassageFilter(search.query, all_tags)
    find = management.passages.search_all if every else management.passages.search_passages
    hits, next_cursor = search.page(
        await context.read(find(context.memory, context.scope, passage_filter))
    )
    return Page(
        [
            PassageHit(
                h["id"],
                h["content"],
                h["score"],
                iso(h["created_at"]),
                h["why"],
                h["tags"],
                h["type"],
                h.get("layer", UNSET),
            )
            for h in hits
        ],
        next_cursor,
    )


@get("/users/{user:str}/passages/{ident:str}", summary="One passage")
async def passage(context: AtUser, ident: FromPath[str]) -> Passage:
    return to_schema(
        context,
        await context.read(management.passages.get_passage(context.memory, context.scope, ident)),
    )


@patch(
    "/users/{user:str}/passages/{ident:str}",
    status_code=200,
    summary="Change a passage; its older wording is set aside",
    operation_class=describe_body(PassagePatch),
)
async def edit_passage(context: AtUser, ident: FromPath[str]) -> Passage:
    return await change_passage(context, ident, await context.asked(PassagePatch))


async def change_passage(context: UserContext, ident: str, passage_patch: PassagePatch) -> Passage:
    """Change a passage. Raises BadRequest, ResourceNotFound, Unavailable."""
    management_actor = context.hand()
    change = PassageChange(
        passage_patch.content, passage_patch.tags, passage_patch.type, passage_patch.importance
    )
    if passage_patch.content is not None:
        with translate_errors():
            context.memory.policy.screen.check("content", passage_patch.content)
    edit_work = management.passages.edit_passage(context.memory, management_actor, ident, change)
    return to_schema(context, await context.write(edit_work))


@post(
    "/users/{user:str}/passages/{ident:str}/undo",
    status_code=200,
    summary="Undo the newest change of a passage",
)
async def undo_passage(context: AtUser, ident: FromPath[str]) -> Passage:
    undone = management.passages.undo_passage(context.memory, context.hand(), ident)
    return to_schema(context, await context.write(undone))


@post(
    "/users/{user:str}/undo",
    status_code=200,
    summary="Undo the newest change of a user's memory, of a block or a passage",
)
async def undo_newest(context: AtUser) -> Undone:
    undone_edit = await context.write(
        management.passages.undo_newest(context.memory, context.hand())
    )
    return Undone(*undone_edit)


@post(
    "/users/{user:str}/passages/{ident:str}/restore",
    status_code=200,
    summary="Restore a passage that was set aside",
)
async def restore_passage(context: AtUser, ident: FromPath[str]) -> Passage:
    return to_schema(
        context,
        await context.write(
            management.passages.restore_passage(context.memory, context.hand(), ident)
        ),
    )


@post(
    "/users/{user:str}/passages/{ident:str}/forget",
    status_code=200,
    summary="Set a passage aside: no search finds it until it is restored",
)
async def set_passage_aside(context: AtUser, ident: FromPath[str]) -> Gone:
    await context.write(
        management.passages.set_passage_aside(context.memory, context.hand(), ident)
    )
    return Gone(ident, "passage")


@delete("/users/{user:str}/passages/{ident:str}", status_code=200, summary="Delete one passage")
async def delete_passage(context: AtUser, ident: FromPath[str]) -> Gone:
    await context.write(management.passages.delete_passage(context.memory, context.hand(), ident))
    return Gone(ident, "passage")


ROUTES = (
    passages,
    make_passage,
    search_passages,
    passage,
    edit_passage,
    undo_passage,
    undo_newest,
    set_passage_aside,
    restore_passage,
    delete_passage,
)
