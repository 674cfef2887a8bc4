"""What reflections propose: each change as a difference; apply, discard, undo, run one now."""

from __future__ import annotations

import asyncio

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.errors import BadRequest, RequestConflict
from gateway.management import reflections as api
from gateway.management.reflections import ProposedChange, ReflectionDecision
from gateway.ui.people import summarise_user
from gateway.ui.texts import diff_lines, link
from gateway.ui.visitor import AboutUser, Subject, go_to

PAGE = 20
CHOICE_OF = {
    "apply": ReflectionDecision("apply"),
    "discard": ReflectionDecision("discard"),
    "undo": ReflectionDecision("undo"),
}
# What may be decided on a proposal, by its status.
CHOICES = {"pending": ("apply", "discard"), "conflict": ("discard",), "applied": ("undo",)}


@get("/user/reflections")
async def reflections_page(
    subject: AboutUser, cursor: FromQuery[str | None] = None, queued: FromQuery[str] = ""
) -> Template:
    """Show the proposals, newest first. queued: a run was just asked for."""
    return await _page(subject, cursor or None, is_queued=bool(queued))


async def _page(
    subject: Subject, cursor: str | None = None, *, is_queued: bool = False, fault: str = ""
) -> Template:
    listed = await api.reflections.fn(subject.context, cursor, PAGE)
    proposals = await asyncio.to_thread(
        lambda: [(row, [(c, _compare(c)) for c in row.changes]) for row in listed.data]
    )
    return subject.page(
        "reflections.html",
        proposals=proposals,
        following=listed.next_cursor,
        choices=CHOICES,
        is_queued=is_queued,
        fault=fault,
        **await summarise_user(subject),
    )


def _compare(change: ProposedChange) -> list[tuple[str, str]]:
    return list(diff_lines(change.before or "", change.after or ""))


@post("/user/reflections", status_code=200)
async def run_reflection(subject: AboutUser) -> Redirect:
    await api.run_reflection.fn(subject.context)
    return go_to(link("/user/reflections", queued="1", **subject.where))


@post("/user/reflection", status_code=200)
async def decide_reflection(subject: AboutUser) -> Template | Redirect:
    """Apply, discard or undo a proposal; what changed meanwhile is named on the page."""
    choice = CHOICE_OF.get(subject.visitor.field("decision"))
    if choice is None:
        raise BadRequest(f"`decision` must be one of {', '.join(CHOICE_OF)}.", param="decision")
    try:
        await api.decide(subject.context, subject.visitor.field("id"), choice)
    except RequestConflict as e:
        return await _page(subject, fault=e.message)
    return go_to(link("/user/reflections", **subject.where))


ROUTES = (reflections_page, run_reflection, decide_reflection)
