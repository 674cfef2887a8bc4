"""What filters did not keep of what a user said, with "keep it"."""

from __future__ import annotations

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.management import dropped as api
from gateway.management.query_params import TimeRange
from gateway.ui.people import summarise_user
from gateway.ui.texts import link
from gateway.ui.visitor import AboutUser, go_to
from memory import management

PAGE = 25
# What each reason means to a reader.
MEANINGS = {
    "small_talk": "small talk",
    "question": "a question or a request, which tells nothing",
    "quoted": "quoted or pasted text",
    "code": "code or a log",
    "too_long": "the middle of a very long message",
    "duplicate": "known already",
    "no_quote": "not in the user's words",
    "no_shared_word": "not what the quoted words say",
    "category": "in none of the operator's categories",
    "secret": "a secret, whose text is not stored",
    "malformed": "the model's answer could not be read",
    "wrong_id": "it names no known fact",
    "block_full": "the block is full",
    "budget": "over the budget",
    "replaced": "edited away",
    "private": "private",
    "held": "held for review",
    "inbox_full": "the inbox is full",
    "policy": "the user's policy",
    "expired": "expired",
}


@get("/user/dropped")
async def dropped_page(
    subject: AboutUser, reason: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Template:
    any_time = TimeRange(None, None)
    entries = await api.dropped.fn(subject.context, any_time, reason or None, cursor or None, PAGE)
    return subject.page(
        "dropped.html",
        entries=entries.data,
        rest=entries.next_cursor,
        reason=reason,
        reasons=management.dropped.REASONS,
        meanings=MEANINGS,
        **await summarise_user(subject),
    )


@post("/user/dropped", status_code=200)
async def keep_dropped(subject: AboutUser) -> Redirect:
    await api.keep_drop(subject.context, subject.visitor.field("id"))
    return go_to(link("/user/dropped", **subject.where))


ROUTES = (dropped_page, keep_dropped)
