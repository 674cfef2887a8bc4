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

PAGE = 25
MESSAGES = 50


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
    context = subject.context
    cursor = cursor or None
    hits: list[Any] = []
    if q:
        offset = max(place_of(cursor, int) or 0, 0)
        search = SearchParams(SearchQuery(q, (), None, None, PAGE + 1, offset))
        results = await api.search_messages.fn(context, search, None)
        hits = results.data
        next_cursor = results.next_cursor
        conversations_list = []
    else:
        results = await api.conversations.fn(context, cursor, PAGE)
        conversations_list = results.data
        next_cursor = results.next_cursor
    names = [*(c.id for c in conversations_list), *(hit.conversation for hit in hits)]
    titles = await context.read(
        management.conversations.read_titles(context.memory, context.scope, names)
    )
    return subject.page(
        "conversations.html",
        conversations=conversations_list,
        titles=titles,
        hits=hits,
        rest=next_cursor,
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
    caller = visitor.caller
    after = place_of(cursor or None, int) or 0
    conversation_name = ConversationName(name, user or None, agent or None)
    conversation, message_rows = await caller.read(
        management.conversations.read_conversation(
            caller.memory, caller.reach, conversation_name, after, MESSAGES + 1
        )
    )
    rows, next_cursor = window(
        message_rows, MESSAGES, lambda m: m["id"], lambda m: len(m["body"]) + len(m["content"])
    )
    turns = list({row["node"] for row in rows if row["node"] is not None})
    notes = await caller.read(
        management.activity.read_thread_notes(caller.memory, conversation, turns)
    )
    return visitor.page(
        "thread.html",
        found=conversation,
        messages=_messages(rows, notes.explains, caller.memory.policy.screen),
        notes=notes,
        rest=next_cursor,
        first=not after,
        where=_where(visitor, conversation),
        **await _title_and_zone(visitor, conversation),
    )


async def _title_and_zone(visitor: AtVisit, conversation: FoundConversation) -> dict[str, str]:
    """Return how a conversation began, and the time zone of its user."""
    caller = visitor.caller
    scope = caller.memory.scope(conversation.tenant, conversation.user, conversation.agent)
    titles = await caller.read(
        management.conversations.read_titles(caller.memory, scope, [conversation.name])
    )
    if conversation.user is None:
        return {"began": titles.get(conversation.name, ""), "timezone": ""}
    policy = await caller.read(
        management.policies.find_policy(caller.memory, conversation.tenant, conversation.user)
    )
    return {"began": titles.get(conversation.name, ""), "timezone": policy.timezone}


def _where(visitor: AtVisit, conversation: FoundConversation) -> dict[str, str]:
    tenant = visitor.caller.asked_tenant or ""
    if visitor.caller.principal.admin:
        tenant = conversation.tenant
    agent = ""
    if conversation.agent != "default":
        agent = conversation.agent
    return {"user": conversation.user or "", "agent": agent, "tenant": tenant}


def _messages(
    rows: list[dict[str, Any]], explains: dict[int, str], screen: Screen
) -> list[ThreadMessage]:
    """Return the messages of a thread, without their secrets."""
    out = []
    for row in rows:
        body = management.conversations.read_message(row, screen)
        explain = ""
        if row["role"] == "user":
            explain = explains.get(row["node"], "")
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
    caller = visitor.caller
    user = visitor.field("user")
    conversation_name = ConversationName(
        visitor.field("name"), user or None, visitor.field("agent") or None
    )
    await caller.write(
        management.conversations.delete_conversation(caller.memory, caller.reach, conversation_name)
    )
    tenant = caller.asked_tenant or ""
    return go_to(link("/user/conversations" if user else "", user=user, tenant=tenant))


def reach_of(visitor: AtVisit) -> VisibleScopes:
    """Return what the visitor's lists show."""
    caller = visitor.caller
    return VisibleScopes(caller.reach.tenant, caller.principal.only)


ROUTES = (conversations_page, thread_page, delete_conversation)
