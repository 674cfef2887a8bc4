"""A user's archival memory: passages with search, tags, provenance; set aside and restored."""

from __future__ import annotations

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest
from gateway.management import passages as api
from gateway.management.query_params import SearchParams
from gateway.management.schemas import PassagePatch, PassagePost, place_of
from gateway.ui.people import summarise_user
from gateway.ui.texts import link
from gateway.ui.visitor import AboutUser, Subject, go_to
from memory import SearchQuery, management

PAGE = 25
VERBS = {
    "forget": api.set_passage_aside,
    "restore": api.restore_passage,
    "delete": api.delete_passage,
    "undo": api.undo_passage,
}
EDIT = "edit"


@get("/user/passages")
async def passages_page(
    subject: AboutUser,
    q: FromQuery[str] = "",
    tags: FromQuery[str] = "",
    forgotten: FromQuery[bool] = False,
    cursor: FromQuery[str | None] = None,
) -> Template:
    context = subject.context
    cursor = cursor or None
    if q or tags:
        offset = max(place_of(cursor, int) or 0, 0)
        search = SearchParams(SearchQuery(q, (), None, None, PAGE + 1, offset))
        passages_list = await api.search_passages.fn(context, search, [tags] if tags else None)
    else:
        passages_list = await api.passages.fn(context, cursor, PAGE, forgotten)
    return subject.page(
        "passages.html",
        passages=passages_list.data,
        rest=passages_list.next_cursor,
        q=q,
        tags=tags,
        forgotten=forgotten,
        **await summarise_user(subject),
    )


@get("/user/passage")
async def passage_page(subject: AboutUser, id: FromQuery[str]) -> Template:
    context = subject.context
    shown_passage = await api.passage.fn(context, id)
    older = await context.read(management.passages.list_older(context.memory, context.scope, id))
    older_texts = [api.to_schema(context, passage) for passage in older]
    return subject.page(
        "passage.html", passage=shown_passage, older=older_texts, **await summarise_user(subject)
    )


@post("/user/passages", status_code=200)
async def add_passage(subject: AboutUser) -> Redirect:
    visitor = subject.visitor
    new_passage = PassagePost(visitor.field("content"), _tags(visitor.field("tags")))
    await api.add_passage(subject.context, new_passage)
    return _back(subject)


@post("/user/passage", status_code=200)
async def change_passage(subject: AboutUser) -> Redirect:
    """Edit a passage, undo that, set it aside, restore it, or delete it."""
    visitor = subject.visitor
    verb = visitor.field("verb")
    ident = visitor.field("id")
    if verb == EDIT:
        passage_patch = PassagePatch(visitor.field("content"), _tags(visitor.form.get("tags", "")))
        changed_passage = await api.change_passage(subject.context, ident, passage_patch)
        return go_to(link("/user/passage", id=changed_passage.id, **subject.where))
    if verb not in VERBS:
        verbs = ", ".join((EDIT, *VERBS))
        raise BadRequest(f"`verb` is {verb[:40]!r}: use one of {verbs}.", param="verb")
    await VERBS[verb].fn(subject.context, ident)
    if verb == "undo":
        return go_to(link("/user/passage", id=ident, **subject.where))
    return _back(subject, forgotten="true" if verb == "restore" else "")


def _tags(text: str) -> list[str]:
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def _back(subject: Subject, **parameters: str) -> Redirect:
    return go_to(link("/user/passages", **subject.where, **parameters))


ROUTES = (passages_page, passage_page, add_passage, change_passage)
