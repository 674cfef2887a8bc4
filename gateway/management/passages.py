"""Archival memory over HTTP: list, add, search, set aside and delete passages."""

from __future__ import annotations

import time
from typing import Any, Literal

from litestar import delete, get, patch, post
from litestar.params import FromPath, FromQuery
from msgspec import UNSET

from gateway.errors import BadRequest
from gateway.management.context import (
    AtDesk,
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

TAGS = 32  # most tags of a search


def to_schema(desk: UserContext, found: dict[str, Any]) -> Passage:
    """Return a stored passage as the API has it."""
    gone, fades_at = found["forgotten_at"], found["fades_at"]
    if gone is not None or desk.caller.gateway.settings.memory.cleanup == "off":
        fades_at = None
    return Passage(
        found["id"],
        found["content"],
        found["tags"],
        found["type"],
        found["importance"],
        found["actor"],
        iso(found["created_at"]),
        found["source"],
        found["quote"],
        found["speaker"],
        iso(gone) if gone is not None else None,
        found["forgotten_by"],
        found["superseded_by"],
        iso(fades_at) if fades_at is not None else None,
        fades_at is not None and time.time() > (found["unused_since"] + fades_at) / 2,
        found["written_by"] or UNSET,
    )


@get("/users/{user:str}/passages", summary="A user's passages, newest first")
async def passages(
    desk: AtDesk, cursor: Cursor = None, limit: PageLimit = 50, forgotten: FromQuery[bool] = False
) -> Page[Passage]:
    """List passages.

    forgotten: list those that background jobs set aside; `restore` brings one back.
    """
    return await list_page(desk, cursor, limit, forgotten=forgotten)


async def list_page(
    desk: UserContext, cursor: str | None, limit: int, *, forgotten: bool
) -> Page[Passage]:
    """Return a page of passages, newest first. Raises BadRequest, Unavailable."""
    found = await desk.read(
        management.passages.list_passages(
            desk.memory, desk.scope, place_of(cursor, int), limit + 1, forgotten=forgotten
        )
    )
    mine, rest = window(found, limit, lambda p: p["key"])
    return Page([to_schema(desk, p) for p in mine], rest)


@post(
    "/users/{user:str}/passages",
    status_code=200,
    summary="Add a text; returns the passages it was split into",
    operation_class=describe_body(PassagePost),
)
async def make_passage(desk: AtDesk) -> Page[Passage]:
    return await add_passage(desk, await desk.asked(PassagePost))


async def add_passage(
    desk: UserContext, new: PassagePost, writer: str | None = None
) -> Page[Passage]:
    """Store a text; return the passages it was split into. Raises BadRequest, Unavailable.

    writer: the user in whose name it is stored, where others read it too.
    """
    hand = desk.hand()
    with translate_errors():
        management.passages.check_passage(new.content, new.type, new.importance)
        desk.memory.policy.screen.check("content", new.content)
    insert = NewPassage(
        new.content,
        new.tags,
        new.type,
        new.importance,
        hand.source.actor,
        created_at=time_of(new.created_at, "created_at"),
        written_by=writer,
    )
    added = await desk.write(management.passages.add_passage(desk.memory, hand, insert))
    return Page([to_schema(desk, p) for p in added])


@get(
    "/users/{user:str}/passages/search",
    summary="Search a user's passages; without words, the newest ones",
)
async def search_passages(
    desk: AtDesk,
    search: Sought,
    tags: FromQuery[list[str] | None] = None,
    layers: FromQuery[Literal["own", "all"]] = "own",
) -> Page[PassageHit]:
    """Search passages.

    layers: `all` searches what the user's teams, project and tenant hold too.
    """
    return await search_page(desk, search, tags, every=layers == "all")


async def search_page(
    desk: UserContext, search: SearchParams, tags: list[str] | None, *, every: bool = False
) -> Page[PassageHit]:
    """Return a page of hits, best first. Raises BadRequest, Unavailable."""
    all_tags = [t.strip() for some in tags or () for t in some.split(",") if t.strip()]
    if len(all_tags) > TAGS:
        raise BadRequest(
            f"`tags` has {len(all_tags)} tags; at most {TAGS} are allowed.", param="tags"
        )
    wanted = PassageFilter(search.query, all_tags)
    find = management.passages.search_all if every else management.passages.search_passages
    found, rest = search.page(await desk.read(find(desk.memory, desk.scope, wanted)))
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
            for h in found
        ],
        rest,
    )


@get("/users/{user:str}/passages/{ident:str}", summary="One passage")
async def passage(desk: AtDesk, ident: FromPath[str]) -> Passage:
    return to_schema(
        desk, await desk.read(management.passages.get_passage(desk.memory, desk.scope, ident))
    )


@patch(
    "/users/{user:str}/passages/{ident:str}",
    status_code=200,
    summary="Change a passage; its older wording is set aside",
    operation_class=describe_body(PassagePatch),
)
async def edit_passage(desk: AtDesk, ident: FromPath[str]) -> Passage:
    return await change_passage(desk, ident, await desk.asked(PassagePatch))


async def change_passage(desk: UserContext, ident: str, wanted: PassagePatch) -> Passage:
    """Change a passage. Raises BadRequest, ResourceNotFound, Unavailable."""
    hand = desk.hand()
    change = PassageChange(wanted.content, wanted.tags, wanted.type, wanted.importance)
    if wanted.content is not None:
        with translate_errors():
            desk.memory.policy.screen.check("content", wanted.content)
    changed = management.passages.edit_passage(desk.memory, hand, ident, change)
    return to_schema(desk, await desk.write(changed))


@post(
    "/users/{user:str}/passages/{ident:str}/undo",
    status_code=200,
    summary="Undo the newest change of a passage",
)
async def undo_passage(desk: AtDesk, ident: FromPath[str]) -> Passage:
    undone = management.passages.undo_passage(desk.memory, desk.hand(), ident)
    return to_schema(desk, await desk.write(undone))


@post(
    "/users/{user:str}/undo",
    status_code=200,
    summary="Undo the newest change of a user's memory, of a block or a passage",
)
async def undo_newest(desk: AtDesk) -> Undone:
    found = await desk.write(management.passages.undo_newest(desk.memory, desk.hand()))
    return Undone(*found)


@post(
    "/users/{user:str}/passages/{ident:str}/restore",
    status_code=200,
    summary="Restore a passage that was set aside",
)
async def restore_passage(desk: AtDesk, ident: FromPath[str]) -> Passage:
    return to_schema(
        desk, await desk.write(management.passages.restore_passage(desk.memory, desk.hand(), ident))
    )


@post(
    "/users/{user:str}/passages/{ident:str}/forget",
    status_code=200,
    summary="Set a passage aside: no search finds it until it is restored",
)
async def set_passage_aside(desk: AtDesk, ident: FromPath[str]) -> Gone:
    await desk.write(management.passages.set_passage_aside(desk.memory, desk.hand(), ident))
    return Gone(ident, "passage")


@delete("/users/{user:str}/passages/{ident:str}", status_code=200, summary="Delete one passage")
async def delete_passage(desk: AtDesk, ident: FromPath[str]) -> Gone:
    await desk.write(management.passages.delete_passage(desk.memory, desk.hand(), ident))
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
