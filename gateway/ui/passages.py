"""A user's archival memory: passages with search, tags, provenance; set aside and restored."""

from __future__ import annotations

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest
from gateway.management import passages as api
from gateway.management.query_params import SearchParams
from gateway.management.schemas import PassagePost, place_of
from gateway.ui.people import summarise_user
from gateway.ui.texts import link
from gateway.ui.visitor import AboutUser, Subject, go_to
from memory import SearchQuery

PAGE = 25
VERBS = {
    "forget": api.set_passage_aside,
    "restore": api.restore_passage,
    "delete": api.delete_passage,
}


@get("/user/passages")
async def passages_page(
    subject: AboutUser,
    q: FromQuery[str] = "",
    tags: FromQuery[str] = "",
    forgotten: FromQuery[bool] = False,
    cursor: FromQuery[str | None] = None,
) -> Template:
    desk, cursor = subject.desk, cursor or None
    if q or tags:
        offset = max(place_of(cursor, int) or 0, 0)
        search = SearchParams(SearchQuery(q, (), None, None, PAGE + 1, offset))
        found = await api.search_passages.fn(desk, search, [tags] if tags else None)
    else:
        found = await api.passages.fn(desk, cursor, PAGE, forgotten)
    return subject.page(
        "passages.html",
        passages=found.data,
        rest=found.next_cursor,
        q=q,
        tags=tags,
        forgotten=forgotten,
        **await summarise_user(subject),
    )


@get("/user/passage")
async def passage_page(subject: AboutUser, id: FromQuery[str]) -> Template:
    found = await api.passage.fn(subject.desk, id)
    return subject.page("passage.html", passage=found, **await summarise_user(subject))


@post("/user/passages", status_code=200)
async def add_passage(subject: AboutUser) -> Redirect:
    visitor = subject.visitor
    tags = [t.strip() for t in visitor.field("tags").split(",") if t.strip()]
    await api.add_passage(subject.desk, PassagePost(visitor.field("content"), tags))
    return _back(subject)


@post("/user/passage", status_code=200)
async def change_passage(subject: AboutUser) -> Redirect:
    """Set a passage aside, restore it, or delete it."""
    visitor = subject.visitor
    verb = visitor.field("verb")
    if verb not in VERBS:
        raise BadRequest(f"`verb` is {verb[:40]!r}: use one of {', '.join(VERBS)}.", param="verb")
    await VERBS[verb].fn(subject.desk, visitor.field("id"))
    return _back(subject, forgotten="true" if verb == "restore" else "")


def _back(subject: Subject, **more: str) -> Redirect:
    return go_to(link("/user/passages", **subject.where, **more))


ROUTES = (passages_page, passage_page, add_passage, change_passage)
