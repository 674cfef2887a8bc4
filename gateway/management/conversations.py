"""Recall memory over HTTP: conversations, messages, imported chats, explain records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
from litestar import delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery

from gateway.errors import BadRequest, ResourceNotFound, quote_value
from gateway.http.json_thread import run_by_weight, run_heavy
from gateway.http.paths import segment
from gateway.management import schemas
from gateway.management.context import (
    AtDoor,
    AtUser,
    Cursor,
    PageLimit,
    window,
)
from gateway.management.query_params import Sought
from gateway.management.schemas import (
    Conversation,
    ConversationPost,
    Gone,
    Json,
    Message,
    MessageHit,
    Page,
    WholeConversation,
    describe_body,
    place_of,
    time_of,
)
from memory import (
    ConversationName,
    FoundConversation,
    ImportedMessage,
    QuickRead,
    Screen,
    iso,
    management,
    memory_name,
    shown_owner,
    split_memory_name,
    text_of,
)
from memory.export_format import SAID

# Of a message that is read at once.
SHORT_BYTES = 1 << 14


def _to_schema(conversation: FoundConversation) -> Conversation:
    agent, project = split_memory_name(conversation.agent)
    return Conversation(
        conversation.name,
        shown_owner(conversation.user),
        agent,
        conversation.forked_from,
        conversation.messages,
        iso(conversation.created_at),
        iso(conversation.updated_at),
        project or msgspec.UNSET,
    )


def _message(row: dict[str, Any], conversation: str, screen: Screen) -> Message:
    body = management.conversations.read_message(row, screen)
    return Message(
        row["public_id"],
        row["role"],
        body.get("content"),
        conversation,
        iso(row["created_at"]),
        row["aborted"],
        body.get("name"),
        body.get("tool_calls"),
        body.get("tool_call_id"),
    )


def _messages(
    rows: list[dict[str, Any]], limit: int, conversation: str, screen: Screen
) -> Page[Message]:
    """Return a page of messages, without their secrets."""
    page_rows, next_cursor = window(
        rows, limit, lambda m: m["id"], lambda m: len(m["body"]) + len(m["content"])
    )
    return Page([_message(m, conversation, screen) for m in page_rows], next_cursor)


@get("/users/{user:str}/conversations", summary="A user's conversations, newest first")
async def conversations(
    context: AtUser, cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Conversation]:
    rows = await context.read(
        management.conversations.list_conversations(
            context.memory, context.scope, place_of(cursor, int), limit + 1
        )
    )
    page_rows, next_cursor = window(rows, limit, lambda c: c.key)
    return Page([_to_schema(c) for c in page_rows], next_cursor)


@post(
    "/users/{user:str}/conversations",
    status_code=200,
    summary="Import an existing chat",
    operation_class=describe_body(ConversationPost),
)
async def bring_conversation(context: AtUser) -> Conversation:
    caller = context.caller
    management_actor = context.hand()
    body = await caller.much()
    chat = await run_by_weight(body, schemas.brought, body, caller.rows)
    # What was long in it stands in the messages.
    del body
    imported_messages = await _parse_messages(chat.messages, context.memory.policy.screen)
    return _to_schema(
        await context.write(
            management.conversations.import_conversation(
                context.memory, management_actor, imported_messages, chat.id
            )
        )
    )


async def _parse_messages(
    messages: Sequence[msgspec.Raw | bytes], screen: Screen
) -> list[ImportedMessage]:
    """Parse messages one by one, without their secrets; other requests run in between.

    Raises BadRequest naming the message.
    """
    now = time.time()
    glance = QuickRead()
    out = []
    for index, message_text in enumerate(messages):
        where = f"messages[{index}]"
        work = partial(_read_message, message_text, where, now, screen)
        out.append(work() if len(message_text) <= SHORT_BYTES else await run_heavy(work))
        await glance.rest()
    return out


def _read_message(
    message_text: msgspec.Raw | bytes, where: str, now: float, screen: Screen
) -> ImportedMessage:
    """Return a message without its secrets. Raises BadRequest naming it."""
    message = _parse_message(schemas.message_of(message_text, where), where, now)
    return replace(message, message=screen.mask_message(message.message))


def _parse_message(message: Json, where: str, now: float) -> ImportedMessage:
    """Validate and return one message. Raises BadRequest."""
    content = message.get("content")
    calls = message.get("tool_calls")
    if not isinstance(message.get("role"), str):
        raise BadRequest(f"`{where}` needs a `role`.", param=where)
    if not (
        content is None
        or isinstance(content, str)
        or (isinstance(content, list) and all(isinstance(p, dict) for p in content))
    ):
        raise BadRequest(
            f"`{where}.content` must be a string, a list of parts, or null, not "
            f"{quote_value(content)}.",
            param=f"{where}.content",
        )
    if calls is not None and not (
        isinstance(calls, list) and all(isinstance(c, dict) for c in calls)
    ):
        raise BadRequest(
            f"`{where}.tool_calls` must be a list of objects, not {quote_value(calls)}.",
            param=f"{where}.tool_calls",
        )
    if (size := len(text_of(message))) > SAID:
        raise BadRequest(
            f"`{where}` has {size} characters; at most {SAID} are allowed.", param=where
        )
    created_at = message.pop("created_at", None)
    if created_at is not None and not isinstance(created_at, str):
        raise BadRequest(
            f"`{where}.created_at` is {quote_value(created_at)}: give an ISO 8601 time.",
            param=f"{where}.created_at",
        )
    at = time_of(created_at, f"{where}.created_at")
    return ImportedMessage(message, now if at is None else at)


@get(
    "/users/{user:str}/conversations/{ident:str}/messages",
    summary="A conversation's messages, oldest first",
)
async def messages(
    context: AtUser, ident: FromPath[str], cursor: Cursor = None, limit: PageLimit = 50
) -> Page[Message]:
    name = segment(ident)
    after = place_of(cursor, int) or 0
    rows = await context.read(
        management.conversations.list_messages(
            context.memory, context.scope, name, after, limit + 1
        )
    )
    return _messages(rows, limit, name, context.memory.policy.screen)


@get(
    "/users/{user:str}/messages/search",
    summary="Search a user's messages; without words, the newest ones",
)
async def search_messages(
    context: AtUser, search: Sought, role: FromQuery[str | None] = None
) -> Page[MessageHit]:
    query = search.by(role)
    hits, next_cursor = search.page(
        await context.read(
            management.conversations.search_messages(context.memory, context.scope, query)
        )
    )
    return Page(
        [
            MessageHit(
                h["public_id"],
                h["content"],
                h["score"],
                iso(h["created_at"]),
                h["why"],
                h["role"],
                h["conversation"],
                h.get("speaker"),
                h.get("replaced", False),
            )
            for h in hits
        ],
        next_cursor,
    )


@dataclass(slots=True)
class OwnerParams:
    """Whose conversation is meant, if several have the same name."""

    user: str | None
    agent: str | None

    def of(self, name: str) -> ConversationName:
        return ConversationName(name, self.user, self.agent)


async def whose(
    user: FromQuery[str | None] = None,
    agent: FromQuery[str | None] = None,
    project: FromQuery[str | None] = None,
) -> OwnerParams:
    if project:
        agent = memory_name(agent or "default", project.strip())
    return OwnerParams(user, agent)


Whose = NamedDependency[OwnerParams]


@get("/conversations/{ident:str}", summary="Any conversation this key may see, with its messages")
async def conversation(
    caller: AtDoor, ident: FromPath[str], whose: Whose, cursor: Cursor = None, limit: PageLimit = 50
) -> WholeConversation:
    name = segment(ident)
    after = place_of(cursor, int) or 0
    found_conversation, rows = await caller.read(
        management.conversations.read_conversation(
            caller.memory, caller.reach, whose.of(name), after, limit + 1
        )
    )
    page = _messages(rows, limit, name, caller.memory.policy.screen)
    return WholeConversation(
        **msgspec.structs.asdict(_to_schema(found_conversation)), messages=page
    )


@delete(
    "/conversations/{ident:str}",
    status_code=200,
    summary="Delete a conversation and everything derived from it",
)
async def delete_conversation(caller: AtDoor, ident: FromPath[str], whose: Whose) -> Gone:
    name = segment(ident)
    await caller.write(
        management.conversations.delete_conversation(caller.memory, caller.reach, whose.of(name))
    )
    return Gone(name, "conversation")


@get("/explain/{ident:str}", summary="What the memory did to one request")
async def explain(caller: AtDoor, ident: FromPath[str]) -> Json:
    record = await caller.read(
        management.conversations.find_explain_record(caller.memory, caller.reach, ident)
    )
    if record is None:
        raise ResourceNotFound(
            f"There is no explain record {ident[:80]!r} that this key may see. They are kept "
            "for memory.explain_days days."
        )
    return {**record, "created_at": iso(record["created_at"])}


ROUTES = (
    conversations,
    bring_conversation,
    messages,
    search_messages,
    conversation,
    delete_conversation,
    explain,
)
