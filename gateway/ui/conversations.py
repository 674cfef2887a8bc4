"""Recall memory: a user's conversations, one of them as a thread, search among messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from litestar import get, post
from litestar.params import FromQuery
from litestar.response import Redirect, Template

from gateway.management import conversations as api
from gateway.management.context import window
from gateway.management.query_params import SearchParams
from gateway.management.schemas import place_of
from gateway.ui.people import summarise_user
from gateway.ui.texts import ShownCall, link, read_calls, text_of_content
from gateway.ui.visitor import AboutUser, AtVisit, go_to
from memory import (
    ConversationName,
    FoundConversation,
    Screen,
    SearchQuery,
    VisibleScopes,
    management,
)

PAGE, MESSAGES = 25, 50


@dataclass(frozen=True, slots=True)
class ThreadMessage:
    """A message of a thread. explain: the id of its turn's record, if there is one.

    is_evicted: it was recorded when it no longer fit the context window.
    """

    role: str
    text: str
    calls: Sequence[ShownCall]
    aborted: bool
    created_at: float
    explain: str
    is_evicted: bool


@get("/user/conversations")
async def conversations_page(
    subject: AboutUser, q: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Template:
    desk, cursor = subject.desk, cursor or None
    hits: list[Any] = []
    if q:
        offset = max(place_of(cursor, int) or 0, 0)
        search = SearchParams(SearchQuery(q, (), None, None, PAGE + 1, offset))
        found = await api.search_messages.fn(desk, search, None)
        hits, rest, listed = found.data, found.next_cursor, []
    else:
        found = await api.conversations.fn(desk, cursor, PAGE)
        listed, rest = found.data, found.next_cursor
    names = [*(c.id for c in listed), *(hit.conversation for hit in hits)]
    titles = await desk.read(management.conversations.read_titles(desk.memory, desk.scope, names))
    return subject.page(
        "conversations.html",
        conversations=listed,
        titles=titles,
        hits=hits,
        rest=rest,
        q=q,
        **await summarise_user(subject),
    )


@get("/conversation")
async def thread_page(
    visitor: AtVisit,
    name: FromQuery[str],
    user: FromQuery[str] = "",
    agent: FromQuery[str] = "",
    cursor: FromQuery[str | None] = None,
) -> Template:
    caller, after = visitor.caller, place_of(cursor or None, int) or 0
    which = ConversationName(name, user or None, agent or None)
    found, listed = await caller.read(
        management.conversations.read_conversation(
            caller.memory, caller.reach, which, after, MESSAGES + 1
        )
    )
    rows, rest = window(
        listed, MESSAGES, lambda m: m["id"], lambda m: len(m["body"]) + len(m["content"])
    )
    turns = list({row["node"] for row in rows if row["node"] is not None})
    notes = await caller.read(management.activity.read_thread_notes(caller.memory, found, turns))
    return visitor.page(
        "thread.html",
        found=found,
        messages=_messages(rows, notes.explains, caller.memory.policy.screen),
        notes=notes,
        rest=rest,
        first=not after,
        where=_where(visitor, found),
        **await _title_and_zone(visitor, found),
    )


async def _title_and_zone(visitor: AtVisit, found: FoundConversation) -> dict[str, str]:
    """Return how a conversation began, and the time zone of its user."""
    caller = visitor.caller
    scope = caller.memory.scope(found.tenant, found.user, found.agent)
    titles = await caller.read(
        management.conversations.read_titles(caller.memory, scope, [found.name])
    )
    if found.user is None:
        return {"began": titles.get(found.name, ""), "timezone": ""}
    policy = await caller.read(
        management.policies.find_policy(caller.memory, found.tenant, found.user)
    )
    return {"began": titles.get(found.name, ""), "timezone": policy.timezone}


def _where(visitor: AtVisit, found: FoundConversation) -> dict[str, str]:
    tenant = visitor.caller.asked_tenant or ""
    if visitor.caller.principal.admin:
        tenant = found.tenant
    agent = found.agent if found.agent != "default" else ""
    return {"user": found.user or "", "agent": agent, "tenant": tenant}


def _messages(
    rows: list[dict[str, Any]], explains: dict[int, str], screen: Screen
) -> list[ThreadMessage]:
    """Return the messages of a thread, without their secrets."""
    out = []
    for row in rows:
        body = management.conversations.read_message(row, screen)
        explain = explains.get(row["node"], "") if row["role"] == "user" else ""
        out.append(
            ThreadMessage(
                row["role"],
                text_of_content(body.get("content")),
                read_calls(body.get("tool_calls")),
                row["aborted"],
                row["created_at"],
                explain,
                row["source"] == "evicted",
            )
        )
    return out


@post("/conversation/delete", status_code=200)
async def delete_conversation(visitor: AtVisit) -> Redirect:
    caller, user = visitor.caller, visitor.field("user")
    which = ConversationName(visitor.field("name"), user or None, visitor.field("agent") or None)
    await caller.write(
        management.conversations.delete_conversation(caller.memory, caller.reach, which)
    )
    tenant = caller.asked_tenant or ""
    return go_to(link("/user/conversations" if user else "", user=user, tenant=tenant))


def reach_of(visitor: AtVisit) -> VisibleScopes:
    """Return what the visitor's lists show."""
    caller = visitor.caller
    return VisibleScopes(caller.reach.tenant, caller.principal.only)


ROUTES = (conversations_page, thread_page, delete_conversation)
