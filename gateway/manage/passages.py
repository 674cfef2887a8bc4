"""Archival memory over HTTP: passages, listed, made, searched, forgotten."""

from __future__ import annotations

from typing import Any

from litestar import delete, get, post
from litestar.params import FromPath, FromQuery
from sqlalchemy import Connection

from gateway.errors import BadRequest, NotFound
from gateway.manage.door import AtDesk, Cursor, PageLimit, told, window
from gateway.manage.searching import Sought
from gateway.manage.shapes import (
    Gone,
    Page,
    Passage,
    PassageHit,
    PassagePost,
    place_of,
    taking,
    time_of,
)
from memory import outside
from memory.search import iso
from memory.stores.sql import facts as fact_rows
from memory.stores.sql import owners
from memory.stores.sql import passages as passage_rows

TAGS = 32  # that one search may ask for


def _shown(found: dict[str, Any]) -> Passage:
    gone = found["forgotten_at"]
    return Passage(
        found["id"],
        found["content"],
        found["tags"],
        found["type"],
        found["importance"],
        found["actor"],
        iso(found["created_at"]),
        found["source"],
        iso(gone) if gone is not None else None,
        found["forgotten_by"],
        found["superseded_by"],
    )


@get("/users/{user:str}/passages", summary="A user's passages, newest first")
async def passages(
    desk: AtDesk, cursor: Cursor = None, limit: PageLimit = 50, forgotten: FromQuery[bool] = False
) -> Page[Passage]:
    """forgotten: those that background work set aside; `restore` brings one back."""
    before = place_of(cursor, int)

    def work(conn: Connection) -> list[dict[str, Any]]:
        scope_id = owners.find(conn, desk.scope)
        page = fact_rows.aside if forgotten else passage_rows.page
        return [] if scope_id is None else page(conn, scope_id, before, limit + 1)

    mine, rest = window(await desk.read(work), limit, lambda p: p["key"])
    return Page([_shown(p) for p in mine], rest)


@post(
    "/users/{user:str}/passages",
    status_code=200,
    summary="Keep a text; answers the passages it became",
    operation_class=taking(PassagePost),
)
async def make_passage(desk: AtDesk) -> Page[Passage]:
    new = await desk.asked(PassagePost)
    hand = desk.hand()
    with told():
        passage_rows.check(new.content, new.type, new.importance)
    insert = passage_rows.Insert(
        new.content,
        new.tags,
        new.type,
        new.importance,
        hand.source.actor,
        created_at=time_of(new.created_at, "created_at"),
    )
    return Page(
        [_shown(p) for p in await desk.write(lambda conn: outside.keep(conn, hand, insert))]
    )


@get(
    "/users/{user:str}/passages/search",
    summary="Search a user's passages; without words, the newest",
)
async def search_passages(
    desk: AtDesk, search: Sought, tags: FromQuery[list[str] | None] = None
) -> Page[PassageHit]:
    all_tags = [t.strip() for some in tags or () for t in some.split(",") if t.strip()]
    if len(all_tags) > TAGS:
        raise BadRequest(
            f"`tags` has {len(all_tags)} of them; at most {TAGS} are allowed.", param="tags"
        )
    scope_id = await desk.scope_id()
    if scope_id is None:
        return Page([])
    with told():
        found, rest = search.page(
            await desk.caller.gateway.memory.retrieval.passages(
                scope_id, passage_rows.Filter(search.query, all_tags)
            )
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
            )
            for h in found
        ],
        rest,
    )


@get("/users/{user:str}/passages/{ident:str}", summary="One passage")
async def passage(desk: AtDesk, ident: FromPath[str]) -> Passage:
    def work(conn: Connection) -> dict[str, Any] | None:
        scope_id = owners.find(conn, desk.scope)
        return None if scope_id is None else passage_rows.get(conn, [scope_id], ident)

    found = await desk.read(work)
    if found is None:
        raise NotFound(f"There is no passage {ident[:80]!r} here.")
    return _shown(found)


@post(
    "/users/{user:str}/passages/{ident:str}/restore",
    status_code=200,
    summary="Bring a passage back that background work set aside",
)
async def restore_passage(desk: AtDesk, ident: FromPath[str]) -> Passage:
    hand = desk.hand()
    return _shown(await desk.write(lambda conn: outside.restore(conn, hand, ident)))


@post(
    "/users/{user:str}/passages/{ident:str}/forget",
    status_code=200,
    summary="Set a passage aside: out of every search, until it is restored",
)
async def set_passage_aside(desk: AtDesk, ident: FromPath[str]) -> Gone:
    hand = desk.hand()
    await desk.write(lambda conn: outside.set_aside(conn, hand, ident))
    return Gone(ident, "passage")


@delete("/users/{user:str}/passages/{ident:str}", status_code=200, summary="Forget one passage")
async def delete_passage(desk: AtDesk, ident: FromPath[str]) -> Gone:
    hand = desk.hand()
    await desk.write(lambda conn: outside.forget(conn, hand, ident))
    return Gone(ident, "passage")


ROUTES = (
    passages,
    make_passage,
    search_passages,
    passage,
    set_passage_aside,
    restore_passage,
    delete_passage,
)
